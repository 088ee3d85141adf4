"""Learning rates, step by step."""

from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from transformers import get_scheduler

from ..training.arguments import SCHEDULES
from ..training.optimization import noam_schedule
from .figures import LINES, check_suffix, save

#: as in the recipes: what the optimiser has; of "noam" a factor, which is 1 in the paper
DEFAULT_RATES = {"noam": 1.0}
DEFAULT_RATE = 5e-5


def schedule_rates(
    name: str, steps: int, warmup_steps: int = 0, learning_rate: float | None = None, hidden_size: int = 512
) -> list[float]:
    """The learning rate of each of so many optimiser steps.

    Args:
        name: a schedule of transformers that needs to know no more than this, or "noam" (Vaswani et al. 2017).
        warmup_steps: how many of the steps the rate rises in.
        learning_rate: the highest. `None`: 5e-5. Of "noam" it is a factor. `None`: 1.
        hidden_size: width of the model, by which "noam" is scaled, and no other.

    Raises:
        ValueError: for other names, and for numbers of steps that are none.
    """
    if name not in SCHEDULES:
        raise ValueError(f"{name!r} is no schedule; those there are: {', '.join(SCHEDULES)}.")
    for what, value, least in (("steps", steps, 1), ("warmup_steps", warmup_steps, 0), ("hidden_size", hidden_size, 1)):
        if value < least:
            raise ValueError(f"{what} {value} should be at least {least}.")
    if learning_rate is None:
        learning_rate = DEFAULT_RATES.get(name, DEFAULT_RATE)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=learning_rate)
    scheduler = (
        noam_schedule(optimizer, hidden_size, warmup_steps)
        if name == "noam"
        else get_scheduler(name, optimizer, warmup_steps, steps)
    )
    rates = []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return rates


def plot_schedules(
    names: Sequence[str],
    path: str | Path,
    steps: int = 10_000,
    warmup_steps: int = 1_000,
    learning_rate: float | None = None,
    hidden_size: int = 512,
) -> None:
    """Draw [`schedule_rates`] of one or more schedules; "noam", whose height is another, in a panel of its own.

    Raises:
        ValueError: as [`schedule_rates`], for no names, and for a suffix that is no picture's.
    """
    check_suffix(path)
    if not names:
        raise ValueError("No schedule is named, such as linear, cosine or noam.")
    rates = {name: schedule_rates(name, steps, warmup_steps, learning_rate, hidden_size) for name in names}
    groups = [group for group in ([n for n in rates if n != "noam"], [n for n in rates if n == "noam"]) if group]
    figure = Figure(figsize=(9.5, 1 + 3 * len(groups)), layout="constrained")
    panels = figure.subplots(len(groups), sharex=True, squeeze=False)[:, 0]
    styles = iter(zip(LINES * 2, ["-"] * len(LINES) + ["--"] * len(LINES), strict=True))
    for panel, group in zip(panels, groups, strict=True):
        for name in group:
            colour, style = next(styles)
            title = f"noam, width {hidden_size}" if name == "noam" else name
            panel.plot(range(1, steps + 1), rates[name], style, color=colour, label=title)
        if 0 < warmup_steps < steps:
            panel.axvline(warmup_steps, color="#888888", lw=0.8, ls=":", label="end of the warm-up")
        panel.set_ylim(bottom=0)
        panel.set_xlim(0, steps)
        panel.set_ylabel("learning rate")
        panel.ticklabel_format(axis="y", style="sci", scilimits=(-2, 2))
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    panels[-1].set_xlabel("optimiser step")
    figure.suptitle(f"Learning rate by the step, of {steps:,}", fontsize=12)
    save(figure, path)
