"""Checkpoints from which a killed run continues exactly where it was, and saving that leaves nothing half-written.

A checkpoint is written under a temporary name, and renamed when it is complete. It records the sizes and digests of its
files. So neither a killed run nor a broken copy leaves a folder that passes for a checkpoint.
"""

import json
import logging
import math
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from itertools import chain
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from accelerate import Accelerator

from tfm_zoo.proof import manifest
from tfm_zoo.proof.contents import digests_of_files
from tfm_zoo.training.options import TrainingOptions, option_metadata
from tfm_zoo.utils.locking import atomic_file
from tfm_zoo.utils.quiet import silenced_checkpoint

logger = logging.getLogger(__name__)

STATE_FILE = "trainer_state.json"
RESULTS_FILE = "all_results.json"  # a run that has it is finished
MANIFEST_FILE = "files.json"
STAGING = ".unfinished"
#: files that describe the others: deleted before the others are replaced, and written last
WRITE_LAST = (STATE_FILE, manifest.FILE)
#: facts that a resumed run may change, and what then differs from a run without interruption
RESUME_WARNINGS = {
    "num_processes": "the batches are the same, but each process draws random numbers of its own, as for dropout",
    "total_steps": "the learning rate follows the schedule of a run of that length",
    "global_batch_size": "examples follow in the same order, but a step takes more of them, or fewer",
}


# transformers' own `TrainerState` records neither the step within an epoch nor the run that it belongs to.
@dataclass
class TrainState:
    """How far a run has come, beyond what Accelerate saves."""

    step: int = 0  # optimiser steps done
    epoch: int = 0  # whole epochs done
    step_in_epoch: int = 0
    loss_sum: float = 0.0  # sum of the losses of all steps up to the last log entry
    window_loss: float = 0.0  # sum of the losses since the last log entry
    train_seconds: float = 0.0
    train_examples: int = 0
    best_metric: float | None = None
    best_loss: float | None = None  # of the evaluation with the best metric
    best_step: int | None = None
    evaluations_without_gain: int = 0
    log_history: list[dict[str, Any]] = field(default_factory=list)  # in the form of transformers' `TrainerState`
    run: dict[str, Any] = field(default_factory=dict)  # its identity, which a resumed run must share

    def is_best(self, metric: float, greater_is_better: bool, loss: float | None = None) -> bool:
        """Record the metric and the loss of an evaluation; returns whether it is the best so far. Of equal metrics the
        one with the lower loss is the better; that is not a gain for early stopping."""
        sign, best = 1 if greater_is_better else -1, self.best_metric
        is_gain = best is None or sign * metric > sign * best or (math.isnan(best) and not math.isnan(metric))
        self.evaluations_without_gain = 0 if is_gain else self.evaluations_without_gain + 1
        has_lower_loss = metric == best and None not in (loss, self.best_loss) and loss < self.best_loss
        if is_best := is_gain or has_lower_loss:
            self.best_metric, self.best_loss, self.best_step = metric, loss, self.step
        return is_best

    def write(self, folder: Path) -> None:
        with atomic_file(folder / STATE_FILE) as file:
            file.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "TrainState":
        return cls(**json.loads((folder / STATE_FILE).read_text(encoding="utf-8")))


def identity(facts: Mapping[str, Any], args: TrainingOptions) -> dict[str, Any]:
    """What a resumed run must have in common with the run that it continues, in the types that JSON has: the facts of
    its data, and all options but those that say `resume=False`."""
    settings = {each.name: getattr(args, each.name) for each in fields(args) if option_metadata(each, "resume", True)}
    # Facts, such as the number of steps, follow from the options. A fact replaces the option of the same name. Facts
    # stand first, so that errors name them first.
    return json.loads(json.dumps({**facts, **settings, **facts}))


def as_resolved(accelerator: Accelerator, args: TrainingOptions) -> dict[str, Any]:
    """The facts of a run that options, environment variables and the launcher's file decide together."""
    compiler, plugin = accelerator.state.dynamo_plugin.backend.value.lower(), accelerator.state.deepspeed_plugin
    engine = f"ZeRO-{plugin.zero_stage}" if plugin else accelerator.distributed_type.value
    return {
        "mixed_precision": accelerator.mixed_precision,
        "torch_compile": compiler != "no",
        "torch_compile_backend": args.torch_compile_backend if compiler == "no" else compiler,
        "engine": "DDP" if engine.startswith(("NO", "MULTI")) else engine,  # alone, or many with the whole model each
    }


def check_identity(state: TrainState, identity: Mapping[str, Any], may_differ: Collection[str] = ()) -> None:
    """Refuse to continue with the checkpoint of another run; warn of facts that differ and may."""
    recorded, metric = state.run, identity.get("metric_for_best_model")
    if "engine" not in recorded:  # earlier versions recorded options alone: where these were silent, nobody knows
        recorded = {n: value for n, value in recorded.items() if value or n not in ("mixed_precision", "torch_compile")}
    if metric and "metric_for_best_model" not in recorded and state.best_step is not None:
        figures = [entry.get(f"eval_{metric}") for entry in state.log_history if entry["step"] == state.best_step]
        if state.best_metric not in figures:
            raise ValueError(
                f"resume_from_checkpoint: the checkpoint, of version 0.1, did not choose its best model by {metric!r}:"
                " give the metric_for_best_model of its run"
            )
    # Version 0.1 recorded few options. What is not recorded is not compared. Version 0.2 recorded the only column of
    # labels by its name, and not in a list.
    differing = [name for name, now in identity.items() if now not in (was := recorded.get(name, now), [was])]
    for name in ["num_processes", "total_steps", *may_differ]:
        if name not in differing:
            continue
        differing.remove(name)
        logger.warning(f"Continuing with {name} {identity[name]}, which was {recorded[name]}: {RESUME_WARNINGS[name]}")
    if differing:
        changes = ", ".join(f"{name} was {recorded[name]} and is {identity[name]}" for name in differing)
        raise ValueError(f"resume_from_checkpoint: the checkpoint belongs to another run: {changes}")


