"""Which run a checkpoint belongs to: the data of the run count, and all options but those that say `resume=False`."""

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.options import TrainingOptions, about

logger = logging.getLogger(__name__)

#: Facts that a resumed run may change, and what then differs from a run without interruption.
CHANGES = {
    "num_processes": "the batches are the same, but each process draws random numbers of its own, as for dropout",
    "global_batch_size": "examples follow in the same order, but a step takes more of them, or fewer",
}


def identity(facts: Mapping[str, Any], args: TrainingOptions) -> dict[str, Any]:
    """What a resumed run must have in common with the run that it continues, in the types that JSON has."""
    settings = {each.name: getattr(args, each.name) for each in fields(args) if about(each, "resume", True)}
    # Facts, such as the number of steps, follow from the options. A fact replaces the option of the same name. Facts
    # stand first, so that errors name them first.
    return json.loads(json.dumps({**facts, **settings, **facts}))


def check_identity(state: TrainState, identity: Mapping[str, Any], may_differ: Collection[str] = ()) -> None:
    """Refuse to continue with the checkpoint of another run; warn of facts that differ and may."""
    recorded, metric = state.run, identity.get("metric_for_best_model")
    if metric and "metric_for_best_model" not in recorded and state.best_step is not None:
        figures = [entry.get(f"eval_{metric}") for entry in state.log_history if entry["step"] == state.best_step]
        if state.best_metric not in figures:
            raise ValueError(
                f"resume_from_checkpoint: the checkpoint, of version 0.1, did not choose its best model by {metric!r}:"
                " give the metric_for_best_model of its run"
            )
    # Version 0.1 recorded few options. What is not recorded is not compared. Version 0.2 recorded the only column of
    # labels by its name, and not in a list.
    differing = [name for name, value in identity.items() if recorded.get(name, value) not in (value, _only(value))]
    for name in {"num_processes", *may_differ}.intersection(differing):
        differing.remove(name)
        logger.warning(f"Continuing with {name} {identity[name]}, which was {recorded[name]}: {CHANGES[name]}")
    if differing:
        changes = ", ".join(f"{name} was {recorded[name]} and is {identity[name]}" for name in differing)
        raise ValueError(f"resume_from_checkpoint: the checkpoint belongs to another run: {changes}")


def _only(value: Any) -> Any:
    """The only item of a list; any other value as it is."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
