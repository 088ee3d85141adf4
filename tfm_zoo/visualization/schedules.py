"""Learning rates, step by step."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch
from matplotlib.figure import Figure

from ..utils.schedules import SCHEDULES, create_schedule
from .figures import LINES, check_suffix, plain, save

#: the recipes' default; for "noam" the rate is a factor, and the paper's is 1
DEFAULT_RATE, NOAM_RATE = 5e-5, 1.0
MOST = 10_000_000  # steps


def schedule_rates(
    name: str, steps: int, warmup_steps: int = 0, learning_rate: float | None = None, hidden_size: int = 512
) -> list[float]:
    """The learning rate of each optimiser step.

    Args:
        name: a schedule of transformers that needs no other settings than these, or "noam" (Vaswani et al. 2017).
        steps: the number of optimiser steps.
        warmup_steps: the number of steps at the beginning in which the rate rises.
        learning_rate: the highest rate; `None`: 5e-5. For "noam" it is a factor; `None`: 1.
        hidden_size: the width of the model; only "noam" reads it.

    Raises:
        ValueError: if there is no schedule of this name, or if a number is too small.
    """
    if name not in SCHEDULES:
        raise ValueError(f"unknown schedule {name!r}; choose from {', '.join(SCHEDULES)}.")
    for what, value, least in (("steps", steps, 1), ("warmup_steps", warmup_steps, 0), ("hidden_size", hidden_size, 1)):
        if value < least:
            raise ValueError(f"{what} {value} should be at least {least}.")
    if steps > MOST:
        raise ValueError(f"steps {steps} should be at most {MOST}: each is computed.")
    if learning_rate is None:
        learning_rate = NOAM_RATE if name == "noam" else DEFAULT_RATE
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=learning_rate)
    scheduler = create_schedule(name, optimizer, warmup_steps, steps, hidden_size)
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
    """Draw the [`schedule_rates`] of some schedules. "noam" has another scale, and so a panel of its own."""
    check_suffix(path)
    if not names:
        raise ValueError("No schedule is named, such as linear, cosine or noam.")
    rates = {name: schedule_rates(name, steps, warmup_steps, learning_rate, hidden_size) for name in names}
    groups = [[name for name in rates if (name == "noam") == is_noam] for is_noam in (False, True)]
    groups = [group for group in groups if group]
    figure = Figure(figsize=(9.5, 1 + 3 * len(groups)), layout="constrained")
    panels = figure.subplots(len(groups), sharex=True, squeeze=False)[:, 0]
    styles = product(("-", "--"), LINES)
    for panel, group in zip(panels, groups, strict=True):
        for name in group:
            style, colour = next(styles)
            title = f"noam, width {hidden_size}" if name == "noam" else name
            panel.plot(range(1, steps + 1), rates[name], style, color=colour, label=title)
        if 0 < warmup_steps < steps:
            panel.axvline(warmup_steps, color="#888888", lw=0.8, ls=":", label="end of the warm-up")
        panel.set_ylim(bottom=0)
        panel.set_xlim(0, steps)
        panel.set_ylabel("learning rate")
        panel.ticklabel_format(axis="y", style="sci", scilimits=(-2, 2))
        plain(panel)
        panel.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    panels[-1].set_xlabel("optimiser step")
    figure.suptitle(f"Learning rate over {steps:,} optimiser steps", fontsize=12)
    save(figure, path)
