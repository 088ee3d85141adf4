"""The training loop: from the first global batch to the best model, whatever is learned."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import send_to_device, set_seed
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.training.arguments import LoopArguments
from tfm_zoo.training.batches import GlobalBatchSampler, TokenBatchSampler
from tfm_zoo.training.checkpoints import TrainState, load_checkpoint, save_checkpoint, staged
from tfm_zoo.training.freezing import GradualUnfreezing, freeze, what_learns
from tfm_zoo.training.optimization import create_optimizer, create_scheduler
from tfm_zoo.training.runs import check_resumed
from tfm_zoo.training.streams import Stream, StreamBatches, as_it_is

logger = get_logger(__name__)

SHAPING = (
    "seed",
    "learning_rate",
    "lr_scheduler_type",
    "layerwise_lr_decay",
    "freeze",
    "gradual_unfreezing",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "max_grad_norm",
    "mixed_precision",
)


def own_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The loss that the model computes by itself."""
    return model(**batch).loss


@dataclass
class Task:
    """What a loop trains, on what, and how it is judged."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    examples: Dataset  # or a Stream, from which batches of one size are cut
    collate: Callable[[list[Any]], dict[str, Tensor]] | None  # None: torch's own
    # How many items the loss of a batch is the mean over; of a loss in parts, how many each of them is.
    count: Callable[[dict[str, Tensor]], int | Tensor]
    evaluate: Callable[[nn.Module], dict[str, float]]  # figures of the prepared model, the same on every process
    loss: Callable[[nn.Module, dict[str, Tensor]], Tensor] = own_loss  # of a batch, in training
    after_evaluation: Callable[[nn.Module, TrainState], None] | None = None
    before_epoch: Callable[[PreTrainedModel, int], None] | None = None
    # Of the examples, in tokens, to put similar ones into the same batch; of each column where `batch_tokens` is given.
    lengths: Sequence[Any] | None = None
    batch_tokens: int | None = None  # per process and forward pass, instead of `per_device_train_batch_size` examples
    shaping: dict[str, Any] = field(default_factory=dict)  # what else decides which steps are taken


class Loop:
    """Trains a task's model; `run` does it all. `model` is the prepared model, `state` where training stands.

    The best model by `metric_for_best_model` goes to `output_dir`, all files or none, whenever there is a better one.
    """

    def __init__(self, accelerator: Accelerator, args: LoopArguments, task: Task, checkpoint: Path | None = None):
        self.accelerator, self.args, self.task = accelerator, args, task
        self.output_dir = Path(args.output_dir)
        if args.gradient_checkpointing:
            # Not reentrant: gradients reach the layers above frozen embeddings.
            task.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if args.freeze:
            freeze(task.model, args.freeze)
            logger.info(what_learns(task.model))
        self.unfreezing = GradualUnfreezing(task.model, args.gradual_unfreezing) if args.gradual_unfreezing else None

        # The same global batches in the same order, however many processes share them.
        division = {
            "accumulation_steps": args.gradient_accumulation_steps,
            "num_processes": accelerator.num_processes,
            "process_index": accelerator.process_index,
        }
        batch_size = args.per_device_train_batch_size
        if isinstance(task.examples, Stream):
            options = {"collate": task.collate, "max_steps": args.max_train_steps}
            self.batches = StreamBatches(task.examples, batch_size, **options, **division)
            accelerator.register_for_checkpointing(self.batches)  # where in the stream they are
            reading = {"sampler": self.batches, "batch_size": None, "collate_fn": as_it_is}
        else:
            division["seed"] = args.seed
            if task.batch_tokens:
                self.batches = TokenBatchSampler(task.lengths, task.batch_tokens, **division)
            else:
                self.batches = GlobalBatchSampler(len(task.examples), batch_size, lengths=task.lengths, **division)
            reading = {"batch_sampler": self.batches, "collate_fn": task.collate}
        self.loader = DataLoader(
            task.examples,
            num_workers=args.dataloader_num_workers,
            generator=torch.Generator(),  # its own: starting an epoch must not draw from the generator of dropout
            **reading,
        )

        # The schedule counts global batches, so it is not prepared: Accelerate's would count those of every process.
        self.total_steps, warmup_steps = args.number_of_steps(len(self.batches))
        optimizer = create_optimizer(task.model, args)
        d_model = task.model.config.hidden_size
        self.scheduler = create_scheduler(args, optimizer, warmup_steps, self.total_steps, d_model)
        accelerator.register_for_checkpointing(self.scheduler)
        self.model, self.optimizer = accelerator.prepare(task.model, optimizer)
        set_seed(args.seed, device_specific=True)  # each process has its own dropout

        run = {  # what decides which steps are taken: a resumed run must have it in common with the one it continues
            "train_examples": self.batches.size,
            "global_batch_size": self.batches.global_batch_size,
            "num_processes": accelerator.num_processes,
            "total_steps": self.total_steps,
            "warmup_steps": warmup_steps,
            **{name: getattr(args, name) for name in SHAPING},
            **task.shaping,
        }
        self.state = TrainState(run=run)
        if checkpoint:
            check_resumed(TrainState.read(checkpoint), run)  # before the optimiser is given the state of another
            self.state = load_checkpoint(accelerator, checkpoint)
            logger.info(f"Going on from {checkpoint}, step {self.state.step} of {self.total_steps}")

    @property
    def is_finished(self) -> bool:
        patience = self.args.early_stopping_patience
        return self.state.step >= self.total_steps or bool(patience and self.state.evaluations_without_gain >= patience)

    def run(self) -> None:
        """Train, log, evaluate and save, until all steps are done or no evaluation gains any more."""
        accelerator, args, state, batches = self.accelerator, self.args, self.state, self.batches
        unit = " tokens" if self.task.batch_tokens else ""
        name = type(accelerator.unwrap_model(self.model)).__name__
        logger.info(
            f"{name}: {batches.size or 'a stream of'} examples, {self.total_steps} steps of"
            f" {batches.global_batch_size}{unit}, on {accelerator.num_processes} process(es)"
        )
        is_main = accelerator.is_main_process
        progress = tqdm(total=self.total_steps, initial=state.step, disable=None if is_main else True)
        window_loss = torch.tensor(state.window_loss, device=accelerator.device)
        clock = perf_counter()
        self.model.train()
        while not self.is_finished:
            if self.task.before_epoch:
                self.task.before_epoch(accelerator.unwrap_model(self.model), state.epoch)
            batches.set_position(state.epoch, state.step_in_epoch)
            for micro_batches in batches.steps(self.loader):
                if self.unfreezing and self.unfreezing.advance(state.epoch, state.step):
                    logger.info(f"step {state.step}: {what_learns(accelerator.unwrap_model(self.model))}")
                loss, grad_norm = train_step(
                    accelerator,
                    self.model,
                    self.optimizer,
                    self.scheduler,
                    micro_batches,
                    self.task,
                    args.max_grad_norm,
                )
                window_loss += loss
                state.train_examples += batches.examples(state.step_in_epoch)
                state.step += 1
                state.step_in_epoch += 1
                end_of_epoch = state.step_in_epoch == len(batches)
                if end_of_epoch:
                    state.epoch, state.step_in_epoch = state.epoch + 1, 0
                progress.update()

                end = state.step == self.total_steps
                if state.step % args.logging_steps == 0 or end:
                    state.loss_sum += window_loss.item()
                    mean = window_loss.item() / (state.step % args.logging_steps or args.logging_steps)
                    if not math.isfinite(mean):
                        raise FloatingPointError(f"the loss is {mean} at step {state.step}: try a lower learning_rate")
                    learning_rate = self.scheduler.get_last_lr()[0]
                    self.log({"loss": mean, "learning_rate": learning_rate, "grad_norm": float(grad_norm)})
                    progress.set_postfix(loss=f"{mean:.4f}")
                    window_loss.zero_()
                state.train_seconds += perf_counter() - clock

                if end or (state.step % args.eval_steps == 0 if args.eval_steps else end_of_epoch):
                    self.evaluate()
                if args.is_checkpoint_due(state.step, end_of_epoch):
                    state.window_loss = window_loss.item()
                    save_checkpoint(accelerator, state, self.output_dir, keep=args.save_total_limit)
                clock = perf_counter()
                if self.is_finished:
                    break
        progress.close()
        state.loss_sum += window_loss.item()

    def evaluate(self) -> None:
        """Note the figures of the model as it is, and keep it if it is the best so far."""
        figures = self.task.evaluate(self.model)
        self.log({f"eval_{name}": value for name, value in figures.items()})
        shown = ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
        logger.info(f"step {self.state.step}: {shown}")
        if self.state.is_best(figures[self.args.metric_for_best_model], self.args.greater_is_better):
            self.keep()
        if self.task.after_evaluation:
            self.task.after_evaluation(self.model, self.state)

    def keep(self) -> None:
        """Save the model as it is, the best so far."""
        save_model(self.accelerator, self.model, self.task.tokenizer, self.output_dir)

    def log(self, values: dict[str, float]) -> None:
        epoch = round(self.state.step / len(self.batches), 4)
        self.state.log_history.append({"step": self.state.step, "epoch": epoch, **values})
        self.accelerator.log(values, step=self.state.step)

    def best_model(self) -> PreTrainedModel:
        """What was saved, loaded again, whole on each process."""
        model_class: Any = type(self.accelerator.unwrap_model(self.model))
        return model_class.from_pretrained(self.output_dir).to(self.accelerator.device)

    def results(self) -> dict[str, float]:
        """The figures of training, and those of the best model on the validation split."""
        state = self.state
        best = next(e for e in state.log_history if e["step"] == state.best_step and "eval_loss" in e)
        return {
            "best_step": state.best_step,
            "train_steps": state.step,
            "train_loss": state.loss_sum / state.step,
            "train_runtime": state.train_seconds,
            "train_samples_per_second": state.train_examples / state.train_seconds,
            **{name: value for name, value in best.items() if name.startswith("eval_")},
        }


def train_step(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
    micro_batches: Sequence[dict[str, Tensor]],
    task: Task,
    max_grad_norm: float,
) -> tuple[Tensor, Tensor | float | None]:
    """One optimiser step on one global batch, of which `micro_batches` are this process's share.

    The gradient is that of the mean loss over the items of the global batch, however it was divided.

    Args:
        task: its `loss` of a batch is the mean over as many items, examples or tokens, as it does `count`; or the two
            are `(parts,)`, of a loss that is the sum of such means.

    Returns:
        The mean loss of the global batch (on every process), and the gradient's norm before clipping.
    """
    counts = [torch.as_tensor(task.count(batch), device=accelerator.device) for batch in micro_batches]
    items = accelerator.reduce(torch.stack(counts).sum(dim=0), "sum").clamp(min=1)
    loss_sum = torch.zeros(items.shape, device=accelerator.device)
    for index, (batch, count) in enumerate(zip(micro_batches, counts, strict=True)):
        last = index == len(micro_batches) - 1
        accelerator.gradient_state._set_sync_gradients(last)
        with nullcontext() if last else accelerator.no_sync(model):
            loss = task.loss(model, send_to_device(batch, accelerator.device)) * count
            # Gradients are averaged over processes: times their number, the average is the sum.
            accelerator.backward((loss * accelerator.num_processes / items).sum())
        loss_sum += loss.detach().float()
    norm = accelerator.clip_grad_norm_(model.parameters(), max_grad_norm or float("inf"))
    optimizer.step()
    if not accelerator.optimizer_step_was_skipped:  # fp16: the gradients overflowed
        scheduler.step()
    optimizer.zero_grad()
    return (accelerator.reduce(loss_sum, "sum") / items).sum(), norm


def save_model(
    accelerator: Accelerator, model: nn.Module, tokenizer: PreTrainedTokenizerBase, output_dir: Path
) -> None:
    """Save model and tokenizer, all files or none. All processes call it."""
    weights = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        with staged(output_dir) as folder:
            accelerator.unwrap_model(model).save_pretrained(folder, state_dict=weights)
            tokenizer.save_pretrained(folder)
    accelerator.wait_for_everyone()
