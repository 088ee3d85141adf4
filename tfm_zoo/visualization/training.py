"""How a model was trained: its losses and metrics by the step."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from .figures import DPI, plain


def plot_training(log_history: list[dict[str, Any]], path: str | Path, *metrics: str) -> None:
    """Draw losses and validation metrics against the optimiser step.

    Args:
        log_history: entries with "step" and "loss" (training), or with "step", "eval_loss" and "eval_<metric>", as in
            the `log_history` of transformers' Trainer and of the recipes.
        path: the image file to write.
        metrics: names such as "accuracy". Each has a panel below that of the losses.
    """
    figure = Figure(figsize=(7, 3.2 + 2.4 * len(metrics)), layout="constrained")
    panels = figure.subplots(1 + len(metrics), sharex=True, squeeze=False)[:, 0]
    validation = {"color": "#c4473a", "marker": "o"}
    panels[0].plot(*curve(log_history, "loss"), label="training", color="#7a8aa0")
    panels[0].plot(*curve(log_history, "eval_loss"), label="validation", **validation)
    panels[0].set_ylabel("loss")
    panels[0].set_ylim(bottom=0)
    panels[0].legend(frameon=False)
    for panel, metric in zip(panels[1:], metrics, strict=True):
        panel.plot(*curve(log_history, f"eval_{metric}"), **validation)
        panel.set_ylabel(f"validation {metric}")
    panels[-1].set_xlabel("optimiser step")
    for panel in panels:
        plain(panel)
    figure.savefig(path, dpi=DPI)


def curve(log_history: list[dict[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """The steps of the entries that have a value under `key`, and these values."""
    entries = [entry for entry in log_history if key in entry]
    return [entry["step"] for entry in entries], [entry[key] for entry in entries]
