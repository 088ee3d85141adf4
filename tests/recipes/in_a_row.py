"""What a launcher starts: `in_a_row.py jobs.json` runs recipes, one after the other, in the same processes."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DistributedType
from transformers.distributed import DistributedConfig

import tfm_zoo

from ..tiny import ragged_batch, tiny_model

WITH_FSDP, WITH_DEEPSPEED = (f"ACCELERATE_USE_{engine}" in os.environ for engine in ("FSDP", "DEEPSPEED"))


def run(recipe: str, argv: list[str]) -> None:
    spec = importlib.util.spec_from_file_location("recipe", recipe)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.argv = [recipe, *argv]
    module.main(argv)


def save(folder: str) -> None:
    """A model that has just been prepared, in every way that users save it."""
    accelerator = Accelerator(cpu=WITH_FSDP)
    if WITH_DEEPSPEED:
        accelerator.state.deepspeed_plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = 1
    head = tfm_zoo.TfmGPTForCausalLM
    model = tiny_model(head)
    model, _ = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    model(**ragged_batch(head))  # leaves some of the weights whole
    weights, is_main = accelerator.get_state_dict(model), accelerator.is_main_process
    whole, options = accelerator.unwrap_model(model), {"state_dict": weights, "is_main_process": is_main}
    whole.save_pretrained(Path(folder, "accelerate"), save_function=accelerator.save, **options)
    if is_main:
        whole.save_pretrained(Path(folder, "trainer"), state_dict=weights)
    if WITH_FSDP:
        whole.save_pretrained(Path(folder, "own"))
        accelerator.wait_for_everyone()
        distributed = {"distributed_config": DistributedConfig(fsdp_size=2)}
        head.from_pretrained(Path(folder, "own"), **distributed).save_pretrained(Path(folder, "transformers"))
    accelerator.wait_for_everyone()
    accelerator.free_memory()


def start_anew() -> None:
    """Forget the processes of the last job. Accelerate takes FSDP from a launcher on GPUs alone: for it, these are
    such, though FSDP computes on the CPU and talks by Gloo."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    if WITH_FSDP:
        PartialState(cpu=True)
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    if WITH_DEEPSPEED:
        PartialState(backend="gloo")


def main() -> None:
    torch.set_num_threads(1)
    Accelerator.end_training = lambda self: None  # the next job needs the processes
    if WITH_DEEPSPEED:
        import deepspeed

        # Its sums by shared memory take a minute to compile, and training does not use them.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    for job in json.loads(Path(sys.argv[1]).read_text()):
        os.environ |= job["environment"]
        start_anew()
        globals()[job["function"]](*job["arguments"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
