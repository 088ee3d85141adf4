"""Models that were trained on the same tokens, side by side: their losses and their costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import inf
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from .figures import LINES, check_suffix, plain, save

STYLES = [{"color": colour, "ls": style} for style in ("-", "--", ":") for colour in LINES]
HATCHES = {"-": None, "--": "//", ":": ".."}
ROW, CURVES = 0.24, 4.2  # inches: the height of a bar, and of the panels of losses


@dataclass(frozen=True)
class TrainedModel:
    """How the training of a model went.

    Args:
        training: pairs `(tokens, loss)`: the loss on the training text after so many tokens.
        validation: the same on the validation text.
        costs: amounts by their names; `None` for one that is not known.
        diverged: whether training ended because the loss exploded.
    """

    name: str
    training: Sequence[tuple[int, float]]
    validation: Sequence[tuple[int, float]]
    costs: Mapping[str, float | None]
    diverged: bool = False

    @property
    def final_loss(self) -> float:
        return inf if self.diverged or not self.validation else self.validation[-1][1]

    @property
    def outcome(self) -> str:
        if self.diverged:
            return f"{self.name}: diverged"
        return f"{self.name}: {self.final_loss:.3f}" if self.validation else self.name


def plot_comparison(
    models: Sequence[TrainedModel], path: str | Path, levels: Mapping[str, float] | None = None, title: str = ""
) -> None:
    """Draw losses against tokens, and below them a bar for each cost of each model.

    Args:
        path: the image file to write.
        levels: losses to compare with, by their names; each is a line.

    Raises:
        ValueError: if there are no models, or if the suffix is not that of an image.
    """
    check_suffix(path)
    if not models:
        raise ValueError("0 models to compare: a picture shows 1 or more.")
    save(comparison(models, levels or {}, title), path)


def comparison(models: Sequence[TrainedModel], levels: Mapping[str, float], title: str = "") -> Figure:
    """Training beside validation, costs below them, and on the right the models' names, the lowest loss first."""
    bars = ROW * len(models) + 0.7
    figure = Figure(figsize=(12.5, CURVES + bars + 0.3), layout="constrained")
    figure.get_layout_engine().set(wspace=0.04)
    costs = list(models[0].costs)
    grid = figure.add_gridspec(2, 2 * max(1, len(costs)), height_ratios=[CURVES, bars])
    styles = dict(zip((model.name for model in models), cycle(STYLES), strict=False))
    half = grid.ncols // 2
    training, validation = figure.add_subplot(grid[0, :half]), figure.add_subplot(grid[0, half:])
    best_first = sorted(models, key=lambda model: model.final_loss)
    for model in best_first:
        draw_losses(training, model.training, **styles[model.name])
        draw_losses(validation, model.validation, label=model.outcome, marker=".", **styles[model.name])
    for panel, kind in ((training, "training"), (validation, "validation")):
        finish(panel, f"{kind} loss, nats per token", levels)
        for model in models:
            if model.diverged:
                mark_end(panel, getattr(model, kind), styles[model.name]["color"])
    legend = figure.legend(
        *validation.get_legend_handles_labels(),
        loc="outside right upper",
        frameon=False,
        title="validation loss at the end",
        alignment="left",
        handlelength=2.5,
    )
    for text in legend.texts:
        text.set_parse_math(False)
    for index, cost in enumerate(costs):
        panel = figure.add_subplot(grid[1, 2 * index : 2 * index + 2])
        draw_bars(panel, [model.costs[cost] for model in models], [styles[model.name] for model in models])
        panel.set_title(cost, fontsize=10)
        panel.set_yticks(range(len(models)), [model.name for model in models] if index == 0 else [], parse_math=False)
    figure.suptitle(title, fontsize=12, parse_math=False)
    return figure


def draw_losses(panel: Axes, losses: Sequence[tuple[int, float]], **style: Any) -> None:
    panel.plot([tokens for tokens, _ in losses], [loss for _, loss in losses], lw=1.4, **style)


def mark_end(panel: Axes, losses: Sequence[tuple[int, float]], colour: str) -> None:
    """Draw a cross where a model's losses end, no higher than the upper edge of the panel."""
    if losses:
        tokens, loss = losses[-1]
        panel.plot(tokens, min(loss, panel.get_ylim()[1]), marker="X", ms=9, color=colour, clip_on=False, zorder=3)


def finish(panel: Axes, label: str, levels: Mapping[str, float]) -> None:
    """Draw the levels, and end the axis a little above them: a loss that explodes leaves the panel."""
    for name, level in levels.items():
        panel.axhline(level, color="#888888", lw=0.8, ls=(0, (1, 2)), zorder=0)
        place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "right"}
        panel.annotate(name, (1, level), (-2, 2), fontsize=8, color="#666666", **place)
    if levels:
        low, high = panel.get_ylim()
        panel.set_ylim(low, min(high, 1.08 * max(levels.values())))
    panel.set_xlim(left=0)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.set_xlabel("tokens trained on")
    panel.set_ylabel(label)
    plain(panel)


def draw_bars(panel: Axes, amounts: Sequence[float | None], styles: Sequence[Mapping[str, Any]]) -> None:
    """Draw a bar for each amount, from top to bottom, and nothing for an unknown amount."""
    for row, (amount, style) in enumerate(zip(amounts, styles, strict=True)):
        hatch = HATCHES[style["ls"]]
        panel.barh(row, amount or 0, height=0.72, color=style["color"], hatch=hatch, edgecolor="white", lw=0)
        label = "not known" if amount is None else EngFormatter(places=1, sep="")(amount)
        panel.annotate(label, (amount or 0, row), (3, 0), textcoords="offset points", va="center", fontsize=8)
    panel.set_ylim(len(amounts) - 0.4, -0.6)
    panel.set_xlim(0, 1.2 * max([amount or 0 for amount in amounts], default=1) or 1)
    panel.set_xticks([])
    panel.tick_params(axis="y", length=0)
    panel.spines[["top", "right", "bottom"]].set_visible(False)
