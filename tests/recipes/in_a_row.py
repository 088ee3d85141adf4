"""What a launcher starts: recipes one after the other in the same processes, `in_a_row.py jobs.json`."""

import importlib.util
import json
import os
import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DistributedType


def start_anew() -> None:
    """Forget the processes of the last recipe. Accelerate takes FSDP from a launcher on GPUs alone; for it, these are
    such, though FSDP itself computes on the CPU and talks by Gloo."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    if "ACCELERATE_USE_FSDP" in os.environ:
        PartialState(cpu=True)
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU


def main() -> None:
    torch.set_num_threads(1)
    Accelerator.end_training = lambda self: None  # the next recipe needs the processes
    with open(sys.argv[1]) as file:
        jobs = json.load(file)
    for job in jobs:
        os.environ |= job["environment"]
        start_anew()
        spec = importlib.util.spec_from_file_location("recipe", job["recipe"])
        recipe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(recipe)
        sys.argv = [job["recipe"], *job["argv"]]
        recipe.main(job["argv"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
