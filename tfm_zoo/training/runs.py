"""Starting a run: processes, log, seeds, the output folder, the Hub."""

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import datasets
import psutil
import torch
import transformers
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.logging import get_logger
from accelerate.tracking import get_available_trackers
from accelerate.utils import DistributedType, ProjectConfiguration, set_seed
from datasets.exceptions import DatasetsError
from huggingface_hub import HfApi
from huggingface_hub.errors import StrictDataclassError

from tfm_zoo.hub import PushError
from tfm_zoo.models.uploading import open_repository
from tfm_zoo.training.arguments import LoopArguments
from tfm_zoo.training.checkpoints import TrainState, delete_checkpoints, find_checkpoint, holds_a_run

logger = get_logger(__name__)


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """End the program with what is wrong in one line, where a user can put it right, and not with a traceback.

    The environment variable `TFM_ZOO_TRACEBACK=1` shows where an error came from. (`accelerate launch` adds a traceback
    of its own to any failure, unless it is told to be `--quiet`.)
    """
    try:
        yield
    except (ValueError, OSError, StrictDataclassError, DatasetsError, FloatingPointError, PushError) as error:
        if os.environ.get("TFM_ZOO_TRACEBACK", "0") not in ("", "0"):
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"{Path(sys.argv[0]).name}: error: {message}", file=sys.stderr)
        sys.exit(2)


def keep_few_kernels() -> None:
    """Let oneDNN keep few of the kernels that it makes on a CPU for each new shape (of GELU, say).

    It keeps 1,024, which costs gigabytes where every batch has a shape of its own: they lie between the tensors, whose
    memory then cannot be joined again. Has to come before the first model runs.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")


def start_accelerator(args: LoopArguments, freeze_epochs: int = 0) -> Accelerator:
    """An Accelerator for a loop that weighs losses itself; the log speaks for the main process alone.

    Args:
        freeze_epochs: how long the task itself freezes parameters.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # no warning from processes that prepare batches
    keep_few_kernels()
    trackers = None
    if args.with_tracking or args.report_to:
        trackers = args.report_to or "all"
        available = [str(tracker) for tracker in get_available_trackers()]
        if trackers != "all" and trackers not in available:
            raise ValueError(f"report_to {trackers!r} is not installed; installed are {available}")
    unfreezes = freeze_epochs or args.gradual_unfreezing
    _start_missing_processes()
    accelerator = Accelerator(
        # Where there is no device, processes launched for several GPUs work together on the CPU, and not each alone.
        cpu=not torch.accelerator.is_available(),
        mixed_precision=args.mixed_precision,
        log_with=trackers,
        project_config=ProjectConfiguration(args.output_dir, logging_dir=str(Path(args.output_dir) / "logs")),
        # What does not learn yet gets no gradient, and DDP must not wait for it.
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=bool(unfreezes))],
    )
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        accelerator.state.deepspeed_plugin.deepspeed_config.update(
            train_micro_batch_size_per_gpu=args.per_device_train_batch_size, gradient_clipping=args.max_grad_norm
        )
    if (unfreezes or args.freeze) and is_sharded(accelerator):
        name = "freeze_epochs" if freeze_epochs else "gradual_unfreezing" if unfreezes else "freeze"
        raise ValueError(
            f"{name} works on one process and with DDP; {accelerator.distributed_type.value} shards the model, and all"
            " of it learns from the first step on"
        )

    logging.basicConfig(format="%(asctime)s  %(message)s", datefmt="%H:%M:%S")
    for name in ("tfm_zoo", "__main__"):
        logging.getLogger(name).setLevel(logging.INFO if accelerator.is_main_process else logging.ERROR)
    if not accelerator.is_main_process:
        transformers.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    set_seed(args.seed)
    return accelerator


def is_sharded(accelerator: Accelerator) -> bool:
    """Whether no process holds the whole model while it trains: generating would need them all for each token."""
    return accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED)


def _start_missing_processes() -> None:
    """Make `accelerate launch --cpu --num_processes 2` mean what it says.

    Without MPI the launcher starts a single process on the CPU, and tells it where its peers would meet but not how
    many they are (huggingface/accelerate#2741). This process then becomes the launcher of all of them.
    """
    env = os.environ
    on_cpu = env.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true")
    if not on_cpu or "MASTER_ADDR" not in env or {"WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"} & env.keys():
        return
    launcher = " ".join(psutil.Process().parent().cmdline())
    if "accelerate" not in launcher:
        return
    asked = re.search(r"--num[_-]processes[ =](\d+)", launcher)
    if not asked:
        raise ValueError("several CPU processes: launch them with --config_file recipes/accelerate/cpu.yaml")
    del env["MASTER_ADDR"], env["MASTER_PORT"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", asked[1]]
    os.execv(sys.executable, [*torchrun, *sys.argv])


def open_output_dir(accelerator: Accelerator, args: LoopArguments) -> Path | None:
    """Make `output_dir` ready, and give the checkpoint to go on from, if any. All processes call it.

    Raises:
        FileExistsError: if the folder holds a run that the arguments neither resume nor overwrite.
        FileNotFoundError, ValueError: if the checkpoint to go on from is not complete, or not in `output_dir`.
    """
    output_dir = Path(args.output_dir)
    checkpoint = find_checkpoint(args.resume_from_checkpoint, output_dir)
    if checkpoint and checkpoint.resolve().parent != output_dir.resolve():
        raise ValueError(
            f"resume_from_checkpoint {args.resume_from_checkpoint!r} is not in output_dir {args.output_dir!r},"
            " where the best model of its run is"
        )
    if holds_a_run(output_dir) and not (args.overwrite_output_dir or args.resume_from_checkpoint):
        raise FileExistsError(
            f"output_dir {args.output_dir!r} holds a run: give another folder, --resume_from_checkpoint auto to go"
            " on with it, or --overwrite_output_dir to replace it"
        )
    accelerator.wait_for_everyone()  # everybody has looked before anybody writes
    if accelerator.is_main_process:
        if checkpoint is None:
            delete_checkpoints(output_dir)
        output_dir.mkdir(parents=True, exist_ok=True)
        if args.push_to_hub:  # now, so that a missing right to write shows before the work
            api, name = HfApi(token=args.hub_token), args.hub_model_id or output_dir.resolve().name
            args.hub_model_id = open_repository(api, name, args.hub_private_repo, args.hub_revision)
    accelerator.wait_for_everyone()
    if args.resume_from_checkpoint and checkpoint is None:
        logger.info(f"No complete checkpoint in {output_dir}: starting from the beginning")
    return checkpoint


def check_resumed(state: TrainState, run: dict[str, Any]) -> None:
    """Refuse to go on with a checkpoint of a run that took other steps than this one will.

    Raises:
        ValueError: naming what differs.
    """
    differing = {name: (state.run.get(name), value) for name, value in run.items() if state.run.get(name) != value}
    if differing:
        changes = ", ".join(f"{name} was {old} and is {new}" for name, (old, new) in differing.items())
        raise ValueError(f"resume_from_checkpoint: the checkpoint belongs to another run: {changes}")


def start_trackers(accelerator: Accelerator, project: str, *arguments: Any) -> None:
    """Start the trackers asked for, if any, with the options of a run."""
    if accelerator.log_with:
        accelerator.init_trackers(project, config=tracker_values(*arguments))


def tracker_values(*arguments: Any) -> dict[str, Any]:
    """The options of a run in types that every tracker takes, without the token."""
    values = {name: value for part in arguments for name, value in asdict(part).items() if name != "hub_token"}
    return {name: value if isinstance(value, int | float | str) else str(value) for name, value in values.items()}
