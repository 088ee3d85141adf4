"""The folder of a run, and checkpoints from which a killed run continues exactly where it was.

A checkpoint is renamed when it is complete: what a killed run was writing does not pass for one.
"""

import json
import logging
import math
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from safetensors import SafetensorError, safe_open

from tfm_zoo.data.splits import DataOptions
from tfm_zoo.training.options import MAY_CHANGE, OF_ADAPTERS, TrainingOptions
from tfm_zoo.utils.folder_kinds import MANIFEST
from tfm_zoo.utils.locking import write_json
from tfm_zoo.utils.quiet import silenced_checkpoint

logger = logging.getLogger(__name__)

#: in a checkpoint; and beside the best model: the state at its step or, once the run is finished, at the last step
STATE_FILE = "trainer_state.json"
RESULTS_FILE = "all_results.json"  # a run that has it is finished
UNFINISHED = ".*unfinished*"  # a glob of what is being written: `.unfinished-checkpoint-10`, `.ab12.unfinished`
#: files that describe the others: deleted before the others are replaced, and written last
WRITE_LAST = (STATE_FILE, MANIFEST)
#: files of a checkpoint -> what refuses one that is cut. Accelerate would pass over some
OPENERS = {
    "*.json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    "*.safetensors": lambda path: safe_open(path, "pt"),
    "*.bin": ZipFile,  # torch's
    "random_states_*.pkl": ZipFile,
    "custom_checkpoint_*.pkl": lambda path: torch.load(path, weights_only=True),  # Accelerate would run code in it
}
#: options of earlier versions that changed what is learned
GONE = "freeze_epochs frozen_learning_rate gradual_unfreezing layerwise_lr_decay length_penalty separate_vocabularies"
#: facts that a resumed run may change, and what then differs from a run without interruption
RESUME_WARNINGS = {
    "num_processes": "the batches are the same, but each process draws random numbers of its own, as for dropout",
    "total_steps": "from here on, the learning rate is that of a run of the new length",
}
#: fact -> what it is, where its name does not say so
EXPLANATIONS = dict.fromkeys(("training texts", "validation texts"), "labels count as texts, too")
EXPLANATIONS["global_batch_size"] = "it is per_device_train_batch_size x gradient_accumulation_steps x processes"


# transformers' own `TrainerState` records neither the step within an epoch nor the run that it belongs to.
@dataclass
class TrainState:
    """How far a run has come, beyond what Accelerate saves."""

    step: int = 0  # optimiser steps done
    epoch: int = 0  # whole epochs done
    step_in_epoch: int = 0
    loss_sum: float = 0.0  # sum of the mean losses of all steps up to the last log entry; finally, of all steps
    window_loss: float = 0.0  # sum of the losses since then, without what lies in `Loop.local_loss`
    train_seconds: float = 0.0
    train_examples: int = 0  # computed so far, in all epochs (in `identity`: those of the split)
    best_metric: float | None = None
    best_loss: float | None = None  # of the evaluation with the best metric
    best_step: int | None = None
    evaluations_without_gain: int = 0
    changes: list[str] = field(default_factory=list)  # sentences on facts that changed when it was resumed
    log_history: list[dict[str, Any]] = field(default_factory=list)  # in the form of transformers' `TrainerState`
    identity: dict[str, Any] = field(default_factory=dict)  # what a resumed run must share

    def record_evaluation(self, metric: float, greater_is_better: bool, loss: float) -> bool:
        """Record the metric and the loss of an evaluation; returns whether it is the best so far. Of equal metrics the
        one with the lower loss is the better; that is not a gain for early stopping."""
        sign, best = 1 if greater_is_better else -1, self.best_metric
        is_gain = best is None or sign * metric > sign * best or (math.isnan(best) and not math.isnan(metric))
        self.evaluations_without_gain = 0 if is_gain else self.evaluations_without_gain + 1
        has_lower_loss = metric == best and self.best_loss is not None and loss < self.best_loss
        if is_best := is_gain or has_lower_loss:
            self.best_metric, self.best_loss, self.best_step = metric, loss, self.step
        return is_best

    def last_step_with(self, key: str) -> int:
        """The step of the last entry of the log that has a key; 0 if there is no such entry."""
        return next((entry["step"] for entry in reversed(self.log_history) if key in entry), 0)

    def write(self, folder: Path) -> None:
        write_json(folder / STATE_FILE, asdict(self), indent=1)

    @classmethod
    def read(cls, folder: Path) -> "TrainState":
        """The state in a folder. What earlier versions recorded gets today's form."""
        values = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        identity = values.pop("run", None) or values.get("identity", {})  # 0.3: "run"
        if "engine" not in identity:  # of 0.2, which did not record what the launcher chose
            unknown = [name for name in ("mixed_precision", "torch_compile") if not identity.get(name)]
            identity = {name: value for name, value in identity.items() if name not in unknown}
        column = identity.get("label_column_name")
        if isinstance(column, str) and "label_all_tokens" not in identity:  # a classifier's, now a list
            identity["label_column_name"] = [column]
        names = {each.name for each in fields(cls)}  # transformers' Trainer writes a file of this name, too
        return cls(**{name: value for name, value in values.items() if name in names} | {"identity": identity})


