"""What the training loop needs of a task: the loss of a batch, how many items it is the mean of, an evaluation."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.converters.limits import check_room
from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.data import Data
from tfm_zoo.training.metrics import Metrics, load_metrics
from tfm_zoo.training.models import ModelAndTokenizer, longest_input
from tfm_zoo.training.options import TrainingOptions, fitted, is_zoo
from tfm_zoo.training.run import Run
from tfm_zoo.utils.quiet import shown_bars

Batch = dict[str, Tensor]


@dataclass(kw_only=True)
class Task(ABC):
    """What is trained: a model, its examples, its loss and its evaluation.

    `loss` is a mean and `count` its number of items: `train_step` multiplies them, so that every item of a global batch
    weighs the same. Evaluations do not call `loss`: their loss comes from `measure`. Who changes one checks all three.
    """

    accelerator: Accelerator
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    args: TrainingOptions
    #: examples by split: "train" (perhaps a `Stream`), "validation" and perhaps "test"
    splits: Mapping[str, Any]
    collate: Callable[[list[Any]], Batch] | None = None  # None: torch's own
    facts: dict[str, Any] = field(default_factory=dict)  # about the data, for the identity of the run
    data: Any = None  # where the examples come from: with `notes` on them, and its `own_splits`, which were not cut
    metrics: Metrics | None = None  # of predictions, if the task makes any
    score_names: Sequence[str] = ()  # the figures that these give

    #: tokens per process and forward pass; None: batches of `per_device_train_batch_size` examples
    batch_tokens: int | None = None
    #: tokens of each example, by which similar ones share a batch; with `batch_tokens`, a number for each column
    lengths: Sequence[Any] | None = None

    pipeline_tag: ClassVar[str]
    label_names: ClassVar[Sequence[str]] = ("labels",)  # of a batch, one for each part of the loss; -100: no label
    figure_names: ClassVar[Sequence[str]] = ("loss",)  # what an evaluation gives beside the scores of metrics
    collator_class: ClassVar[type] = DataCollatorWithPadding  # of tasks whose data are rows
    languages: ClassVar[Sequence[str] | None] = None  # codes of the languages that the model knows
    titles: ClassVar[dict[str, str]]  # name of a figure -> its name in the card; others go by their own name
    name_of_examples: ClassVar[str] = "examples"  # in the log and the card

    def __post_init__(self) -> None:
        self.is_zoo = is_zoo(self.model.config)
        loading = {
            "batch_size": self.args.per_device_eval_batch_size,
            "collate_fn": self.collate,
            "num_workers": self.args.dataloader_num_workers or 0,
        }
        self.loaders = {
            name: self.accelerator.prepare_data_loader(DataLoader(split, **loading))
            for name, split in self.splits.items()
            if name != "train"
        }

    @classmethod
    def figures_of(cls, args: TrainingOptions, scores: Sequence[str]) -> list[str]:
        """The names of what an evaluation gives, where metrics give these scores."""
        return [*cls.figure_names, *scores]

    @property
    def headline(self) -> Sequence[str]:
        """The figures that the card's metadata name, by default those of the metrics, if there are any."""
        return self.score_names or self.figure_names

    @property
    def drawn(self) -> Sequence[str]:
        """The figures that are drawn under the losses, by default the one that picks the best model."""
        metric = self.args.metric_for_best_model
        return () if metric == "loss" else (metric,)

    @property
    def final_split(self) -> str:
        """The split that the best model is measured on: "test", or "validation" where there is none."""
        return "test" if "test" in self.splits else "validation"

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The training loss of a batch, by default the model's own: a scalar, or `(parts,)` for losses to be summed."""
        return model(**batch).loss

    def count(self, batch: Batch) -> int | Tensor:
        """The number of items over which `loss` takes its mean, by default all that have a label; `(parts,)` for a loss
        in parts."""
        return int((batch[self.label_names[0]] != IGNORED).sum())

    @abstractmethod
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """What `figures` needs of a batch: tensors with a row for each example, or with one row for all of them."""

    @abstractmethod
    def figures(self, measured: dict[str, Tensor], split: str) -> dict[str, float]:
        """The figures of a split, from what `measure` returned for its batches, joined."""

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "validation") -> dict[str, float]:
        """The figures of a split and how many examples were evaluated per second, the same on every process."""
        model.eval()
        start = perf_counter()
        is_hidden = (
            None if self.accelerator.is_main_process else True
        )  # None: hidden only where stderr is not a terminal
        batches = tqdm(self.loaders[split], desc=f"evaluating, {split}", leave=False, disable=is_hidden)
        # `gather_for_metrics` drops the examples that filled up the last batch so that every process had one.
        gathered = [self.accelerator.gather_for_metrics(self.measure(model, batch)) for batch in batches]
        measured = {name: torch.cat([part[name].cpu() for part in gathered]) for name in gathered[0]}
        seconds = perf_counter() - start
        model.train()
        return self.figures(measured, split) | {"samples_per_second": len(self.splits[split]) / seconds}

    def save_tokenizer(self, folder: Path) -> None:
        """Save what makes texts into tokens, beside the model."""
        self.tokenizer.save_pretrained(folder)

    def before_epoch(self, model: PreTrainedModel, epoch: int) -> None:  # noqa: B027
        """Called with the model, not its wrapper, before each epoch."""

    def after_evaluation(self, model: nn.Module, state: TrainState) -> None:  # noqa: B027
        """Called on every process after each evaluation."""

    def final_figures(self, best: nn.Module, state: TrainState) -> dict[str, float]:
        """More figures of the best model, by default those of the test split, if any, under names like `test_loss`."""
        return with_prefix(self.evaluate(best, "test"), "test") if "test" in self.splits else {}

    def for_card(self) -> dict[str, Any]:
        """What the task's part of the card says, as plain values, and the splits' "sizes"; asked for at a run's end."""
        return {"sizes": {name: f"{len(rows):,}" for name, rows in self.splits.items()}}


