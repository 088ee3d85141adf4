"""Pictures are made in full, and large enough that their tokens can be read."""

import warnings
from dataclasses import replace

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.image import imread

from tfm_zoo.visualization import AttentionMap, Rollout, plot_attention, plot_rollout, plot_training
from tfm_zoo.visualization.attention_plot import overview, panels
from tfm_zoo.visualization.fonts import fonts_for

TOKENS = [f"token{index}" for index in range(40)]


def attention_of(queries: int = 40, keys: int = 40, layers: int = 12, heads: int = 12) -> AttentionMap:
    weights = torch.randn(layers, heads, queries, keys, generator=torch.Generator().manual_seed(0)).softmax(-1)
    return AttentionMap("cross", weights, TOKENS[:queries], TOKENS[:keys], "a model")


def test_each_pane_is_its_head():
    attention = attention_of(5, 7, layers=2, heads=3)
    figure = panels(attention, 1, None)
    drawn = [axes.images[0].get_array() for axes in figure.axes if axes.images and axes.get_title()]
    assert all(torch.equal(torch.tensor(one.data), two) for one, two in zip(drawn, attention.weights[1], strict=True))
    (single,) = [axes for axes in panels(attention, 1, 2).axes if axes.images and len(axes.get_xticklabels()) == 7]
    assert torch.equal(torch.tensor(single.images[0].get_array().data), attention.weights[1, 2])
    columns = panels(attention, None, 2)
    assert [axes.get_title() for axes in columns.axes[:2]] == ["layer 0", "layer 1"]


def test_overview_has_all():
    attention = attention_of(4, 6, layers=2, heads=3)
    axes = overview(attention).axes[0]
    mosaic = torch.tensor(axes.images[0].get_array().filled(torch.nan))
    assert torch.equal(mosaic[:4, 7:13], attention.weights[0, 1])
    assert torch.equal(mosaic[5:9, 14:20], attention.weights[1, 2])
    assert mosaic[4].isnan().all() and mosaic[:, 6].isnan().all()


def test_a_flat_loss_lies_inside(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    history = [{"step": step, "loss": 2.0, "eval_loss": 2.0} for step in (5, 20)]
    plot_training(history, tmp_path / "training_curves.png")
    panel = drawn[0].axes[0]
    assert panel.get_ylim()[1] > 2.05
    assert all(float(tick).is_integer() for tick in panel.get_xticks())
    assert drawn[0].get_suptitle() == f"{tmp_path.name}: loss"


@pytest.mark.parametrize(
    ("size", "layer", "head", "least"),
    [((40, 40), None, None, (1500, 1500)), ((200, 200), 0, 0, (900, 1000))],
)
def test_sizes(size, layer, head, least, tmp_path):
    attention = attention_of(40, 40) if size == (40, 40) else long_map(*size)
    plot_attention(attention, tmp_path / "new" / "map.png", layer, head)
    height, width, _ = imread(tmp_path / "new" / "map.png").shape
    assert least[0] <= height <= 4000 and least[1] <= width <= 4000


def long_map(queries: int, keys: int) -> AttentionMap:
    weights = torch.rand(1, 1, queries, keys).softmax(-1)
    return AttentionMap("decoder", weights, ["token"] * queries, ["token"] * keys, "a model")


def test_tokens_that_look_like_mathematics(tmp_path):
    tokens = ["$x$", "$", "\\frac{", "_^", "<b>"]
    weights = torch.eye(5).expand(1, 1, 5, 5)
    plot_attention(AttentionMap("encoder", weights, tokens, tokens, "m_{o}$d$el"), tmp_path / "map.png", 0, 0)
    rollout = Rollout(tokens, torch.full((5,), 0.2), "the state of '$'", "$good$", "m$")
    plot_rollout(rollout, tmp_path / "rollout.svg")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("tokens", "families", "lacking"),
    [(["film", "⌕", "⊦"], ["DejaVu Sans Mono"], ""), (["电影", "⌕", "很", "好"], ["DejaVu Sans Mono"], "好影很电")],
)
def test_letters_of_other_fonts(tokens, families, lacking, tmp_path, monkeypatch, caplog):
    """With the fonts that matplotlib brings along, whichever are installed here."""
    monkeypatch.setattr(fontManager, "ttflist", [font for font in fontManager.ttflist if "mpl-data" in font.fname])
    assert fonts_for(set("".join(tokens))) == (families, set(lacking))
    count = len(tokens)
    maps = AttentionMap("encoder", torch.eye(count)[None, None], tokens, tokens, "m")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        plot_attention(maps, tmp_path / "map.png", 0, 0)
        plot_rollout(Rollout(tokens, torch.ones(count) / count, "a state", "good", "m"), tmp_path / "rollout.svg")
    said = [f"has boxes for {lacking}, which no installed font has: a page (.html) shows them." for _ in range(2)]
    assert [record.message.partition(" ")[2] for record in caplog.records] == said * bool(lacking)


def test_layers_keep_their_numbers():
    attention = attention_of(3, 4, layers=2, heads=2)
    attention = replace(attention, layers=[1, 4])
    assert [label.get_text() for label in overview(attention).axes[0].get_yticklabels()] == ["1", "4"]
    (single,) = [axes for axes in panels(attention, 4, 0).axes if axes.images and len(axes.get_xticklabels()) == 4]
    assert torch.equal(torch.tensor(single.images[0].get_array().data), attention.weights[1, 0])
    assert [axes.get_title() for axes in panels(attention, None, 0).axes[:2]] == ["layer 1", "layer 4"]


@pytest.mark.parametrize(
    ("layer", "head", "complaint"), [(12, None, "layer 12"), (0, -1, "head -1"), (None, 12, "head 12")]
)
def test_no_such_layer_or_head(layer, head, complaint, tmp_path):
    with pytest.raises(ValueError, match=f"{complaint}: the cross attention of a model has 0 to 11"):
        plot_attention(attention_of(3, 3), tmp_path / "map.png", layer, head)
    with pytest.raises(ValueError, match=r"'.*map\.jpeg' should end in one of \.png, \.svg, \.pdf"):
        plot_attention(attention_of(3, 3), tmp_path / "map.jpeg")
    assert not list(tmp_path.iterdir())
