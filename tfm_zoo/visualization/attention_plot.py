"""Attention maps as a picture: a whole model at a glance, the heads of a layer, a head in all layers, or one map."""

from math import ceil
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from .attention import AttentionMap
from .figures import AMOUNTS, check_suffix, save
from .tokens import shortened

#: inches: a token's row is high enough for a label, and low enough for a few tokens not to fill a screen
LOWEST, HIGHEST = 0.11, 0.3
LOW = 2.0  # inches: maps of this height have their scale above them
NARROW = 4.0  # inches: a scale above maps of this width has room for few numbers
LARGEST = 7.0  # inches: the side of a map, unless its rows would then be too low for labels
COLUMNS = 4


def plot_attention(
    attention: AttentionMap, path: str | Path, layer: int | None = None, head: int | None = None
) -> None:
    """Draw attention maps, all on the same scale: a row for each query, a column for each key.

    Args:
        path: the image file to write.
        layer: the layer, counted from 0. `None`: all.
        head: the head, counted from 0. `None`: all. Without a layer and a head, the maps are small and have no tokens.
    """
    check_suffix(path)
    attention.check(layer, head)
    save(overview(attention) if layer is head is None else panels(attention, layer, head), path)


def overview(attention: AttentionMap) -> Figure:
    """All maps side by side: layers from top to bottom, heads from left to right."""
    layers, heads, queries, keys = attention.weights.shape
    gap = max(1, round(max(queries, keys) / 16))
    height, width = queries + gap, keys + gap
    mosaic = torch.full((layers * height - gap, heads * width - gap), torch.nan)
    for layer in range(layers):
        for head in range(heads):
            top, left = layer * height, head * width
            mosaic[top : top + queries, left : left + keys] = attention.weights[layer, head]
    scale = min(0.95, 12 / max(heads, layers)) / max(queries, keys)  # inches of a token
    size = (max(6.0, heads * width * scale + 2.2), max(3.2, layers * height * scale + 1.6))
    figure = Figure(figsize=size, layout="compressed")
    panel = figure.subplots()
    image = draw(panel, mosaic)
    panel.set_xticks([head * width + keys / 2 - 0.5 for head in range(heads)], range(heads), fontsize=9)
    panel.set_yticks([layer * height + queries / 2 - 0.5 for layer in range(layers)], attention.layers, fontsize=9)
    panel.set_facecolor("#d5d5d5")
    title, query, key = attention.names
    panel.set_xlabel(f"head (in each map, from left to right: {key})")
    panel.set_ylabel(f"layer (from top to bottom: {query})")
    panel.set_title(f"{attention.model}\n{title}", fontsize=11, loc="left", parse_math=False)
    add_scale(figure, image, [panel])
    return figure


def panels(attention: AttentionMap, layer: int | None, head: int | None) -> Figure:
    """The heads of one layer, one head in all layers, or a single map, with their tokens."""
    layers = attention.layers if layer is None else [layer]
    heads = range(attention.weights.shape[1]) if head is None else [head]
    shown = [(layer, head) for layer in layers for head in heads]
    queries, keys = attention.weights.shape[2:]
    row = row_height(max(queries, keys), is_alone=len(shown) == 1)
    rows = ceil(len(shown) / COLUMNS)
    columns = ceil(len(shown) / rows)
    size = (max(5.5, columns * (keys * row + 1.25) + 1.3), max(3.2, rows * (queries * row + 1.3) + 1.2))
    figure = Figure(figsize=size, layout="compressed")
    axes = [figure.add_subplot(rows, columns, place) for place in range(1, len(shown) + 1)]
    for axis, (layer_number, head_number) in zip(axes, shown, strict=True):
        image = draw(axis, attention.weights[attention.layers.index(layer_number), head_number])
        label(axis, attention, row)
        if len(shown) > 1:
            axis.set_title(f"head {head_number}" if layer is not None else f"layer {layer_number}", fontsize=11)
    which = ", ".join(
        f"all {name}s" if number is None else f"{name} {number}" for name, number in (("layer", layer), ("head", head))
    )
    title, query, key = attention.names
    figure.suptitle(f"{attention.model}: {title}\n{which}", fontsize=12, parse_math=False)
    figure.supxlabel(f"key: {key}", fontsize=11)
    figure.supylabel(f"query: {query}", fontsize=11)
    add_scale(figure, image, axes, is_low=rows * queries * row < LOW, is_narrow=columns * keys * row < NARROW)
    return figure


def row_height(tokens: int, is_alone: bool) -> float:
    """Inches of a token's row or column. A map that is alone may be larger."""
    lowest = min(LOWEST, LARGEST / tokens)
    return min(HIGHEST, max(lowest, (LARGEST if is_alone else 3.0) / tokens))


def draw(axis: Axes, weights: torch.Tensor) -> AxesImage:
    # Most weights are small. On a square-root scale a reader can tell them apart.
    return axis.imshow(weights.numpy(), cmap=AMOUNTS, norm=PowerNorm(0.5, vmin=0, vmax=1), aspect="equal")


def label(axis: Axes, attention: AttentionMap, row: float) -> None:
    """Write the tokens along both axes; if there are very many, as many as can be read."""
    size = min(10.0, max(row, LOWEST) * 72 * 0.82)
    step = max(1, ceil(LOWEST / row))
    # All letters stand on one line, whether or not they reach below it; and "$" is a token like any other.
    style = {"fontsize": size, "ha": "right", "va": "center_baseline", "rotation_mode": "anchor", "parse_math": False}
    axis.set_xticks(range(0, len(attention.keys), step), shortened(attention.keys[::step]), rotation=90, **style)
    axis.set_yticks(range(0, len(attention.queries), step), shortened(attention.queries[::step]), **style)
    axis.tick_params(length=1.5, pad=1.5)


def add_scale(
    figure: Figure, image: AxesImage, axes: list[Axes], is_low: bool = False, is_narrow: bool = False
) -> None:
    """Explain the colours beside the maps or, if there is too little room for the numbers, above them."""
    ticks = [0, 0.01, 0.1, 0.2, 0.4, 0.7, 1] if is_low else [0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1]
    ticks = [0, 0.1, 0.4, 1] if is_low and is_narrow else ticks
    place = {"location": "top", "shrink": 0.6, "aspect": 40} if is_low else {"shrink": 0.7, "aspect": 25}
    scale = figure.colorbar(image, ax=axes, fraction=0.04, ticks=ticks, **place)
    scale.set_ticklabels(list(map(str, ticks)))
    scale.set_label("attention weight (on a square-root scale)")
