"""Starting a run: its options, its processes, its log, its folder; and how it ends when something is wrong."""

import gc
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate import Accelerator, DistributedType, InitProcessGroupKwargs
from accelerate.tracking import get_available_trackers
from accelerate.utils import GradientAccumulationPlugin, ProjectConfiguration, parse_flag_from_env, set_seed
from datasets.exceptions import DatasetsError
from huggingface_hub.errors import StrictDataclassError

from tfm_zoo.data.options import parse_options
from tfm_zoo.hub import PushError
from tfm_zoo.metrics import MetricError, Metrics, load_metrics
from tfm_zoo.training.checkpoints import starting_point
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.sharding import set_engine
from tfm_zoo.utils import quiet

logger = logging.getLogger(__name__)

#: errors that a user can put right: of options, data, checkpoints and the Hub
USER_ERRORS = (ValueError, OSError, StrictDataclassError, DatasetsError, PushError)
#: those that may come after the first step: of the loss, of metrics that options name, and of a push, the last thing
LATE_ERRORS = (FloatingPointError, MetricError, PushError)


@dataclass(frozen=True)
class Run:
    """A run that has started: its processes and its options. Later, only `args` is replaced: loading a task lowers
    lengths, `Task` settles `metric_for_best_model`, and `Loop.begin` settles `hub_model_id`."""

    name: str  # of the recipe
    accelerator: Accelerator
    args: TrainingOptions
    metrics: Metrics | None = None  # those that the options name; `None`: the usual ones of the task
    names_best: bool = False  # whether an option names the metric that picks the best model


def start_run(name: str, options_class: type[TrainingOptions], argv: Sequence[str] | None = None) -> Run:
    """Start a run: read options, join processes, refuse a used folder or an unknown metric. All processes call it."""
    args = parse_options(options_class, argv).with_defaults()
    accelerator = start_accelerator(args)
    starting_point(accelerator, args)  # refuses a used folder; `Loop.begin` asks again, behind the lock
    with accelerator.main_process_first():  # a metric may be downloaded
        metrics = load_metrics(args.metrics, args.trust_remote_code) if args.metrics else None
    return Run(name, accelerator, args, metrics, names_best=bool(args.metric_for_best_model))


@contextmanager
def errors_in_one_line(
    argv: Sequence[str] | None = None, errors: type[Exception] | tuple[type[Exception], ...] = USER_ERRORS
) -> Iterator[None]:
    """End the program with one line at these errors, from each process that has one. `TFM_ZOO_TRACEBACK=1` shows the
    traceback. A caller from Python, who gives `argv`, gets the error itself."""
    try:
        yield
    except errors as error:
        if argv is not None or os.environ.get("TFM_ZOO_TRACEBACK", "0") not in ("", "0"):
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"{Path(sys.argv[0]).name}: error: {message}", file=sys.stderr)
        sys.exit(2)


def keep_few_kernels() -> None:
    """Let oneDNN keep 16 CPU kernels, not 1,024, which take gigabytes. Call it before a model runs."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")


def start_accelerator(args: TrainingOptions) -> Accelerator:
    """Make the Accelerator, refuse what its processes cannot do, let the main one alone log, and set the seed."""
    quiet.silence_interrupt()
    quiet.silence_tokenizers()
    keep_few_kernels()
    check_launcher()
    on_cpu, with_deepspeed = not torch.accelerator.is_available(), asked_for("DEEPSPEED")
    if not with_deepspeed:
        quiet.silence_deepspeed()
    backend = {"backend": "gloo"} if on_cpu and with_deepspeed else {}
    accelerator = Accelerator(
        # Without a GPU, several processes share the CPU's work. Without `cpu=True` each would train alone. (With it,
        # Accelerate would not use DeepSpeed.)
        cpu=on_cpu and not with_deepspeed,
        mixed_precision=args.mixed_precision,
        dynamo_backend=args.torch_compile_backend if args.torch_compile else None,
        log_with=trackers(args) or None,
        # `train_step` accumulates by itself, and weighs items alike. Without 1, Accelerate takes the launcher's number.
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
    quiet.silence_progress_bars()
    quiet.silence_downloads()
    set_seed(args.seed)
    return accelerator


def trackers(args: TrainingOptions) -> list[str]:
    """The trackers that the options name. Accelerate would pass over one that is not installed."""
    named = args.report_to or ("all" if args.with_tracking else "none")
    names = [named] if isinstance(named, str) else named  # (in Python, it may be a text)
    known = ["none", "all", *map(str, get_available_trackers())]
    if unknown := [name for name in names if name.lower() not in known]:
        raise ValueError(f"report_to {unknown[0]!r} is not installed; choose from {known}")
    return [name.lower() for name in names if name.lower() != "none"]


def asked_for(engine: str) -> bool:
    """Whether Accelerate will start an engine: only for "true". (For "1" it starts nothing: the run is a plain one.)"""
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


def tracker_values(args: TrainingOptions) -> dict[str, Any]:
    """The options of a run in types that every tracker takes, without the token."""
    values = asdict(args).items()
    return {name: v if isinstance(v, int | float | str) else str(v) for name, v in values if name != "hub_token"}
