"""The picture of a block says of each part what the configuration makes it; masks are those of the models."""

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

import tfm_zoo
from tfm_zoo.visualization import block, mask_of

from ..tiny import tiny_config, tiny_decoder, tiny_model


def boxes(config) -> list[str]:
    """What the boxes of each stack say, from the bottom to the top."""
    panel = Figure().subplots()
    for index, stack in enumerate(block.stacks_of(config)):
        block.draw_stack(panel, stack, 8.0 * index)
    texts = sorted(panel.findobj(Text), key=lambda text: (text.get_position()[0] // 8, text.get_position()[1]))
    return [text.get_text().replace("\n", " ") for text in texts if text.get_text()]


NORM = "LayerNorm"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("post", ["self-attention", "+", NORM, "feed-forward", "+", NORM]),
        ("pre", [NORM, "self-attention", "+", NORM, "feed-forward", "+", NORM]),
        ("output", ["self-attention", NORM, "+", "feed-forward", NORM, "+", NORM]),
        ("both", [*(NORM, "self-attention", NORM, "+"), *(NORM, "feed-forward", NORM, "+"), NORM]),
    ],
)
def test_norms_stand_where_they_are(place, expected):
    shown = boxes(tiny_config(tfm_zoo.TfmGPTConfig, norm_position=place, num_hidden_layers=3))
    assert "3 x" in shown and f"tokens: {61} x {32}" in shown
    parts = [part for text in shown for part in ("self-attention", "feed-forward", NORM, "+") if text.startswith(part)]
    assert parts == ["+", *expected]  # the first adds positions


EXPERTS = {"mlp_type": "gated", "mlp_bias": False, "num_local_experts": 4, "moe_intermediate_size": 20}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            tfm_zoo.named_config("gemma-3-270m"),
            [
                "4 heads of 256, 1 for keys and values",
                "causal, window of 512 in 15 layers and full in 3, rotary, queries and keys normed",
                "gated, gelu_pytorch_tanh: 640 to 2,048 to 640",
            ],
        ),
        (tiny_config(tfm_zoo.TfmGPTConfig, **EXPERTS), ["2 of 4 experts, gated, gelu_new: 32 to 20 to 32"]),
        (
            tfm_zoo.named_config("opt-350m"),
            ["tokens: 50,272 x 512", "projection: 512 to 1,024", "projection: 1,024 to 512"],
        ),
        (tfm_zoo.named_config("transformer-base"), ["cross-attention"]),
    ],
)
def test_what_the_boxes_say(config, said):
    shown = boxes(config)
    assert [text for text in said if sum(text in box for box in shown) != 1] == []


def test_a_parallel_block_has_one_sum():
    pythia = boxes(tfm_zoo.named_config("pythia-160m"))
    assert pythia.count("LayerNorm") == 3 and pythia.count("+") == 1


@pytest.mark.parametrize("kind", ["padding", "causal", "window"])
def test_masks_are_those_of_the_models(kind):
    length = 12
    ids, attention_mask = torch.arange(length)[None] % 5 + 3, torch.ones(1, length)
    if kind == "padding":
        model, attention_mask[:, 9:] = tiny_model(tfm_zoo.TfmBertModel, attn_implementation="eager"), 0
    else:
        model = tiny_decoder(attn_implementation="eager", **({"sliding_window": 4} if kind == "window" else {}))
    weights = model(ids, attention_mask=attention_mask, output_attentions=True).attentions[0][0, 0]
    real = attention_mask[0].bool()
    assert torch.equal(weights[real] > 0, mask_of(kind, length)[real])
