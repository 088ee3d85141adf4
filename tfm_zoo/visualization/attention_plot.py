"""Attention maps as a picture: all of a model at a glance, the heads of a layer, or one."""

from math import ceil
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from .attention_maps import AttentionMap
from .figures import AMOUNTS, check_suffix, save
from .tokens import shortened

KINDS = {
    "encoder": "self-attention of the encoder",
    "decoder": "self-attention of the decoder",
    "cross": "cross-attention of the decoder",
}
QUERY = {"encoder": "token that attends", "decoder": "token that attends", "cross": "target's token, that attends"}
KEY = {"encoder": "token attended to", "decoder": "token attended to", "cross": "source's token, attended to"}
#: inches of a token's row: so low that its label can be read, and so high that few tokens do not fill a screen
ROW = (0.11, 0.3)
COLUMNS, LARGEST = 4, 7.0


def plot_attention(
    attention: AttentionMap, path: str | Path, layer: int | None = None, head: int | None = None
) -> None:
    """Draw attention maps: every query's row of keys, on one scale for all.

    Args:
        path: the image file to write.
        layer: the layer, counted from 0. `None`: all.
        head: the head, counted from 0. `None`: all. With neither, the maps of a whole model, small and without tokens.

    Raises:
        ValueError: for a layer or a head that is not there, or a suffix that is no picture's.
    """
    check_suffix(path)
    attention.check(layer, head)
    save(overview(attention) if layer is head is None else panels(attention, layer, head), path)


def overview(attention: AttentionMap) -> Figure:
    """All maps side by side: a row a layer, a column a head."""
    layers, heads, queries, keys = attention.weights.shape
    gap = max(1, round(max(queries, keys) / 16))
    tile = (queries + gap, keys + gap)
    mosaic = torch.full((layers * tile[0] - gap, heads * tile[1] - gap), torch.nan)
    for layer in range(layers):
        for head in range(heads):
            top, left = layer * tile[0], head * tile[1]
            mosaic[top : top + queries, left : left + keys] = attention.weights[layer, head]
    size = min(0.95, 12 / max(heads, layers))  # inches of the longer side of a map
    scale = size / max(queries, keys)
    figure = Figure(
        figsize=(max(6.0, heads * tile[1] * scale + 2.2), max(3.2, layers * tile[0] * scale + 1.6)),
        layout="compressed",
    )
    panel = figure.subplots()
    image = draw(panel, mosaic)
    panel.set_xticks([head * tile[1] + keys / 2 - 0.5 for head in range(heads)], range(heads), fontsize=9)
    panel.set_yticks([layer * tile[0] + queries / 2 - 0.5 for layer in range(layers)], attention.layers, fontsize=9)
    panel.set_facecolor("#d5d5d5")
    panel.set_xlabel(f"head (in each map, from left to right: {KEY[attention.kind]})")
    panel.set_ylabel(f"layer (from top to bottom: {QUERY[attention.kind]})")
    panel.set_title(f"{attention.model}\n{KINDS[attention.kind]}", fontsize=11, loc="left", parse_math=False)
    add_scale(figure, image, [panel])
    return figure


def panels(attention: AttentionMap, layer: int | None, head: int | None) -> Figure:
    """The heads of one layer, one head in all layers, or a single map: with their tokens."""
    layers = attention.layers if layer is None else [layer]
    heads = range(attention.weights.shape[1]) if head is None else [head]
    shown = [(layer, head) for layer in layers for head in heads]
    queries, keys = attention.weights.shape[2:]
    row = row_height(max(queries, keys), alone=len(shown) == 1)
    rows = ceil(len(shown) / COLUMNS)
    columns = ceil(len(shown) / rows)
    figure = Figure(
        figsize=(max(5.5, columns * (keys * row + 1.25) + 1.3), max(3.2, rows * (queries * row + 1.3) + 1.2)),
        layout="compressed",
    )
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis in axes[len(shown) :]:
        axis.set_visible(False)
    for axis, (at, of) in zip(axes, shown, strict=False):
        image = draw(axis, attention.weights[attention.layers.index(at), of])
        label(axis, attention, row)
        if len(shown) > 1:
            axis.set_title(f"head {of}" if layer is not None else f"layer {at}", fontsize=11)
    which = ", ".join(
        f"all {name}s" if index is None else f"{name} {index}" for name, index in (("layer", layer), ("head", head))
    )
    figure.suptitle(f"{attention.model}: {KINDS[attention.kind]}\n{which}", fontsize=12, parse_math=False)
    labels = (f"key: {KEY[attention.kind]}", f"query: {QUERY[attention.kind]}")
    figure.supxlabel(labels[0], fontsize=11)
    figure.supylabel(labels[1], fontsize=11)
    add_scale(figure, image, list(axes[: len(shown)]))
    return figure


def row_height(tokens: int, alone: bool) -> float:
    """Inches of a token's row or column, in a map that is not to become too large."""
    least, most = ROW
    wanted = (LARGEST if alone else 3.0) / tokens
    return min(most, max(wanted, min(least, LARGEST / tokens)))


def draw(axis: Axes, weights: torch.Tensor) -> AxesImage:
    # By the square root: most weights are small, and on a plain scale their differences could not be seen.
    return axis.imshow(weights, cmap=AMOUNTS, norm=PowerNorm(0.5, vmin=0, vmax=1), aspect="equal")


def label(axis: Axes, attention: AttentionMap, row: float) -> None:
    """The tokens along both axes; of very many, as many as can be read."""
    size = min(10.0, max(row, ROW[0]) * 72 * 0.82)
    step = max(1, ceil(ROW[0] / row))
    # On one line, whatever of a token stands below or above it; and "$" is a token like any other.
    names = {"fontsize": size, "ha": "right", "va": "center_baseline", "rotation_mode": "anchor", "parse_math": False}
    axis.set_xticks(range(0, len(attention.keys), step), shortened(attention.keys[::step]), rotation=90, **names)
    axis.set_yticks(range(0, len(attention.queries), step), shortened(attention.queries[::step]), **names)
    axis.tick_params(length=1.5, pad=1.5)


def add_scale(figure: Figure, image: AxesImage, axes: list[Axes]) -> None:
    scale = figure.colorbar(
        image, ax=axes, shrink=0.7, aspect=25, fraction=0.04, ticks=[0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1]
    )
    scale.ax.set_yticklabels(["0", "0.01", "0.05", "0.1", "0.2", "0.4", "0.7", "1"])
    scale.set_label("attention weight (on a square-root scale)")