def identity_of(facts: Mapping[str, Any], args: DataOptions) -> dict[str, Any]:
    """What a resumed run must share with the run that it continues, in JSON's types: facts, and most options."""
    rank = getattr(args, "lora_rank", 0) or 0  # (recipes/pairs.py has no such option)
    free = [*MAY_CHANGE.split(), *(() if rank else OF_ADAPTERS)]
    settings = {each.name: getattr(args, each.name) for each in fields(args) if each.name not in free}
    settings |= {"lora_rank": rank}
    return json.loads(json.dumps(settings | facts))  # a fact, such as the precision, replaces the option of its name


def facts_of_launch(accelerator: Accelerator, args: TrainingOptions) -> dict[str, Any]:
    """The facts of a run that options, environment variables and the launcher's file decide together."""
    compiler, plugin = accelerator.state.dynamo_plugin.backend.value.lower(), accelerator.state.deepspeed_plugin
    engine = f"ZeRO-{plugin.zero_stage}" if plugin else accelerator.distributed_type.value
    return {
        "mixed_precision": accelerator.mixed_precision,
        "torch_compile": compiler != "no",
        "torch_compile_backend": args.torch_compile_backend if compiler == "no" else compiler,
        "engine": "DDP" if engine.startswith(("NO", "MULTI")) else engine,  # alone, or many with the whole model each
    }


def check_identity(state: TrainState, identity: Mapping[str, Any]) -> list[str]:
    """Refuse to continue with the checkpoint of another run; warn of facts that differ and may: a sentence for each."""
    recorded = state.identity
    if gone := [name for name in GONE.split() if recorded.get(name)]:
        raise ValueError(f"resume_from_checkpoint: its run has {', '.join(gone)}, which this version does not have")
    differing = [name for name, now in identity.items() if not are_same(name, recorded.get(name, now), now)]
    if others := [name for name in differing if name not in RESUME_WARNINGS]:
        changes = ", ".join(f"{name} was {recorded[name]} and is {identity[name]}" for name in others)
        hints = [EXPLANATIONS[name] for name in others if name in EXPLANATIONS]
        advice = "; ".join(dict.fromkeys(["give what it was, or another output_dir", *hints]))
        raise ValueError(f"resume_from_checkpoint: the checkpoint belongs to another run: {changes}; {advice}")
    for name in differing:
        logger.warning(f"Continuing with {name} {identity[name]}, which was {recorded[name]}: {RESUME_WARNINGS[name]}")
    return [f"{name} was {recorded[name]} up to step {state.step}, then {identity[name]}" for name in differing]


def are_same(name: str, one: Any, other: Any) -> bool:
    """Whether an option has the same value, in whatever order it lists what learns."""
    return one == other or (name in ("freeze", "lora_target_modules") and set(one or ()) == set(other or ()))


def save_checkpoint(accelerator: Accelerator, state: TrainState, output_dir: Path, keep: int | None = None) -> Path:
    """Write `output_dir/checkpoint-<step>`, and delete the oldest beyond `keep`. All processes call it."""
    folder = output_dir / f"checkpoint-{state.step}"
    staging = output_dir / f".unfinished-{folder.name}"
    if accelerator.is_main_process:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
    accelerator.wait_for_everyone()
    with silenced_checkpoint():
        accelerator.save_state(str(staging))  # model, optimiser, schedule, random states
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        state.write(staging)
        for path in (path for path in staging.rglob("*") if path.is_file()):
            with path.open("rb") as file:
                os.fsync(file.fileno())  # on the disk before the folder gets its name
        _remove(folder)
        staging.rename(folder)
        for old in complete_checkpoints(output_dir)[: -keep if keep else 0]:
            _remove(old)
    accelerator.wait_for_everyone()
    return folder


