"""Starting a run: its options, its processes, its log, its folder; and how it ends when something is wrong."""

import gc
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.tracking import get_available_trackers
from accelerate.utils import (
    DistributedType,
    GradientAccumulationPlugin,
    ProjectConfiguration,
    broadcast_object_list,
    parse_flag_from_env,
    set_seed,
)
from datasets.exceptions import DatasetsError
from filelock import FileLock
from huggingface_hub import HfApi
from huggingface_hub.errors import StrictDataclassError

from tfm_zoo.hub import PushError
from tfm_zoo.hub.uploading import open_repository
from tfm_zoo.training import checkpoints
from tfm_zoo.training.metrics.loading import find_metric
from tfm_zoo.training.options import TrainingOptions, parse_options
from tfm_zoo.training.sharding import set_engine
from tfm_zoo.utils.locking import hold
from tfm_zoo.utils.quiet import (
    silence_deepspeed,
    silence_downloads,
    silence_interrupt,
    silence_progress_bars,
    silence_tokenizers,
)

logger = logging.getLogger(__name__)

#: errors that a user can put right: of options, data, checkpoints and the Hub
USER_ERRORS = (ValueError, OSError, StrictDataclassError, DatasetsError, PushError)


@dataclass(frozen=True)
class Run:
    """A run that has started: its processes, and its options with all defaults filled in."""

    name: str  # of the recipe
    accelerator: Accelerator
    args: TrainingOptions
    checkpoint: Path | None = None  # to continue from
    lock: FileLock | None = None  # on its folder, as long as it is referred to


def start_run(name: str, options_class: type[TrainingOptions], argv: Sequence[str] | None = None) -> Run:
    """Start the run of a recipe: options, processes, output folder. All processes call it."""
    args = parse_options(options_class, argv).as_launched()
    accelerator = start_accelerator(args)
    for metric in args.metrics or ():
        find_metric(metric, args.trust_remote_code)  # a wrong name is told before any data are read
    # The main process decides for all: others may not reach what it reaches over the network.
    args = broadcast_object_list([args.with_defaults() if accelerator.is_main_process else None])[0]
    return Run(name, accelerator, args, check_output_dir(accelerator, args))


@contextmanager
def errors_in_one_line(errors: type[Exception] | tuple[type[Exception], ...] = USER_ERRORS) -> Iterator[None]:
    """End the program with one line at these errors, from each process that has one. `TFM_ZOO_TRACEBACK=1` shows the
    traceback. (`accelerate launch` adds one of its own, unless it is `--quiet`.)"""
    try:
        yield
    except errors as error:
        if os.environ.get("TFM_ZOO_TRACEBACK", "0") not in ("", "0"):
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"{Path(sys.argv[0]).name}: error: {message}", file=sys.stderr)
        sys.exit(2)


