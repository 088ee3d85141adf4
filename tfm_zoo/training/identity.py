"""Which run a checkpoint belongs to: all options and data of the run count, except those left out here by name."""

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from tfm_zoo.training.checkpoints import TrainState

logger = logging.getLogger(__name__)

#: Options that a resumed run may change, and why it may.
LEFT_OUT = {
    reason: names.split()
    for reason, names in {
        "These say where things are. The things do count: the texts and the tokenizer by digests, weights as saved.": (
            "output_dir model_name_or_path tokenizer_name dataset_name train_file validation_file test_file"
        ),
        "These divide the work. What follows from them does count: the global batch size, the number of steps.": (
            "per_device_train_batch_size per_device_train_batch_tokens per_device_eval_batch_size"
            " gradient_accumulation_steps gradient_checkpointing dataloader_num_workers preprocessing_num_workers"
            " num_train_epochs max_train_steps sync_each_batch ddp_timeout"
        ),
        "These say how often a run is evaluated and saved, and when it ends; no step and no figure depends on them.": (
            "eval_steps early_stopping_patience checkpointing_steps save_total_limit resume_from_checkpoint"
            " overwrite_output_dir"
        ),
        "These say what is shown, and to whom.": (
            "sample_prompt sample_length num_samples top_p temperature with_tracking report_to push_to_hub hub_model_id"
            " hub_token hub_private_repo hub_revision trust_remote_code"
        ),
    }.items()
}
#: Facts that a resumed run may change, and what then differs from a run without interruption.
CHANGES = {
    "num_processes": "the batches are the same, but each process draws random numbers of its own, as for dropout",
    "global_batch_size": "examples follow in the same order, but a step takes more of them, or fewer",
}


def identity(facts: Mapping[str, Any], *options: Any) -> dict[str, Any]:
    """What a resumed run must have in common with the run that it continues, in the types that JSON has."""
    left_out = {name for names in LEFT_OUT.values() for name in names}
    settings = {name: value for part in options for name, value in asdict(part).items() if name not in left_out}
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
    # Version 0.1 recorded few options. What is not recorded is not compared.
    differing = [name for name, value in identity.items() if name in recorded and recorded[name] != value]
    for name in {"num_processes", *may_differ}.intersection(differing):
        differing.remove(name)
        logger.warning(f"Continuing with {name} {identity[name]}, which was {recorded[name]}: {CHANGES[name]}")
    if differing:
        changes = ", ".join(f"{name} was {recorded[name]} and is {identity[name]}" for name in differing)
        raise ValueError(f"resume_from_checkpoint: the checkpoint belongs to another run: {changes}")
