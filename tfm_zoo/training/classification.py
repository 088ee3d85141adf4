"""The steps of a classification loop: one optimiser step, one evaluation, saving."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import send_to_device
from evaluate import EvaluationModule
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.training.checkpoints import staged


def train_step(
    accelerator: Accelerator,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
    micro_batches: Sequence[dict[str, Tensor]],
    max_grad_norm: float,
) -> tuple[Tensor, Tensor | float | None]:
    """One optimiser step on one global batch, of which `micro_batches` are this process's share.

    The gradient is that of the mean loss over the global batch, however it was divided.

    Returns:
        The mean loss of the global batch (on every process), and the gradient's norm before clipping.
    """
    examples = torch.tensor(sum(len(batch["labels"]) for batch in micro_batches), device=accelerator.device)
    examples = accelerator.reduce(examples, "sum")
    loss_sum = torch.zeros((), device=accelerator.device)
    for index, batch in enumerate(micro_batches):
        last = index == len(micro_batches) - 1
        accelerator.gradient_state._set_sync_gradients(last)
        with nullcontext() if last else accelerator.no_sync(model):
            batch = send_to_device(batch, accelerator.device)
            loss = model(**batch).loss * len(batch["labels"])
            # Gradients are averaged over processes: times their number, the average is the sum.
            accelerator.backward(loss * accelerator.num_processes / examples)
        loss_sum += loss.detach().float()
    norm = accelerator.clip_grad_norm_(model.parameters(), max_grad_norm or float("inf"))
    optimizer.step()
    if not accelerator.optimizer_step_was_skipped:  # fp16: the gradients overflowed
        scheduler.step()
    optimizer.zero_grad()
    return accelerator.reduce(loss_sum, "sum") / examples, norm


@torch.no_grad()
def evaluate_classifier(
    accelerator: Accelerator, model: torch.nn.Module, loader: Iterable[dict[str, Tensor]], metric: EvaluationModule
) -> dict[str, float]:
    """Mean loss, the metric's figures and examples per second, the same on every process.

    Args:
        loader: batches with "labels", prepared by the accelerator.
    """
    model.eval()
    predictions, references, losses = [], [], []
    start = perf_counter()
    for batch in loader:
        labels = batch["labels"]
        with accelerator.autocast():
            logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits.float()
        loss = F.cross_entropy(logits, labels, reduction="none")
        # Drops the examples that filled up the last batch so that every process had one.
        for values, part in zip(
            (predictions, references, losses),
            accelerator.gather_for_metrics((logits.argmax(-1), labels, loss)),
            strict=True,
        ):
            values.extend(part.tolist())
    seconds = perf_counter() - start
    model.train()
    return {
        "loss": sum(losses) / len(losses),
        **metric.compute(predictions=predictions, references=references),
        "samples_per_second": len(losses) / seconds,
    }


def save_model(
    accelerator: Accelerator, model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, output_dir: Path
) -> None:
    """Save model and tokenizer, all files or none. All processes call it."""
    weights = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        with staged(output_dir) as folder:
            accelerator.unwrap_model(model).save_pretrained(folder, state_dict=weights)
            tokenizer.save_pretrained(folder)
    accelerator.wait_for_everyone()


def load_saved(accelerator: Accelerator, model: torch.nn.Module, output_dir: Path) -> PreTrainedModel:
    """The model that `save_model` wrote, whole on each process."""
    model_class: Any = type(accelerator.unwrap_model(model))
    return model_class.from_pretrained(output_dir).to(accelerator.device)
