"""What a launcher starts: `in_a_row.py jobs.json` runs recipes, one after the other, in the same processes."""

import gc
import importlib.util
import json
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DistributedType

import tfm_zoo
from tfm_zoo.models.losses import FEW, IGNORED
from tfm_zoo.training import report
from tfm_zoo.training.loop import train_step
from tfm_zoo.training.run import Run, start_accelerator
from tfm_zoo.training.tasks.pretraining import PretrainingOptions, PretrainingTask

from ..tiny import NO_DROPOUT, ragged_batch, tiny_config, tiny_model

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "recipes"))  # as for a script there, which Python is told to run
VOCABULARY = FEW // 512  # up to 512 labelled tokens are few
WITH_FSDP, WITH_DEEPSPEED = (f"ACCELERATE_USE_{engine}" in os.environ for engine in ("FSDP", "DEEPSPEED"))


def forget_processes() -> None:
    """Let the next run in this process begin as if it were the first. Accelerate takes FSDP from a launcher on GPUs
    alone: for it, processes with FSDP are such, though they compute on the CPU and talk by Gloo."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    if WITH_FSDP:
        PartialState(cpu=True)
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    if WITH_DEEPSPEED:
        PartialState(backend="gloo")


@cache
def imported(script: Path | str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(script).stem, script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def no_picture(log_history: list[dict], path: Path, *metrics: str, best_step: int | None = None) -> None:
    """Instead of `plot_training`, which takes half a second."""
    path.touch()


def run(recipe: str, argv: list[str]) -> None:
    """In a folder of its own, if it has {RANK} in its name, as on another machine."""
    argv = [word.replace("{RANK}", os.environ["RANK"]) for word in argv]
    sys.argv = [recipe, *argv]
    imported(recipe).main(argv)


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
    accelerator.free_memory()


def unequal(file: str) -> None:
    """Three steps, in which the processes have so many labelled tokens that one makes few logits and another many, or
    none; their losses and gradients. One process takes the same steps."""
    args = PretrainingOptions(mixed_precision="no")
    accelerator = start_accelerator(args)
    model = tfm_zoo.TfmBertForMaskedLM(tiny_config(vocab_size=VOCABULARY, **NO_DROPOUT)).train()
    splits = {"validation": [{"labels": [1]}]}
    task = PretrainingTask(run=Run("", accelerator, args), model=model, tokenizer=None, splits=splits)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
    found = {"losses": [], "norms": []}
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    for step, counts in enumerate([(1100, 40), (0, 600), (600, 300)]):
        ids = torch.randint(5, VOCABULARY, (2, 120, 10), generator=torch.Generator().manual_seed(step))
        kept = torch.arange(1200) < torch.tensor(counts)[:, None]
        labels = ids.where(kept.view_as(ids), IGNORED)
        batches = [{"input_ids": ids[part], "labels": labels[part]} for part in range(2)]
        share = batches[accelerator.process_index :: accelerator.num_processes]
        loss_sum, norm = train_step(task, model, optimizer, schedule, share)
        found["losses"].append(accelerator.reduce(loss_sum, "sum").item())
        found["norms"].append(float(norm))
    if accelerator.is_main_process:
        Path(file).write_text(json.dumps(found))
    accelerator.wait_for_everyone()
    accelerator.free_memory()


def main() -> None:
    torch.set_num_threads(1)
    Accelerator.end_training = lambda self: None  # the next job needs the processes
    if WITH_DEEPSPEED:
        import deepspeed

        # Its sums by shared memory take a minute to compile, and training does not use them.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    report.plot_training = no_picture
    gc.freeze()  # Accelerate calls the garbage collector often, which need not look at what was imported
    for job in json.loads(Path(sys.argv[1]).read_text()):
        os.environ |= job["environment"]
        forget_processes()
        globals()[job["function"]](*job["arguments"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
