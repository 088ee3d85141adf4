"""Pictures show all that they are given, whatever the tokens are, and say what models and trainings have."""

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.image import imread
from matplotlib.text import Text
from transformers import get_scheduler

import tfm_zoo
from tfm_zoo import visualization as pictures
from tfm_zoo.models.positions import rotate
from tfm_zoo.visualization import block
from tfm_zoo.visualization.attention_plot import panels
from tfm_zoo.visualization.comparison import comparison

from ..tiny import tiny_config, tiny_decoder, tiny_model


@pytest.mark.parametrize(("numbers", "last"), [(None, 1), ([1, 4], 4)])
def test_each_pane_is_its_head(numbers, last):
    """Where some layers have no weights, the others keep their numbers."""
    weights = torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(0)).softmax(-1)
    attention = pictures.AttentionMap("cross", weights, [*"abcd"], [*"abcdef"], "a model", numbers)
    for layer, head, expected in ((last, None, weights[1]), (None, 2, weights[:, 2]), (last, 2, weights[1:, 2])):
        drawn = [axes.images[0].get_array() for axes in panels(attention, layer, head).axes if axes.images]
        drawn = [torch.tensor(image.filled(torch.nan)) for image in drawn if image.shape == (4, 6)]
        assert len(drawn) == len(expected) and all(map(torch.equal, drawn, expected))
    assert panels(attention, None, 2).axes[1].get_title() == f"layer {last}"


def test_any_tokens(tmp_path, monkeypatch, caplog):
    """Formulas are texts. Letters are named that the fonts, here those of matplotlib alone, lack."""
    monkeypatch.setattr(fontManager, "ttflist", [font for font in fontManager.ttflist if "mpl-data" in font.fname])
    tokens = ["$x$", "$", "\\frac{", "_^", "⌕", "很", "好"]
    weights = torch.eye(7)[None, None]
    attention = pictures.AttentionMap("encoder", weights, tokens, tokens, "m_{o}$d$el")
    pictures.plot_attention(attention, tmp_path / "map.png", 0, 0)
    rollout = pictures.Rollout(tokens, weights[0, 0, 0], "the state of '$'", "$good$", "m$")
    pictures.plot_rollout(rollout, tmp_path / "rollout.svg")
    assert [" has boxes for 好很, " in record.message for record in caplog.records] == [True, True]


def test_each_curve_is_its_models(tmp_path):
    """The best model comes first, and one that diverged does not make the others small."""
    losses = [(1000 * step, 4 + 2 / step) for step in range(1, 9)]
    higher = [(step, loss + 0.5) for step, loss in losses]
    better = pictures.TrainedModel("better", losses, losses[::2], {})
    worse = pictures.TrainedModel("$\\frac{", higher, higher[::2], {})
    broken = pictures.TrainedModel("broken", [*losses[:3], (4000, 99.0)], losses[:1], {}, diverged=True)
    training, validation = comparison([broken, worse, better], {"uniform guess": 6.9}, "three").axes[:2]
    for panel, kind in ((training, "training"), (validation, "validation")):
        drawn = [[*map(tuple, line.get_xydata())] for line in panel.lines[:2]]
        assert drawn == [getattr(better, kind), getattr(worse, kind)]
    assert training.get_ylim()[1] < 8
    pictures.plot_comparison([better], tmp_path / "a.png")  # without levels
    pictures.plot_training([{"step": 3, "eval_loss": 2.0, "eval_bleu": 20.0}], tmp_path / "b.png", "bleu")
    assert all(imread(tmp_path / name).shape[1] > 900 for name in ("a.png", "b.png"))


BLOCKS = {
    "post": "self-attention + LayerNorm feed-forward + LayerNorm",
    "pre": "LayerNorm self-attention + LayerNorm feed-forward + LayerNorm",
    "output": "self-attention LayerNorm + feed-forward LayerNorm + LayerNorm",
}