def save_checkpoint(accelerator: Accelerator, state: TrainState, output_dir: Path, keep: int | None = None) -> Path:
    """Write `output_dir/checkpoint-<step>`, and delete the oldest beyond `keep`. All processes call it."""
    folder = output_dir / f"checkpoint-{state.step}"
    staging = output_dir / f"{STAGING}-{folder.name}"
    if accelerator.is_main_process:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
    accelerator.wait_for_everyone()
    with silenced_checkpoint():
        accelerator.save_state(str(staging))  # model, optimiser, schedule, random states
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        state.write(staging)
        sizes = {str(path.relative_to(staging)): path.stat().st_size for path in _files(staging)}
        files = {"sizes": sizes, "sha256": digests_of_files(staging, sizes)}
        (staging / MANIFEST_FILE).write_text(json.dumps(files, indent=1) + "\n", encoding="utf-8")
        _sync(_files(staging))  # on the disk before the folder gets its name
        shutil.rmtree(folder, ignore_errors=True)
        staging.rename(folder)
        for old in complete_checkpoints(output_dir)[: -keep if keep else 0]:
            shutil.rmtree(old)
    accelerator.wait_for_everyone()
    return folder


def is_complete(folder: Path, is_read: bool = False) -> bool:
    """Whether every file that was written into a checkpoint still has its full length and, if it `is_read`, holds what
    was written. (Version 0.2 recorded lengths alone.)"""
    try:
        files = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
        sizes, digests = files.get("sizes", files), files.get("sha256", {})
        has_sizes = all((folder / name).stat().st_size == size for name, size in sizes.items())
        return has_sizes and (not is_read or digests_of_files(folder, digests) == digests)
    except (OSError, ValueError):
        return False


def complete_checkpoints(output_dir: Path) -> list[Path]:
    """The complete checkpoints in a folder, oldest first."""
    folders = [path for path in output_dir.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(filter(is_complete, folders), key=lambda path: int(path.name.split("-")[1]))


def asks_to_resume(resume_from: str | None) -> bool:
    """Whether `resume_from_checkpoint` asks for a checkpoint to continue from."""
    return resume_from is not None and resume_from.lower() != "false"


def find_checkpoint(resume_from: str | None, output_dir: Path) -> Path | None:
    """The checkpoint to continue from, if any: the folder named, or, for "auto" and "true", the newest whole one."""
    if not asks_to_resume(resume_from):
        return None
    named = [] if resume_from.lower() in ("auto", "true") else [Path(resume_from)]
    folders = named or reversed(complete_checkpoints(output_dir))
    folder = next((folder for folder in folders if is_complete(folder, is_read=True)), None)
    if named and folder is None:
        raise FileNotFoundError(f"resume_from_checkpoint {resume_from!r}: not a complete checkpoint of a recipe")
    for path in folder.glob("custom_checkpoint_*.pkl") if folder else ():
        try:  # Accelerate would run what else it holds
            torch.load(path, weights_only=True)
        except UnpicklingError as error:
            raise ValueError(f"resume_from_checkpoint: {path} holds code, and should hold numbers alone") from error
    return folder


def holds_a_run(output_dir: Path) -> bool:
    """Whether a folder holds a model or other files of a recipe. A card that the user wrote does not count."""
    names = (STATE_FILE, RESULTS_FILE, "config.json", "model.safetensors")
    return any((output_dir / name).exists() for name in names) or any(output_dir.glob("checkpoint-*"))


def is_killed_run(output_dir: Path) -> bool:
    """Whether a folder holds a run of a recipe that was killed: its files, but no results."""
    # If it was killed while it replaced files, only the staging folder shows that they are a recipe's.
    signs = chain.from_iterable(map(output_dir.glob, (STATE_FILE, f"{STAGING}*", "checkpoint-*")))
    return any(signs) and not (output_dir / RESULTS_FILE).exists()


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder whose files replace those of `folder` at the end, but not if an error is raised.

    A process that is killed while it replaces files leaves old ones beside new ones, but neither manifest nor state.
    """
    staging = folder / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        yield staging
        files = sorted(_files(staging), key=lambda path: path.name in WRITE_LAST)
        _sync(
            path for path in files if path.suffix == ".safetensors" or path.name in WRITE_LAST
        )  # not all: syncing is slow
        for name in {path.name for path in files}.intersection(WRITE_LAST):
            (folder / name).unlink(missing_ok=True)
        for path in files:
            target = folder / path.relative_to(staging)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sync(paths: Iterable[Path]) -> None:
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