class TokenTask(Task):
    """A task whose items are tokens: its figures are the mean loss of a token, in nats, and the perplexity."""

    figure_names = ("loss", "perplexity")
    titles = {"loss": "loss per token", "perplexity": "perplexity"}
    drawn = ("perplexity",)

    def figures(self, measured: dict[str, Tensor], split: str) -> dict[str, float]:
        """From the sums of "loss" and the numbers of "tokens"."""
        loss = measured["loss"].double().sum().item() / measured["tokens"].double().sum().item()
        return {"loss": loss, "perplexity": math.exp(min(loss, 700))}


def collator(
    collator_class: type,
    tokenizer: PreTrainedTokenizerBase,
    accelerator: Accelerator,
    longest: int,
    max_length: int,
    pads_whole: bool = False,
) -> Callable[[list[Any]], Batch]:
    """A collator of transformers for examples of at most `max_length` tokens.

    In mixed precision it pads to a multiple of 8, which is faster on GPUs, if that is no more than `longest`, the most
    tokens that the model takes. With `pads_whole` it pads to `max_length` instead of the batch's longest example.
    """
    fits = -(-max_length // 8) * 8 <= longest
    multiple = 8 if accelerator.mixed_precision != "no" and fits else None
    length = {"padding": "max_length", "max_length": max_length} if pads_whole else {}
    return collator_class(tokenizer, pad_to_multiple_of=multiple, **length)


def task_of_rows(
    run: Run,
    task_class: type[Task],
    load: Callable[[Any], Data],
    build: Callable[[Any, Any], ModelAndTokenizer],
) -> Task:
    """The task of a run whose data are rows: its metrics, its data, its model and its tokens, read in this order.

    Args:
        load: the data, from the options.
        build: the model and its tokenizers, from the options and the data. By their names they are fields of the task.
    """
    args, accelerator = run.args, run.accelerator
    metrics = load_metrics(args.metrics, args.trust_remote_code) if args.metrics else None
    with accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        data = load(args)
        usual, predictions, references, best_by = data.measures
        metrics = metrics or load_metrics(usual)
        scores = metrics.result_names(predictions, references)
        args = args.choosing_by(task_class.figures_of(args, scores), best_by)
        made = build(args, data)
        longest = longest_input(made.model.config, made.tokenizer)
        args = fitted(args, longest, *args.lengths)
        for name, tokenizer in zip(args.lengths, made[1:], strict=False):
            check_room(getattr(args, name), tokenizer, name, pair=data.are_pairs)
        with shown_bars(accelerator.is_main_process):
            splits = data.encode(made.tokenizer, args, made.model.config, *made[2:])
    padding = max(getattr(args, name) for name in args.lengths), args.pad_to_max_length
    return task_class(
        **made._asdict(),
        accelerator=accelerator,
        args=args,
        data=data,
        splits=splits,
        facts=data.facts,
        metrics=metrics,
        score_names=scores,
        collate=collator(task_class.collator_class, made.tokenizer, accelerator, longest, *padding),
        lengths=[*map(len, splits["train"]["input_ids"])] if args.group_by_length else None,
    )


def with_prefix(figures: Mapping[str, Any], split: str) -> dict[str, Any]:
    """Figures under the names that they have in the results: `test_...` for "test", `eval_...` for "validation"."""
    prefix = "test" if split == "test" else "eval"
    return {f"{prefix}_{name}": value for name, value in figures.items()}


def inputs_of(batch: Batch) -> Batch:
    """The part of a batch that the model reads: all but what it predicts."""
    return {name: value for name, value in batch.items() if name not in ("labels", "next_sentence_label")}


def sums_of_rows(values: Tensor, mask: Tensor) -> Tensor:
    """The sum of each row's items, `(rows, columns)`.

    Args:
        values: `(items, columns)`, the items of all rows in order.
        mask: `(rows, length)`, true at the places of items.
    """
    return values.new_zeros(len(mask), values.shape[1]).index_add_(0, mask.nonzero()[:, 0], values)