@pytest.mark.parametrize("place", BLOCKS)
def test_a_block_is_drawn_from_its_parts(place):
    """From the bottom to the top: norms stand where they are."""
    panel = Figure().subplots()
    (stack,) = block.stacks_of(tiny_config(tfm_zoo.TfmGPTConfig, norm_position=place, num_hidden_layers=3))
    block.draw_stack(panel, stack, 0.0)
    texts = sorted(panel.findobj(Text), key=lambda text: text.get_position()[1])
    shown = [text.get_text().replace("\n", " ") for text in texts]
    assert "3 x" in shown
    parts = [part for text in shown for part in {*BLOCKS[place].split()} if text.startswith(part)]
    assert parts == ["+", *BLOCKS[place].split()]  # the first adds positions


def test_masks_are_those_of_the_models():
    ids = torch.arange(12)[None] % 5 + 3
    for kind, model, real in (
        ("padding", tiny_model(tfm_zoo.TfmBertModel, attn_implementation="eager"), torch.arange(12) < 9),
        ("causal", tiny_decoder(attn_implementation="eager"), torch.arange(12) < 12),
        ("window", tiny_decoder(attn_implementation="eager", sliding_window=4), torch.arange(12) < 12),
    ):
        weights = model(ids, attention_mask=real.long()[None], output_attentions=True).attentions[0][0, 0]
        assert torch.equal(weights[real] > 0, pictures.mask_of(kind, 12)[real]), kind


def test_rotary_positions_decay_as_a_dot_product_does():
    model = tiny_model(tfm_zoo.TfmGPTModel, position_embedding_type="rotary")
    (vectors,) = pictures.position_vectors(model).values()
    head_dim = model.config.head_dim
    assert vectors.shape == (24, head_dim)
    cos, sin = model.rotary_emb.prepare(torch.zeros(1), torch.arange(24)[None])
    ones = rotate(torch.ones(1, 1, 24, head_dim), cos, sin)[0, 0]
    products = (ones @ ones.T)[0] / head_dim
    torch.testing.assert_close(pictures.similarity_by_distance(vectors)[0].float(), products, atol=1e-5, rtol=0)


def test_learned_positions():
    """Some tables begin with rows that belong to no position."""
    offset = tiny_model(tfm_zoo.TfmEncoderDecoderModel, position_embedding_type="learned", position_offset=2)
    vectors = pictures.position_vectors(offset, length=5)
    tables = {name: getattr(offset, name).embeddings.embed_positions.weight for name in ("encoder", "decoder")}
    torch.testing.assert_close(vectors, {name: table[2:7] for name, table in tables.items()}, atol=0, rtol=0)
    padded = tiny_model(tfm_zoo.TfmBertModel, position_ids_from_padding=True, pad_token_id=1)
    assert torch.equal(pictures.position_vectors(padded)[""], padded.embeddings.embed_positions.weight[2:])


@pytest.mark.parametrize(("count", "complaint"), [(0, "0 runs"), (9, "9 runs .* 1 to 8"), (8, "7: no validation loss")])
def test_nothing_to_draw(count, complaint, tmp_path):
    """Eight runs may be drawn."""
    runs = {str(run): [{"step": 3, "loss": 2.0}] for run in range(count)}
    draw = {"0 models to compare": pictures.plot_comparison, "No schedule is named, such as": pictures.plot_schedules}
    draw["Linear is not a model of the zoo: tfm_zoo.from"] = lambda *_: pictures.position_vectors(torch.nn.Linear(2, 2))
    for said, act in (draw | {complaint: lambda _, path: pictures.plot_runs(runs, path)}).items():
        with pytest.raises(ValueError, match=said):
            act([], tmp_path / "a.png")


def test_rates_are_those_of_trainings():
    """Those of transformers; of Noam's schedule, the paper's; the highest is by default that of the recipes."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=3e-4)
    scheduler = get_scheduler("polynomial", optimizer, num_warmup_steps=7, num_training_steps=30)
    for rate in pictures.schedule_rates("polynomial", 30, 7, 3e-4):
        assert optimizer.param_groups[0]["lr"] == rate
        optimizer.step()
        scheduler.step()
    rates = pictures.schedule_rates("noam", 100, 20, hidden_size=64)
    assert rates == pytest.approx([64**-0.5 * min(step**-0.5, step * 20**-1.5) for step in range(1, 101)])
    assert max(pictures.schedule_rates("linear", 10)) == 5e-5
