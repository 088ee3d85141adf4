"""The training loop: from the first global batch to the best model, whatever the task is."""

import inspect
import logging
import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace

import torch
from accelerate.utils import DistributedType, broadcast_object_list, send_to_device, set_seed
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import PreTrainedModel, Trainer
from transformers.training_args import OptimizerNames

from tfm_zoo.data.options import as_mapping
from tfm_zoo.data.splits import pluralize, vocabulary_digest
from tfm_zoo.hub.earlier_models import delete_earlier_model
from tfm_zoo.hub.sharded_models import own_class, rebuilt
from tfm_zoo.training import checkpoints
from tfm_zoo.training.batches import Division, GlobalBatchSampler
from tfm_zoo.training.learning_parts import ADAPTER_FOLDER, Adapters, freeze
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.report import open_hub_repository, push_model, results_of, write_report
from tfm_zoo.training.run import end_training, tracker_values
from tfm_zoo.training.sharding import gather_state_dict, load_saved, shard_shared_tables
from tfm_zoo.training.streaming.streams import Stream, StreamBatches, default_workers
from tfm_zoo.training.task import Batch, Task, sums, with_prefix
from tfm_zoo.utils.locking import atomic_files, hold
from tfm_zoo.utils.schedules import create_schedule

logger = logging.getLogger(__name__)
#: tracker -> its keyword for the name of a run
RUN_NAMES = {"wandb": "name", "trackio": "name", "mlflow": "run_name", "swanlab": "experiment_name"}


def train(loop: "Loop") -> dict[str, float]:
    """Run the loop, leave card and results beside the best model, and return the results. All processes call it."""
    task, accelerator = loop.task, loop.accelerator
    try:
        loop.train()
    except KeyboardInterrupt:
        if accelerator.is_main_process:
            saved = checkpoints.complete_checkpoints(loop.output_dir)[-1:]
            goes_on = f"goes on from {saved[0].name}" if saved else "begins anew: no checkpoint was saved"
            step = f"Stopped at step {loop.state.step} of {loop.total_steps}"
            print(f"\n{step}: --resume_from_checkpoint {goes_on}", file=sys.stderr)
        raise
    if loop.adapters:
        loop.adapters.tuner.unload()  # the model is an ordinary one again
    # The final metrics are those of the saved weights, which are loaded in place: two models may not fit on the device.
    load_saved(accelerator, loop.model, loop.output_dir)
    final = task.final_metrics(loop.model, loop.state)
    results = results_of(loop.state) | final
    accelerator.log(final, step=loop.state.step)
    is_main = accelerator.is_main_process
    if is_main:
        write_report(task, rebuilt(task.unwrapped(loop.model), {}), loop.state, results)  # a card needs only shapes
    loop.model = None  # the last reference to DDP's wrapper, if there is one: see `end_training`
    end_training(accelerator)
    if is_main and task.args.push_to_hub:
        push_model(task)  # last: an error of the Hub loses nothing
    return results


