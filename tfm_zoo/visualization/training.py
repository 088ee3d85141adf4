"""How a model was trained: losses and metrics by the step."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

_TRAIN, _VALIDATION = "#7a8aa0", "#c4473a"


def plot_training(log_history: list[dict[str, Any]], path: str | Path, *metrics: str) -> None:
    """Draw losses, and validation metrics, against the optimiser step.

    Args:
        log_history: entries with "step" and "loss" (training), or "step", "eval_loss" and "eval_<metric>", as in
            the `log_history` of transformers' Trainer and of the recipes.
        path: the image file to write.
        metrics: names such as "accuracy", each for a panel below that of the losses.
    """
    figure = Figure(figsize=(7, 3.2 + 2.4 * len(metrics)), layout="constrained")
    panels = figure.subplots(1 + len(metrics), sharex=True, squeeze=False)[:, 0]
    _plot(panels[0], log_history, "loss", color=_TRAIN, label="training")
    _plot(panels[0], log_history, "eval_loss", color=_VALIDATION, marker="o", label="validation")
    panels[0].set_ylabel("loss")
    panels[0].set_ylim(bottom=0)
    panels[0].legend(frameon=False)
    for panel, metric in zip(panels[1:], metrics, strict=True):
        _plot(panel, log_history, f"eval_{metric}", color=_VALIDATION, marker="o")
        panel.set_ylabel(f"validation {metric}")
    panels[-1].set_xlabel("optimiser step")
    for panel in panels:
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _plot(panel: Any, log_history: list[dict[str, Any]], key: str, **style: Any) -> None:
    entries = [entry for entry in log_history if key in entry]
    panel.plot([entry["step"] for entry in entries], [entry[key] for entry in entries], **style)
