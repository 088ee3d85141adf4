"""Pictures of the block, box by box, and of masks."""

import json
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text
from typer.testing import CliRunner

import tfm_zoo
from tfm_zoo.cli import app
from tfm_zoo.visualization import block, mask_of

from ..tiny import tiny_config, tiny_decoder, tiny_model


def boxes(config) -> list[str]:
    """What the boxes of each stack say, from the bottom to the top."""
    panel = Figure().subplots()
    for index, stack in enumerate(block.stacks_of(config)):
        block.draw_stack(panel, stack, 8.0 * index)
    texts = sorted(panel.findobj(Text), key=lambda text: (text.get_position()[0] // 8, text.get_position()[1]))
    return [text.get_text().split("\n")[0] for text in texts if text.get_text()]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("post", ["self-attention", "+", "LayerNorm", "feed-forward", "+", "LayerNorm"]),
        ("pre", ["LayerNorm", "self-attention", "+", "LayerNorm", "feed-forward", "+", "LayerNorm"]),
        ("output", ["self-attention", "LayerNorm", "+", "feed-forward", "LayerNorm", "+", "LayerNorm"]),
    ],
)
def test_norms_stand_where_they_are(place, expected):
    config = tiny_config(tfm_zoo.TfmGPTConfig, norm_position=place, num_hidden_layers=3)
    shown = [text for text in boxes(config) if text != "3 x"]
    assert shown == ["decoder", f"tokens: {config.vocab_size} x {config.hidden_size}", shown[2], *expected]
    assert shown[2].startswith("+ learned positions") and "3 x" in boxes(config)


def test_what_the_boxes_say():
    config = tfm_zoo.named_config("gemma-3-270m")
    (stack,) = block.stacks_of(config)
    attention, feed = (layer.text.replace("\n", " ") for layer in stack.sub_layers)
    assert "4 heads of 256, 1 for keys and values" in attention
    assert "causal, window of 512 in 15 layers and full in 3, rotary, queries and keys normed" in attention
    assert "gated, gelu_pytorch_tanh: 640 to 2,048 to 640" in feed
    fields = {"mlp_type": "gated", "mlp_bias": False, "num_local_experts": 4, "moe_intermediate_size": 20}
    (stack,) = block.stacks_of(tiny_config(tfm_zoo.TfmGPTConfig, **fields))
    assert "2 of 4 experts, gated, gelu_new: 32 to 20 to 32" in stack.sub_layers[1].text.replace("\n", " ")
    pythia = boxes(tfm_zoo.named_config("pythia-160m"))
    assert pythia.count("LayerNorm") == 3 and pythia.count("+") == 1
    narrow = [text for text in boxes(tfm_zoo.named_config("opt-350m")) if text != "24 x"]
    assert narrow[1:3] == ["tokens: 50,272 x 512", "projection: 512 to 1,024"]
    assert narrow[-1] == "projection: 1,024 to 512"
    assert boxes(tfm_zoo.named_config("transformer-base")).count("cross-attention") == 1


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


def test_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for run in ("runs/one", "runs/two/checkpoint-3"):  # as recipes leave it, and as the Trainer does
        history = [{"step": 3, "eval_loss": 2.0, "train_runtime": 60}]
        Path(run).mkdir(parents=True)
        Path(run, "trainer_state.json").write_text(json.dumps({"log_history": history}))
    positions = ["positions", "sinusoidal", "--hidden-size", "64", "--length", "100"]
    for command in (
        ["block", "t5-small"],
        ["masks"],
        positions,
        ["positions", "smollm-135m"],
        ["training", "runs/one", "runs/two"],
    ):
        result = CliRunner().invoke(app, ["show", *command])
        assert result.exit_code == 0, result.output
    pictures = {"block.png", "masks.png", "positions.png", "training.png"}
    assert {path.name for path in tmp_path.iterdir()} == pictures | {"runs"}
    result = CliRunner().invoke(app, ["show", "training", "runs"])
    assert result.exit_code == 1 and "runs has no trainer_state.json" in result.output