class Loop:
    """Trains the model of a task, and saves it in `output_dir` whenever it is the best by `metric_for_best_model`."""

    def __init__(self, task: Task):
        self.task, self.accelerator = task, task.accelerator
        self.output_dir = Path(task.args.output_dir)
        self.has_begun = False
        for note in task.data.notes if task.data else ():
            logger.warning(note)
        self._choose_what_learns(task.model)
        self.batch_sampler, self.loader = self._make_loader()
        steps_of_epochs = round(self.args.num_train_epochs * self.batch_sampler.steps_per_epoch)
        self.total_steps = self.args.max_train_steps or max(1, steps_of_epochs)
        # Before the model is sharded: afterwards a process has only a part.
        self.num_parameters = task.model.num_parameters()
        if self.accelerator.is_fsdp2:
            shard_shared_tables(self.accelerator, task.model)
        optimizer = create_optimizer(task.model, self.args)
        # The schedule counts global batches. Prepared by Accelerate, it would count the batches of every process.
        name, more = self.args.lr_scheduler_type, as_mapping("lr_scheduler_kwargs", self.args.lr_scheduler_kwargs)
        warmup, width = self.args.warmup_of(self.total_steps), task.model.config.hidden_size
        self.scheduler = create_schedule(name, optimizer, warmup, self.total_steps, width, **more)
        self.accelerator.register_for_checkpointing(self.scheduler)
        self.model, self.optimizer = self.accelerator.prepare(task.model, optimizer)
        set_seed(self.args.seed, device_specific=True)  # each process has its own dropout
        self.local_loss = torch.zeros((), device=self.accelerator.device)  # of this process, not yet collected

        facts = {
            "train_examples": self.batch_sampler.size,
            "global_batch_size": self.batch_sampler.division.global_batch_size,
            "num_processes": self.accelerator.num_processes,
            "total_steps": self.total_steps,
            "warmup_steps": warmup,
            "tokenizer": vocabulary_digest(task.tokenizer),
            **checkpoints.facts_of_launch(self.accelerator, self.args),
            **task.facts,
        }
        self.state = checkpoints.TrainState(identity=checkpoints.identity_of(facts, self.args))

    def _choose_what_learns(self, model: PreTrainedModel) -> None:
        args = self.args
        if args.gradient_checkpointing:
            # Not reentrant, so that gradients reach the layers above frozen embeddings.
            name_of_later_releases = "activation_checkpointing_enable"
            getattr(model, name_of_later_releases, model.gradient_checkpointing_enable)({"use_reentrant": False})
        self.adapters = Adapters(model, args) if args.lora_rank else None
        if args.freeze:
            freeze(model, args.freeze)
        if self.adapters or args.freeze:
            learning, all_of_them = model.num_parameters(only_trainable=True), model.num_parameters()
            logger.info(f"{learning:,} of {all_of_them:,} parameters learn")

    def _make_loader(self) -> tuple[GlobalBatchSampler | StreamBatches, DataLoader]:
        """What draws the global batches, and the loader of this process's share of them.

        Accelerate does not prepare the loader: it would divide batches among the processes in its own way. The sampler
        divides them itself, the same for any number of processes, and also groups what the loader yields into steps.
        """
        args, task, accelerator, examples = self.args, self.task, self.accelerator, self.task.splits["train"]
        shares = accelerator.num_processes, accelerator.process_index
        division = Division(args.per_device_train_batch_size, args.gradient_accumulation_steps, *shares)
        workers, is_stream = args.dataloader_num_workers, isinstance(examples, Stream)
        # Pinned memory is copied while the device computes. With a generator of its own, the
        # loader draws nothing from torch's global one, which dropout uses.
        loading = {"pin_memory": accelerator.device.type != "cpu", "generator": torch.Generator()}
        loading["num_workers"] = (default_workers() if is_stream else 0) if workers is None else workers
        if not is_stream:
            sampler = task.make_batch_sampler(division)
            return sampler, DataLoader(examples, batch_sampler=sampler, collate_fn=task.collate, **loading)
        batches = StreamBatches(examples, division, task.collate, args.max_train_steps or 0)
        accelerator.register_for_checkpointing(batches)  # to continue at the same place of the stream
        # The stream yields tuples. As `collate_fn`, `tuple` leaves them as they are.
        return batches, DataLoader(batches, batch_size=None, collate_fn=tuple, **loading)

    @property
    def args(self) -> TrainingOptions:
        return self.task.args

    @property
    def is_finished(self) -> bool:
        patience = self.args.early_stopping_patience
        return self.state.step >= self.total_steps or bool(patience and self.state.evaluations_without_gain >= patience)

    def begin(self) -> None:
        """Lock the folder; go on from its checkpoint, or else delete results and checkpoints of the run before. (Its
        model stays until there is a new one.) All processes call it: in recipes inside `errors_in_one_line`, since
        mistakes in options still show here."""
        if self.has_begun:
            return
        accelerator, folder = self.accelerator, self.output_dir
        if self.args.push_to_hub and accelerator.is_main_process:
            self.task.run = open_hub_repository(self.task.run)
        accelerator.wait_for_everyone()  # every process has looked at the folder before one writes
        if accelerator.is_main_process:
            folder.mkdir(parents=True, exist_ok=True)
            self.lock = hold(folder, folder / ".lock")  # as long as it is referred to
        accelerator.wait_for_everyone()
        # Looked for again, behind the lock: another run may have gone on, or ended, since `start_run`.
        checkpoint = checkpoints.starting_point(accelerator, self.args)
        if checkpoint:
            self.resume(checkpoint)
        elif self.args.resume_from:
            logger.info(f"No complete checkpoint in {folder}: starting from the beginning")
        name = self.args.run_name
        init_kwargs = {tracker: {keyword: name} for tracker, keyword in RUN_NAMES.items()} if name else {}
        accelerator.init_trackers(self.task.run.name, tracker_values(self.args), init_kwargs)
        accelerator.wait_for_everyone()  # every process has looked again
        if accelerator.is_main_process:
            checkpoints.clear(folder, goes_on=checkpoint is not None)
        accelerator.wait_for_everyone()
        if self.args.checkpointing_steps and not folder.is_dir():
            raise ValueError(f"checkpointing_steps: not all machines see output_dir {self.args.output_dir!r}")
        self.has_begun = True

    def resume(self, checkpoint: Path) -> None:
        """Go on from a checkpoint of this run. Nothing is written."""
        if (checkpoint / "training_args.bin").exists():
            raise ValueError(f"{checkpoint} is of transformers' Trainer: go on with as_trainer, or change output_dir")
        state = checkpoints.TrainState.read(checkpoint)
        # Compare before weights are loaded, which may be another run's. The warm-up of a longer run is longer, too. So
        # the number of its steps is compared as if the run had its recorded length.
        steps = state.identity.get("total_steps", self.total_steps)
        changes = checkpoints.check_identity(state, self.state.identity | {"warmup_steps": self.args.warmup_of(steps)})
        if state.step > self.total_steps:
            raise ValueError(f"resume_from_checkpoint: {checkpoint} is of step {state.step}, of {self.total_steps} now")
        self.accelerator.load_state(str(checkpoint))
        # Which step's model the folder holds; what the main process reads counts for all.
        has_state = (self.output_dir / checkpoints.STATE_FILE).exists()
        saved_step = checkpoints.TrainState.read(self.output_dir).best_step if has_state else None
        (saved_step,) = broadcast_object_list([saved_step])
        if state.best_step is not None and state.best_step != saved_step:
            logger.warning(f"{self.output_dir} has another model than the best at {checkpoint.name}: choosing it anew")
            state.best_metric = state.best_step = None
        self.state = replace(state, identity=self.state.identity, changes=state.changes + changes)
        logger.info(f"Continuing from {checkpoint}, step {self.state.step} of {self.total_steps}")

    def train(self) -> None:
        """Train, log, evaluate and save, until all steps are done or the evaluations no longer improve."""
        self.begin()
        args, state, sampler = self.args, self.state, self.batch_sampler
        examples = f"{sampler.size or 'an unknown number of'} {self.task.name_of_examples}"
        steps = f"{pluralize(self.total_steps, 'step')} of {sampler.division.global_batch_size}"
        size = f"{own_class(self.task.unwrapped(self.model)).__name__}, {self.num_parameters:,} parameters"
        logger.info(f"{size}: {examples}, {steps}, on {pluralize(self.accelerator.num_processes, 'process')}")
        self.progress = tqdm(total=self.total_steps, initial=state.step, disable=self.task.hides_bars)
        clock = perf_counter()
        self.model.train()
        while not self.is_finished:
            sampler.set_position(state.epoch, state.step_in_epoch)
            # The loader yields micro-batches one by one; the sampler knows how many belong to a step.
            for micro_batches in sampler.steps(self.loader):
                loss, grad_norm = train_step(self.task, self.model, self.optimizer, self.scheduler, micro_batches)
                self.local_loss += loss
                state.train_examples += sampler.examples_in(state.step_in_epoch)
                state.step += 1
                state.step_in_epoch += 1
                end_of_epoch = state.step_in_epoch == sampler.steps_per_epoch
                if end_of_epoch:
                    state.epoch, state.step_in_epoch = state.epoch + 1, 0
                self.progress.update()

                end = state.step == self.total_steps
                if end or is_due(args.logging_steps, state.step, end_of_epoch):
                    self.log_losses(grad_norm)
                state.train_seconds += perf_counter() - clock

                if end or is_due(args.eval_steps or "epoch", state.step, end_of_epoch):
                    self.evaluate()
                if args.checkpointing_steps and is_due(args.checkpointing_steps, state.step, end_of_epoch):
                    self.save_checkpoint()
                clock = perf_counter()
                if self.is_finished:
                    break
        self.progress.close()
        if state.step < self.total_steps:
            patience = pluralize(args.early_stopping_patience, "evaluation")
            logger.info(f"step {state.step} of {self.total_steps}: stopped, after {patience} without a gain")
        self.close_window()  # there may be steps since the last entry
        # A resumed run may have no step left: its last step may lack an evaluation, or its best model may be gone.
        if state.best_step is None or state.last_step_with("eval_loss") != state.step:
            self.evaluate()

    def collect_losses(self) -> None:
        """Add the losses of all processes to those since the last entry of the log. All processes call it."""
        self.state.window_loss += self.accelerator.reduce(self.local_loss, "sum").item()
        self.local_loss.zero_()

    def close_window(self) -> float:
        """Move the losses since the last entry of the log into the sum of all; return them. All processes call it."""
        self.collect_losses()
        loss, self.state.window_loss = self.state.window_loss, 0.0
        self.state.loss_sum += loss
        return loss

    def save_checkpoint(self) -> None:
        """Write a checkpoint. All processes call it."""
        self.collect_losses()
        checkpoints.save_checkpoint(self.accelerator, self.state, self.output_dir, self.args.save_total_limit)

    def evaluate(self) -> None:
        """Log the metrics of the model, and save it if it is the best so far."""
        metrics = self.task.evaluate(self.model)
        self.log(with_prefix(metrics, "validation") | {"train_runtime": self.state.train_seconds})
        shown = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        logger.info(f"step {self.state.step}, validation: {shown}")
        self.task.check_best(metrics)
        best = metrics[self.args.metric_for_best_model]
        if self.state.record_evaluation(best, self.args.is_higher_better, metrics["loss"]):
            self.save_best()
        self.task.after_evaluation(self.model, self.state)

    def log_losses(self, grad_norm: Tensor | float | None) -> None:
        """Log the mean loss of the steps since the last entry. Where there is no bar, it is a line."""
        state, loss = self.state, self.close_window()
        mean = loss / (state.step - state.last_step_with("loss"))
        if not math.isfinite(mean):
            raise FloatingPointError(f"the loss is {mean} at step {state.step}: try a lower learning_rate")
        norm = {} if grad_norm is None else {"grad_norm": float(grad_norm)}  # DeepSpeed may not give one
        self.log({"loss": mean, "learning_rate": self.scheduler.get_last_lr()[0], **norm})
        self.progress.set_postfix(loss=f"{mean:.4f}")
        if self.progress.disable:
            logger.info(f"step {state.step} of {self.total_steps}: loss {mean:.4f}")

    def log(self, values: dict[str, float]) -> None:
        """Add values to the history, with the epoch if its examples were counted, and send them to the trackers."""
        step, sampler = self.state.step, self.batch_sampler
        epoch = {"epoch": round(step / sampler.steps_per_epoch, 4)} if sampler.size else {}
        self.state.log_history.append({"step": step, **epoch, **values})
        self.accelerator.log(values, step=step)

    def save_best(self) -> None:
        """Save the model, the best so far, and its tokenizer, all files or none. All processes call it."""
        weights = gather_state_dict(self.accelerator, self.model)
        if self.accelerator.is_main_process:
            model = self.task.unwrapped(self.model)
            plain = self.adapters.merged(weights) if self.adapters else weights
            if self.adapters or self.accelerator.distributed_type == DistributedType.DEEPSPEED:
                model = rebuilt(model, plain)  # DeepSpeed's weights may differ in dtype from those of the wrapped model
            with atomic_files(self.output_dir, checkpoints.WRITE_LAST) as folder:
                if self.adapters:
                    self.adapters.save(weights, folder / ADAPTER_FOLDER)
                model.save_pretrained(folder, state_dict=plain)  # with code and manifest of a zoo model: hub/saving.py
                self.task.save_tokenizer(folder)
                self.state.write(folder)  # names the step of this model
                if self.args.overwrite_output_dir:
                    delete_earlier_model(self.output_dir, but_for=folder)
        self.accelerator.wait_for_everyone()