def keep_few_kernels() -> None:
    """Limit oneDNN's cache of CPU kernels, before the first model runs. oneDNN makes a kernel for each new shape, by
    default 1,024: if every batch has a shape of its own, these fragment gigabytes of freed memory."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")


def start_accelerator(args: TrainingOptions) -> Accelerator:
    """Make the Accelerator, refuse what its processes cannot do, let the main one alone log, and set the seed."""
    silence_interrupt()
    silence_tokenizers()
    keep_few_kernels()
    check_launcher()
    on_cpu, with_deepspeed = not torch.accelerator.is_available(), asked_for("DEEPSPEED")
    if not with_deepspeed:
        silence_deepspeed()
    backend = {"backend": "gloo"} if on_cpu and with_deepspeed else {}
    accelerator = Accelerator(
        # Without a GPU, several processes share the CPU's work. Without `cpu=True` each would train alone. (With it,
        # Accelerate would not use DeepSpeed.)
        cpu=on_cpu and not with_deepspeed,
        mixed_precision=args.mixed_precision,
        dynamo_backend=args.torch_compile_backend if args.torch_compile else None,
        log_with=trackers(args) or None,
        # Not `accelerator.accumulate`, which weighs every forward pass alike: `train_step` divides by the step's items.
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
        project_config=ProjectConfiguration(args.output_dir, logging_dir=str(Path(args.output_dir) / "logs")),
        kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=args.ddp_timeout), **backend)],
    )
    if accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED):
        set_engine(accelerator, args)
    elif asked_for("FSDP"):
        raise ValueError("FSDP: Accelerate has it for GPUs; on a CPU it would silently train with DDP")
    if on_cpu and accelerator.mixed_precision == "fp16":
        raise ValueError("mixed_precision 'fp16' is for GPUs: on a CPU it would change nothing; give 'bf16' or 'no'")

    logging.basicConfig(format="%(asctime)s  %(message)s", datefmt="%H:%M:%S")
    for name in ("tfm_zoo", "__main__"):
        logging.getLogger(name).setLevel(logging.INFO if accelerator.is_main_process else logging.ERROR)
    if not accelerator.is_main_process:
        transformers.utils.logging.set_verbosity_error()
    silence_progress_bars()
    silence_downloads()
    set_seed(args.seed)
    return accelerator


def trackers(args: TrainingOptions) -> list[str]:
    """The trackers that the options name, as Accelerate knows them."""
    named = args.report_to or (["all"] if args.with_tracking else [])
    named = [named] if isinstance(named, str) else named  # as in transformers, from Python
    names, known = [name.lower() for name in named], ["none", "all", *map(str, get_available_trackers())]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"report_to {unknown[0]!r} is not installed; choose from {known}")
    return [name for name in names if name != "none"]


def asked_for(engine: str) -> bool:
    """Whether Accelerate will start an engine. It does for the word "true" alone: with 1, each process would train
    alone if this were taken for a yes."""
    return os.environ.get(f"ACCELERATE_USE_{engine}", "").lower() == "true"


def end_training(accelerator: Accelerator) -> None:
    """End trackers and processes. Call it when nothing but the accelerator refers to a prepared model.

    A model that DDP wraps has to be freed before its process group. Otherwise the group may wait for a thread of Gloo
    that waits for Python's global lock, and the process never exits. A barrier does not prevent it.
    """
    accelerator.free_memory()
    gc.collect()  # models that refer to themselves
    accelerator.end_training()


def check_launcher() -> None:
    """Refuse `accelerate launch --cpu --num_processes 2`. Without MPI the launcher starts a single process, and tells
    it where its peers would meet, but not how many there are (huggingface/accelerate#2741)."""
    counts = {"WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"}
    if parse_flag_from_env("ACCELERATE_USE_CPU") and "MASTER_ADDR" in os.environ and not counts & os.environ.keys():
        raise ValueError("several CPU processes: launch them with --config_file recipes/accelerate/cpu.yaml")


def check_output_dir(accelerator: Accelerator, args: TrainingOptions) -> Path | None:
    """Refuse an `output_dir` that the run may not write to, and return the checkpoint in it to continue from, if any.
    All processes call it. Nothing is written: a run that is refused leaves everything as it was."""
    output_dir, resume_from = Path(args.output_dir), args.resume_from_checkpoint
    # All look, and the main process decides: others may see a shared folder as it was before.
    checkpoint = broadcast_object_list([checkpoints.find_checkpoint(resume_from, output_dir)])[0]
    if checkpoint and checkpoint.resolve().parent != output_dir.resolve():
        where = f"output_dir {args.output_dir!r}, where the best model of its run is"
        raise ValueError(f"resume_from_checkpoint {resume_from!r} is not in {where}")
    check_replaceable(output_dir, args, checkpoint)
    if accelerator.is_main_process:
        check_writable(output_dir)
    if checkpoints.asks_to_resume(resume_from) and checkpoint is None:
        logger.info(f"No complete checkpoint in {output_dir}: starting from the beginning")
    return checkpoint


def check_replaceable(output_dir: Path, args: TrainingOptions, checkpoint: Path | None) -> None:
    """Refuse a folder that holds a run which is neither continued from `checkpoint` nor to be replaced."""
    resumes = checkpoints.asks_to_resume(args.resume_from_checkpoint)
    may_replace = args.overwrite_output_dir or (resumes and checkpoints.is_killed_run(output_dir))
    if checkpoint is None and checkpoints.holds_a_run(output_dir) and not may_replace:
        held = f"output_dir {args.output_dir!r} holds a run{' and no checkpoint to go on from' if resumes else ''}"
        can_go_on = not resumes and checkpoints.complete_checkpoints(output_dir)
        go_on = " --resume_from_checkpoint auto to go on from its last checkpoint," if can_go_on else ""
        raise FileExistsError(f"{held}: give another folder,{go_on} or --overwrite_output_dir to replace it")


def check_writable(output_dir: Path) -> None:
    """Refuse a folder if nothing can be written in it or in its parent; leaves nothing behind."""
    existing = next(folder for folder in (output_dir, *output_dir.resolve().parents) if folder.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        raise PermissionError(f"output_dir {str(output_dir)!r}: {existing} is not a folder that you may write to")


def open_output(run: Run) -> Run:
    """Open the repository to push to, if any, make and lock `output_dir`, and delete what an earlier run left in it.
    Returns the run with the repository's whole name. All processes call it, after all other checks."""
    accelerator, args, output_dir = run.accelerator, run.args, Path(run.args.output_dir)
    accelerator.wait_for_everyone()  # every process has read the folder before one writes
    if accelerator.is_main_process:
        check_replaceable(output_dir, args, run.checkpoint)  # again: another run may have ended since
        if args.push_to_hub:  # a missing permission must show before training
            api, repository = HfApi(token=args.hub_token), args.hub_model_id or output_dir.resolve().name
            repository = open_repository(api, repository, args.hub_private_repo, args.hub_revision)
            args = replace(args, hub_model_id=repository)
        output_dir.mkdir(parents=True, exist_ok=True)
        run = replace(run, args=args, lock=hold(output_dir, output_dir / ".lock"))
        if run.checkpoint is None:
            # With old results the new run, if killed, would pass for finished.
            (output_dir / checkpoints.RESULTS_FILE).unlink(missing_ok=True)
        leftovers = () if run.checkpoint else output_dir.glob("checkpoint-*")
        for leftover in (*leftovers, *output_dir.glob(checkpoints.UNFINISHED)):
            shutil.rmtree(leftover)
    accelerator.wait_for_everyone()
    if args.checkpointing_steps and not output_dir.is_dir():
        raise ValueError(f"checkpointing_steps needs an output_dir that all machines share, not {args.output_dir!r}")
    return run


def tracker_values(args: TrainingOptions) -> dict[str, Any]:
    """The options of a run in types that every tracker takes, without the token."""
    values = {name: value for name, value in asdict(args).items() if name != "hub_token"}
    return {name: value if isinstance(value, int | float | str) else str(value) for name, value in values.items()}