def _remove(folder: Path) -> None:
    """Delete a checkpoint, first of all its state: what is left of a killed deletion does not pass for a checkpoint."""
    (folder / STATE_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def checkpoints_in(output_dir: Path) -> list[Path]:
    """The folders of checkpoints in a folder, oldest first, whether they are complete or not."""
    folders = [path for path in output_dir.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(folders, key=lambda folder: int(folder.name.split("-")[1]))


def complete_checkpoints(output_dir: Path) -> list[Path]:
    """The complete checkpoints in a folder, oldest first."""
    return [folder for folder in checkpoints_in(output_dir) if (folder / STATE_FILE).exists()]


def find_checkpoint(resume_from: str | None, output_dir: Path) -> Path | None:
    """The checkpoint to continue from, if any: the folder named, or, for "auto", the newest complete one."""
    if resume_from is None:
        return None
    if resume_from.lower() == "auto":
        folder = next(reversed(complete_checkpoints(output_dir)), None)
    elif not (folder := next(filter(Path.is_dir, (Path(resume_from), output_dir / resume_from)), None)):
        there = ", ".join(each.name for each in complete_checkpoints(output_dir)) or "no checkpoint"
        raise FileNotFoundError(f"resume_from_checkpoint {resume_from!r}: no such folder; {output_dir} has {there}")
    elif not (folder / STATE_FILE).exists():
        raise FileNotFoundError(f"resume_from_checkpoint {resume_from!r}: not a complete checkpoint")
    elif folder.resolve().parent != output_dir.resolve():
        raise ValueError(f"resume_from_checkpoint {resume_from!r} is not in output_dir {str(output_dir)!r}")
    for pattern, opens in OPENERS.items() if folder else ():
        for path in folder.glob(pattern):
            try:
                opens(path)
            except (ValueError, RuntimeError, EOFError, SafetensorError, BadZipFile, UnpicklingError) as error:
                what = f"resume_from_checkpoint: {path} is cut, damaged or holds code"
                raise ValueError(f"{what}: delete {folder.name} to go on from the one before") from error
    return folder


def starting_point(accelerator: Accelerator, args: TrainingOptions) -> Path | None:
    """The checkpoint from which a run goes on; None: it begins. All processes call it, and nothing is written.

    | `output_dir` holds | without an option | `resume_from_checkpoint` | `overwrite_output_dir` |
    |---|---|---|---|
    | no run | begins | begins | begins |
    | a complete checkpoint | is refused | goes on | begins |
    | a killed run without one | is refused | begins | begins |
    | a finished run, or a model, without one | is refused | is refused | begins |

    With both options it goes on, if there is a checkpoint. A folder that nobody may write to is refused, too.
    """
    folder = Path(args.output_dir)
    # All look, so that all raise the same error. The main one decides: others may see a shared folder as it was.
    (checkpoint,) = broadcast_object_list([find_checkpoint(args.resume_from, folder)])
    may_begin = args.overwrite_output_dir or (args.resume_from and is_killed_run(folder))
    if checkpoint is None and holds_a_run(folder) and not may_begin:
        lacks = " and no checkpoint to go on from" if args.resume_from else ""
        go_on = " --resume_from_checkpoint auto to go on from its last checkpoint," * bool(complete_checkpoints(folder))
        held = f"output_dir {args.output_dir!r} holds a run{lacks}"
        raise FileExistsError(f"{held}: give another folder,{go_on} or --overwrite_output_dir to replace it")
    if accelerator.is_main_process:
        check_writable(folder)
    return checkpoint


def clear(output_dir: Path, goes_on: bool) -> None:
    """Delete what a killed run was writing and, unless the run goes on, checkpoints and results of the one before."""
    if not goes_on:
        # With old results the new run, if killed, would pass for finished.
        (output_dir / RESULTS_FILE).unlink(missing_ok=True)
    for leftover in (*output_dir.glob(UNFINISHED), *(() if goes_on else checkpoints_in(output_dir))):
        _remove(leftover)


def check_writable(output_dir: Path) -> None:
    """Refuse a folder if nothing can be written in it or in its parent; leaves nothing behind."""
    existing = next(folder for folder in (output_dir, *output_dir.resolve().parents) if folder.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        raise PermissionError(f"output_dir {str(output_dir)!r}: {existing} is not a folder that you may write to")


def holds_a_run(output_dir: Path) -> bool:
    """Whether a folder holds a model or other files of a recipe. A card that the user wrote does not count."""
    names = (STATE_FILE, RESULTS_FILE, "config.json", "model.safetensors")
    return any((output_dir / name).exists() for name in names) or bool(checkpoints_in(output_dir))


def is_killed_run(output_dir: Path) -> bool:
    """Whether a folder holds a run of a recipe that was killed: its files, but no results."""
    # If it was killed while it replaced files, only an unfinished folder shows that they are a recipe's.
    signs = [*output_dir.glob(STATE_FILE), *output_dir.glob(UNFINISHED), *checkpoints_in(output_dir)]
    return bool(signs) and not (output_dir / RESULTS_FILE).exists()
