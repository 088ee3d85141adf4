"""Pictures are made in full, and large enough that their tokens can be read."""

import warnings
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.image import imread

from tfm_zoo.visualization import AttentionMap, Rollout, plot_attention, plot_rollout, plot_training
from tfm_zoo.visualization import rollout as rollout_module
from tfm_zoo.visualization.attention_plot import overview, panels
from tfm_zoo.visualization.fonts import fonts_for

TOKENS = [f"token{index}" for index in range(40)]


def attention_of(queries: int = 40, keys: int = 40, layers: int = 12, heads: int = 12) -> AttentionMap:
    weights = torch.randn(layers, heads, queries, keys, generator=torch.Generator().manual_seed(0)).softmax(-1)
    return AttentionMap("cross", weights, TOKENS[:queries], TOKENS[:keys], "a model")


def test_heads_of_a_layer_can_be_read():
    """40 tokens, 12 heads: every token is named, in letters that are large enough, and none runs into the next."""
    figure = panels(attention_of(), 3, None)
    figure.draw_without_rendering()
    panes = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in panes] == [f"head {head}" for head in range(12)]
    touching = 0.25 * figure.dpi / 72  # a quarter of a point
    for axes in panes:
        for axis, low, high in ((axes.xaxis, "x0", "x1"), (axes.yaxis, "y0", "y1")):
            labels = axis.get_ticklabels()
            assert [label.get_text() for label in labels] == TOKENS
            assert min(label.get_fontsize() for label in labels) >= 6
            boxes = sorted((label.get_window_extent() for label in labels), key=attrgetter(low))
            assert all(getattr(one, high) <= getattr(other, low) + touching for one, other in pairwise(boxes))


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


def test_titles_say_what_it_is():
    figure = panels(attention_of(3, 4), 3, 5)
    assert figure.get_suptitle() == "a model: cross-attention of the decoder\nlayer 3, head 5"
    assert figure.get_supxlabel() == "key: source's token, attended to"
    assert figure.get_supylabel() == "query: target's token, that attends"


def test_the_scale_of_one_query_can_be_read():
    figure = panels(attention_of(1, 18, layers=2, heads=8), 1, None)
    figure.draw_without_rendering()
    scale = figure.axes[-1]
    boxes = [label.get_window_extent() for label in scale.get_xticklabels()]
    assert len(boxes) > 4 and all(one.x1 < other.x0 for one, other in pairwise(boxes))


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
    [((40, 40), None, None, (1500, 1500)), ((40, 40), 0, 0, (900, 1000)), ((200, 200), 0, 0, (900, 1000))],
)
def test_sizes(size, layer, head, least, tmp_path):
    attention = attention_of(40, 40) if size == (40, 40) else long_map(*size)
    plot_attention(attention, tmp_path / "new" / "map.png", layer, head)
    height, width, _ = imread(tmp_path / "new" / "map.png").shape
    assert least[0] <= height <= 4000 and least[1] <= width <= 4000


def long_map(queries: int, keys: int) -> AttentionMap:
    weights = torch.rand(1, 1, queries, keys).softmax(-1)
    return AttentionMap("decoder", weights, ["token"] * queries, ["token"] * keys, "a model")


def test_of_many_tokens_some_are_named():
    (axes, *_) = panels(long_map(200, 200), 0, 0).axes
    assert 20 <= len(axes.get_yticklabels()) <= 80


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


@pytest.mark.parametrize(("aside", "top"), [({0}, 0.46), (set(), 0.575)])
def test_only_bars_of_tokens_aside_are_cut_off(aside, top, tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(rollout_module, "save", lambda figure, path: figures.append(figure))
    shares = torch.tensor([0.5, 0.04, 0.4, 0.03, 0.03])
    plot_rollout(Rollout(list("abcde"), shares, "a state", "good", "m", frozenset(aside)), tmp_path / "rollout.png")
    (panel,) = figures[0].axes
    assert panel.get_ylim()[1] == pytest.approx(top)
    assert [text.get_text() for text in panel.texts] == [" 50% (cut off)"] * len(aside)


@pytest.mark.parametrize(
    "shares", [[0.9, 0.02, 0.03, 0.02, 0.03], [0.6, 0.4, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]]
)
def test_rollouts(shares, tmp_path):
    plot_rollout(
        Rollout(list("abcde"), torch.tensor(shares) / 1, "a state", "good", "a model"), tmp_path / "rollout.png"
    )
    height, width, _ = imread(tmp_path / "rollout.png").shape
    assert 400 <= height <= 900 and 700 <= width <= 1500


@pytest.mark.parametrize(
    ("layer", "head", "complaint"), [(12, None, "layer 12"), (0, -1, "head -1"), (None, 12, "head 12")]
)
def test_no_such_layer_or_head(layer, head, complaint, tmp_path):
    with pytest.raises(ValueError, match=f"{complaint}: the cross attention of a model has 0 to 11"):
        plot_attention(attention_of(3, 3), tmp_path / "map.png", layer, head)
    with pytest.raises(ValueError, match=r"'.*map\.jpeg' should end in one of \.png, \.svg, \.pdf"):
        plot_attention(attention_of(3, 3), tmp_path / "map.jpeg")
    assert not list(tmp_path.iterdir())
