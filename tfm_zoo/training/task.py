"""What the training loop needs of a task: the losses of a batch's items, and the metrics of a split."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.converters.token_positions import check_room
from tfm_zoo.data.splits import Data, final_split
from tfm_zoo.metrics import MetricError, Metrics, check_kinds, load_metrics
from tfm_zoo.models.losses import IGNORED
from tfm_zoo.proof.manifest import complete_manifest
from tfm_zoo.training.batches import Division, GlobalBatchSampler
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.options import TrainingOptions, cap_lengths, is_zoo
from tfm_zoo.training.run import Run
from tfm_zoo.utils.folder_kinds import MANIFEST
from tfm_zoo.utils.quiet import shown_bars

Batch = dict[str, Tensor]  # what a model reads, and its labels
Tensors = dict[str, Tensor]  # what is computed of a batch, by name
PREFIXES = {"validation": "eval", "test": "test"}  # of a split's metrics in the results


@dataclass(kw_only=True)
class Task(ABC):
    """What is trained: a model, its examples, their losses and their metrics.

    `compute_batch` gives the losses of a batch's items, and `count_items` their number. The loss of a training step and
    that of a split are both the sum of these losses, divided by the number of items.
    """

    run: Run
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    #: examples by split: "train" (perhaps a `Stream`), "validation" and perhaps "test"
    splits: Mapping[str, Any]
    collate: Callable[[list[Any]], Batch] | None = None  # None: torch's own
    #: what a resumed run must share besides options: digests of the data, and what the model decides
    facts: dict[str, Any] = field(default_factory=dict)
    data: Any = None  # where the examples come from, with `notes` on them and, if they are rows, `usual_metrics`
    lengths: Sequence[Any] | None = None  # tokens of each training example, by which similar ones share a batch

    pipeline_tag: ClassVar[str]
    #: loss -> the entry of a batch that holds its labels, one for each item (-100: no item)
    label_of_loss: ClassVar[Mapping[str, str]] = {"loss": "labels"}
    usual_best: ClassVar[str] = "loss"  # picks the best model, if no option does; the first of `usual_metrics` gives it
    collator_class: ClassVar[type] = DataCollatorWithPadding  # of tasks whose data are rows
    languages: ClassVar[Sequence[str] | None] = None  # codes of the languages that the model knows
    metric_titles: ClassVar[dict[str, str]] = {}  # metric -> its name in the card; others go by their own name
    name_of_examples: ClassVar[str] = "examples"  # in the log and the card

    def __post_init__(self) -> None:
        self.is_zoo = is_zoo(self.model.config)
        self.final_split = final_split(self.splits)  # whose figures the card's metadata state
        args, known = self.args, [*dict.fromkeys(("loss", *self.known_metrics))]
        if args.metrics:
            check_kinds(args.metrics, self.data.usual_metrics[0])
        # What picks the best: the option; else `usual_best`, if the metric that gives it is used; else the loss.
        usual = self.usual_best if not args.metrics or self.data.usual_metrics[0] in args.metrics else "loss"
        best = (args.metric_for_best_model or usual).removeprefix("eval_")
        # Results of metrics that options name are looked for after the first evaluation: only the metric knows them.
        if best not in known and not args.metrics:
            raise ValueError(f"metric_for_best_model {best!r}: expected one of {known}")
        if best != args.metric_for_best_model:  # (no option of compare_architectures.py, where `replace` refuses it)
            self.run = replace(self.run, args=replace(args, metric_for_best_model=best))
        loading = {
            "batch_size": args.per_device_eval_batch_size,
            "collate_fn": self.collate,
            "num_workers": args.dataloader_num_workers or 0,
            "generator": torch.Generator(),  # an evaluation draws nothing from torch's global one: see `_make_loader`
        }
        self.loaders = {
            name: self.accelerator.prepare_data_loader(DataLoader(split, **loading))
            for name, split in self.splits.items()
            if name != "train"
        }

    @property
    def known_metrics(self) -> Iterable[str]:
        """What evaluations give, if the options name no metrics."""
        return self.metric_titles

    def check_best(self, metrics: Mapping[str, float]) -> None:
        """If the metric that picks the best model is missing: refuse one that an option named. Else take the loss."""
        if (best := self.args.metric_for_best_model) not in metrics:
            if self.run.names_best:
                raise MetricError(f"metric_for_best_model {best!r}: expected one of {[*metrics]}")
            self.run = replace(self.run, args=replace(self.args, metric_for_best_model="loss", greater_is_better=None))

    @property
    def accelerator(self) -> Accelerator:
        return self.run.accelerator

    @property
    def args(self) -> TrainingOptions:
        return self.run.args

    @cached_property
    def metrics(self) -> Metrics:
        """The metrics of predictions: those that the options name, or else the usual ones."""
        return self.run.metrics or load_metrics(self.data.usual_metrics)

    def make_batch_sampler(self, division: Division) -> GlobalBatchSampler:
        """What draws the batches of the training examples in memory."""
        return GlobalBatchSampler(len(self.splits["train"]), division, self.args.seed, self.lengths)

    @abstractmethod
    def compute_batch(self, model: nn.Module, batch: Batch) -> Tensors:
        """The losses of the batch's items, by the names in `label_of_loss`, and what `compute_metrics` needs besides.

        In training (`torch.is_grad_enabled()`) only the losses are needed, and they may be smoothed. A loss may be
        `(items,)`, `(examples,)` or `(1,)`: only its sum over the batch is used. In evaluations everything is
        `(examples, ...)`: Accelerate fills the last batch with copies, and `evaluate` drops them. A task whose batches
        are always full may give `(1,)`.
        """

    def count_items(self, batch: Batch) -> Tensors:
        """How many items each example has, `(examples,)`, for each loss whose labels the batch has."""
        labels = {loss: batch[name] for loss, name in self.label_of_loss.items() if name in batch}
        return {f"{loss}_items": (each != IGNORED).view(len(each), -1).sum(dim=1) for loss, each in labels.items()}

    def sum_losses(self, computed: Tensors) -> Tensor:
        """The sum of each loss over the items of a batch, `(losses,)`."""
        return sums({loss: computed[loss].float() for loss in self.label_of_loss if loss in computed})

    def evaluate_batch(self, model: nn.Module, batch: Batch) -> Tensors:
        """What `compute_metrics` reads: what `compute_batch` gives, and the numbers of items."""
        return {**self.compute_batch(model, batch), **self.count_items(batch)}

    def compute_metrics(self, computed: Tensors, split: str) -> dict[str, float]:
        """The metrics of a split, by default its losses, from what `evaluate_batch` gave for all of its batches: the
        loss of each example, such as `computed["loss"]`, and its number of items, `computed["loss_items"]`."""
        losses = [loss for loss in self.label_of_loss if loss in computed]
        means = {loss: (computed[loss].double().sum() / computed[f"{loss}_items"].sum()).item() for loss in losses}
        return {"loss": sum(means.values()), **means}  # the sum, where a task has several losses

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "validation") -> dict[str, float]:
        """The metrics of a split, the same on every process, and how many examples were evaluated per second."""
        model.eval()
        start = perf_counter()
        batches = tqdm(self.loaders[split], desc=f"evaluating, {split}", leave=False, disable=self.hides_bars)
        # `gather_for_metrics` drops the examples that filled up the last batch so that every process had one.
        gathered = [self.accelerator.gather_for_metrics(self.evaluate_batch(model, batch)) for batch in batches]
        computed = {name: torch.cat([part[name].cpu() for part in gathered]) for name in gathered[0]}
        seconds = perf_counter() - start
        model.train()
        return self.compute_metrics(computed, split) | {"samples_per_second": len(self.splits[split]) / seconds}

    def unwrapped(self, model: nn.Module) -> PreTrainedModel:
        """The model inside the wrappers of engines, DDP and `torch.compile`."""
        return self.accelerator.unwrap_model(model, keep_torch_compile=False)

    @property
    def hides_bars(self) -> bool | None:
        """What `tqdm` takes as `disable`. `None`: bars are shown where stderr is a terminal."""
        return None if self.accelerator.is_main_process else True

    def save_tokenizer(self, folder: Path) -> None:
        """Save what makes texts into tokens beside the model, and add it to the manifest of a zoo model."""
        self.tokenizer.save_pretrained(folder)
        if (folder / MANIFEST).exists():
            complete_manifest(folder)

    def after_evaluation(self, model: nn.Module, state: TrainState) -> None:  # noqa: B027
        """Called on every process after each evaluation."""

    def final_metrics(self, best: nn.Module, state: TrainState) -> dict[str, float]:
        """Metrics of the best model, by default those of the test split, if any, under names like `test_loss`."""
        return with_prefix(self.evaluate(best, "test"), "test") if "test" in self.splits else {}


class TokenTask(Task):
    """A task whose items are tokens: its metrics are the mean loss of a token, in nats, and the perplexity."""

    metric_titles = {"loss": "loss per token", "perplexity": "perplexity"}

    def compute_metrics(self, computed: Tensors, split: str) -> dict[str, float]:
        losses = super().compute_metrics(computed, split)
        return {**losses, "perplexity": math.exp(min(losses["loss"], 700))}


def collator(
    collator_class: type, tokenizer: PreTrainedTokenizerBase, accelerator: Accelerator, longest: int, max_length: int
) -> Callable[[list[Any]], Batch]:
    """A collator of transformers for examples of at most `max_length` tokens. In mixed precision it pads to a multiple
    of 8, which is faster on GPUs, if that is no more than `longest`, the most tokens that the model takes."""
    fits = -(-max_length // 8) * 8 <= longest
    return collator_class(tokenizer, pad_to_multiple_of=8 if accelerator.mixed_precision != "no" and fits else None)


def load_task_of_rows(
    task_class: type[Task], run: Run, load_data: Callable[[Any], Data], build: Callable[[Any, Data], Sequence[Any]]
) -> Task:
    """The task of a run whose data are rows. `build` gives a model and its tokenizer, or a translator's two."""
    accelerator = run.accelerator
    with accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        data = load_data(run.args)
        model, *built = build(run.args, data)
        tokenizers = dict(zip(("tokenizer", "target_tokenizer"), built, strict=False))
        longest = longest_input(model.config, tokenizers["tokenizer"])
        args = cap_lengths(run.args, longest, *run.args.length_options)
        for name, tokenizer_name in args.length_options.items():
            check_room(getattr(args, name), tokenizers[tokenizer_name], name, pair=data.are_pairs)
        with shown_bars(accelerator.is_main_process):
            splits = data.encode(args, model, **tokenizers)
    max_length = max(getattr(args, name) for name in args.length_options)
    collate = collator(task_class.collator_class, tokenizers["tokenizer"], accelerator, longest, max_length)
    if args.pad_to_max_length:
        collate.padding, collate.max_length = "max_length", max_length
    return task_class(
        run=replace(run, args=args),
        model=model,
        splits=splits,
        collate=collate,
        facts=data.digests,
        data=data,
        lengths=[*map(len, splits["train"]["input_ids"])] if args.group_by_length else None,
        **tokenizers,
    )


def with_prefix(metrics: Mapping[str, Any], split: str) -> dict[str, Any]:
    """Metrics of a split under the names that they have in the results, such as `eval_loss`."""
    return {f"{PREFIXES[split]}_{name}": value for name, value in metrics.items()}


def inputs_of(batch: Batch) -> Batch:
    """The part of a batch that the model reads: all but what it predicts."""
    return {name: value for name, value in batch.items() if name not in ("labels", "next_sentence_label")}


def sums(values: Tensors) -> Tensor:
    """The sum of each of these tensors, `(tensors,)`."""
    return torch.stack([each.sum() for each in values.values()])


def sums_of_rows(values: Tensor, mask: Tensor) -> Tensor:
    """The sum of each row's items, `(rows,)`, of `(items,)` in order; `mask` is true at the places of items."""
    return values.new_zeros(len(mask)).index_add_(0, mask.nonzero()[:, 0], values)
