"""Pictures show what they are given in full, whatever the tokens look like, and large enough to be read."""

import warnings

import pytest
import torch
from matplotlib.font_manager import fontManager
from matplotlib.image import imread

from tfm_zoo.visualization import AttentionMap, Rollout, plot_attention, plot_rollout, plot_training
from tfm_zoo.visualization.attention_plot import overview, panels


def attention_of(queries: int = 4, keys: int = 6, layers: int = 2, heads: int = 3, numbers=None) -> AttentionMap:
    weights = torch.randn(layers, heads, queries, keys, generator=torch.Generator().manual_seed(0)).softmax(-1)
    tokens = [f"token{index}" for index in range(max(queries, keys))]
    return AttentionMap("cross", weights, tokens[:queries], tokens[:keys], "a model", numbers)


def images(figure) -> list[torch.Tensor]:
    """What the panes show, without the scale of colours."""
    drawn = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    return [torch.tensor(image.filled(torch.nan)) for image in drawn if image.shape == (4, 6)]


@pytest.mark.parametrize(("numbers", "last"), [(None, 1), ([1, 4], 4)])
def test_each_pane_is_its_head(numbers, last):
    """Where some layers have no weights, the others keep their numbers."""
    attention = attention_of(numbers=numbers)
    for layer, head, expected in (
        (last, None, attention.weights[1]),
        (None, 2, attention.weights[:, 2]),
        (last, 2, attention.weights[1:, 2]),
    ):
        drawn = images(panels(attention, layer, head))
        assert len(drawn) == len(expected) and all(map(torch.equal, drawn, expected))
    titles = [axes.get_title() for axes in panels(attention, None, 2).axes[:2]]
    assert titles == [f"layer {numbers[0] if numbers else 0}", f"layer {last}"]


def test_overview_has_all():
    attention = attention_of()
    mosaic = torch.tensor(overview(attention).axes[0].images[0].get_array().filled(torch.nan))
    assert torch.equal(mosaic[:4, 7:13], attention.weights[0, 1])
    assert torch.equal(mosaic[5:9, 14:20], attention.weights[1, 2])
    assert mosaic[4].isnan().all() and mosaic[:, 6].isnan().all()


@pytest.mark.parametrize(
    ("attention", "layer", "least"),
    [(attention_of(40, 40, 12, 12), None, 1500), (attention_of(200, 200, 1, 1), 0, 900)],
)
def test_sizes(attention, layer, least, tmp_path):
    plot_attention(attention, tmp_path / "new" / "map.png", layer, layer)
    height, width, _ = imread(tmp_path / "new" / "map.png").shape
    assert least <= height <= 4000 and least <= width <= 4000


def test_a_flat_loss_makes_a_picture(tmp_path):
    plot_training([{"step": step, "loss": 2.0, "eval_loss": 2.0} for step in (5, 20)], tmp_path / "curves.png")
    assert imread(tmp_path / "curves.png").std() > 0


@pytest.mark.parametrize(
    ("tokens", "lacking"),
    [
        (["$x$", "$", "\\frac{", "_^", "<b>"], ""),
        (["film", "⌕", "⊦"], ""),
        (["电影", "⌕", "很", "好"], "好影很电"),
    ],
)
def test_any_tokens(tokens, lacking, tmp_path, monkeypatch, caplog):
    """With the fonts that matplotlib brings along, whichever are installed here."""
    monkeypatch.setattr(fontManager, "ttflist", [font for font in fontManager.ttflist if "mpl-data" in font.fname])
    weights = torch.eye(len(tokens))[None, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        plot_attention(AttentionMap("encoder", weights, tokens, tokens, "m_{o}$d$el"), tmp_path / "map.png", 0, 0)
        shares = torch.ones(len(tokens)) / len(tokens)
        plot_rollout(Rollout(tokens, shares, "the state of '$'", "$good$", "m$"), tmp_path / "rollout.svg")
    said = [f"has boxes for {lacking}, which no installed font has: a page (.html) shows them."] * 2
    assert [record.message.partition(" ")[2] for record in caplog.records] == said * bool(lacking)
