"""How models were trained: losses and metrics of one by the step, losses of several side by side."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .figures import DPI, LINES, check_suffix, plain, save


def plot_training(
    log_history: list[dict[str, Any]], path: str | Path, *metrics: str, best_step: int | None = None
) -> None:
    """Draw losses and validation metrics against the optimiser step.

    Args:
        log_history: entries with "step" and "loss" (training), or with "step", "eval_loss" and "eval_<metric>", as in
            the `log_history` of transformers' Trainer and of the recipes.
        path: the image file to write.
        metrics: names such as "accuracy". Each has a panel below that of the losses.
        best_step: the step whose model was kept, which a line marks.
    """
    figure = Figure(figsize=(7, 3.2 + 2.4 * len(metrics)), layout="constrained")
    panels = figure.subplots(1 + len(metrics), sharex=True, squeeze=False)[:, 0]
    validation = {"color": "#c4473a", "marker": "o"}
    steps, losses = curve(log_history, "loss")
    name = "training (mean since the previous point)" if steps else None
    panels[0].plot(steps, losses, label=name, color="#7a8aa0", marker="o" if len(steps) == 1 else None)
    panels[0].plot(*curve(log_history, "eval_loss"), label="validation", **validation)
    panels[0].set_ylabel("loss")
    for panel, metric in zip(panels[1:], metrics, strict=True):
        steps, values = curve(log_history, f"eval_{metric}")
        panel.plot(steps, values, clip_on=False, **validation)
        panel.set_ylabel(f"validation {metric}")
        if values and min(values) >= 0 and max(values) <= 1:  # a share: the axis ends where it can
            panel.set_ylim(top=min(panel.get_ylim()[1], 1))
    if best_step is not None:
        for panel in panels:
            panel.axvline(best_step, color="#888888", lw=0.8, ls=":", zorder=0, label=f"kept: step {best_step}")
    panels[0].legend(frameon=False)
    panels[-1].set_xlabel("optimiser step")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    figure.suptitle(f"{Path(path).resolve().parent.name}: {', '.join(('loss', *metrics))}", parse_math=False)
    for panel in panels:
        plain(panel)
        panel.ticklabel_format(useOffset=False)  # of a flat curve, too, the ticks are the values
    figure.savefig(path, dpi=DPI)


def plot_runs(histories: Mapping[str, list[dict[str, Any]]], path: str | Path) -> None:
    """Draw the validation losses of several runs, by the optimiser step and by the time that training took.

    Args:
        histories: the name of a run -> its `log_history`, as [`plot_training`] takes it. The time is drawn if all
            entries with "eval_loss" have "train_runtime", in seconds, as those of the recipes do.
        path: the image file to write.

    Raises:
        ValueError: if there is no run, too many, or one without a validation loss; or if the suffix is not that of an
            image.
    """
    check_suffix(path)
    if not 0 < len(histories) <= len(LINES):
        raise ValueError(f"{len(histories)} runs to compare; a picture has room for 1 to {len(LINES)}.")
    curves = {"optimiser step": {name: curve(history, "eval_loss") for name, history in histories.items()}}
    if without := [name for name, (steps, _) in curves["optimiser step"].items() if not steps]:
        raise ValueError(f"{', '.join(without)}: no validation loss in the history.")
    times = {name: curve(history, "eval_loss", by="train_runtime") for name, history in histories.items()}
    if all(None not in seconds for seconds, _ in times.values()):
        unit, length = ("seconds", 1) if max(max(seconds) for seconds, _ in times.values()) < 60 else ("minutes", 60)
        scaled = {name: ([each / length for each in seconds], losses) for name, (seconds, losses) in times.items()}
        curves[f"{unit} of training"] = scaled
    figure = Figure(figsize=(11 if len(curves) > 1 else 6.5, 4), layout="constrained")
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for panel, (label, runs) in zip(panels, curves.items(), strict=True):
        for colour, (name, (amounts, losses)) in zip(LINES, runs.items(), strict=False):
            panel.plot(amounts, losses, color=colour, marker=".", label=f"{name}: {min(losses):.3f}")
        panel.set_xlabel(label)
        panel.set_xlim(left=0)
        panel.xaxis.set_major_locator(MaxNLocator(integer=label == "optimiser step"))
        panel.ticklabel_format(useOffset=False)
        plain(panel)
    panels[0].set_ylabel("validation loss")
    panels[-1].legend(frameon=False, title="lowest", alignment="left")
    save(figure, path)


def curve(log_history: list[dict[str, Any]], key: str, by: str = "step") -> tuple[list[Any], list[float]]:
    """The entries that have `key`: their values of `by` (`None` where one is missing), and their values of `key`."""
    entries = [entry for entry in log_history if key in entry]
    return [entry.get(by) for entry in entries], [entry[key] for entry in entries]