def is_due(every: int | str, step: int, end_of_epoch: bool) -> bool:
    """Whether something is to be done after this step: `every` so many steps, or "epoch"."""
    return end_of_epoch if every == "epoch" else step % int(every) == 0


def train_step(
    task: Task, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler, micro_batches: Sequence[Batch]
) -> tuple[Tensor, Tensor | float | None]:
    """One optimiser step on one global batch; `micro_batches` are this process's share.

    The gradient is that of the mean loss over the items (examples or tokens) of the global batch, however the batch was
    divided. Returns what this process adds to that loss, and the gradient's norm before clipping.
    """
    accelerator, args = task.accelerator, task.args
    counts = [sums(task.count_items(batch)) for batch in micro_batches]
    mine = torch.stack(counts).sum(dim=0)  # `(losses,)`: often one
    items = accelerator.reduce(mine.to(accelerator.device, non_blocking=True), "sum")
    summed = torch.zeros(items.shape, device=accelerator.device)
    # Without a label in any process, momentum and decay must not move weights. (`mine` is asked first: to read `items`
    # is to wait for the device.)
    if not mine.any() and not items.any():
        scheduler.step()
        return summed.sum(), 0.0
    items = items.where(items > 0, 1)  # a loss without items is 0, divided by 1
    for number, batch in enumerate(micro_batches, 1):
        # (`accelerator.accumulate` would set this, which clipping, the optimizer and DeepSpeed read.)
        accelerator.sync_gradients = is_last = number == len(micro_batches)
        with nullcontext() if is_last or args.sync_each_batch else accelerator.no_sync(model):
            batch = send_to_device(batch, accelerator.device, non_blocking=True)
            losses = task.sum_losses(task.compute_batch(model, batch))
            # Accelerate averages gradients over processes; times their number, the average is the sum.
            accelerator.backward((losses * accelerator.num_processes / items).sum())
        summed += losses.detach()
    norm = accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm or float("inf"))  # inf: for the log alone
    optimizer.step()
    if not accelerator.optimizer_step_was_skipped:  # fp16: the gradients overflowed
        scheduler.step()
    optimizer.zero_grad()
    return (summed / items).sum(), norm


def create_optimizer(model: nn.Module, args: TrainingOptions) -> Optimizer:
    """The optimiser that `optim` names, as torch or transformers does. Biases and norms, the vectors, do not decay."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": args.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    kind = getattr(torch.optim, args.optim, None)
    try:
        if isinstance(kind, type) and issubclass(kind, Optimizer):
            adam = {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
            options = adam if "betas" in inspect.signature(kind).parameters else {}
            options = options | as_mapping("optim_args", args.optim_args) | {"lr": args.learning_rate}
        else:
            # transformers' names, as the default adamw_torch. What reads other settings of a Trainer fails here.
            names = ("optim_args", "learning_rate", "adam_beta1", "adam_beta2", "adam_epsilon")
            values = {name: getattr(args, name) for name in names} | {"optim": OptimizerNames(args.optim)}
            kind, options = Trainer.get_optimizer_cls_and_kwargs(SimpleNamespace(**values))
        return kind(groups, **options)
    except (AttributeError, ImportError, TypeError, ValueError) as error:  # or a library is missing
        raise ValueError(f"optim {args.optim!r} with optim_args {args.optim_args!r}: {error}") from error
