"""What a task is to the loop that trains it: the loss of a batch, what that is the mean over, and an evaluation."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.training.checkpoints import TrainState

Batch = dict[str, Tensor]


@dataclass(kw_only=True)
class Task(ABC):
    """A model, the examples that it learns from, and how both are measured."""

    accelerator: Accelerator
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    examples: Dataset  # or a Stream, from which batches of one size are cut
    collate: Callable[[list[Any]], Batch] | None = None  # None: torch's own
    facts: dict[str, Any] = field(default_factory=dict)  # about the data, for the identity of the run

    #: tokens per process and forward pass; None: batches of `per_device_train_batch_size` examples
    batch_tokens: int | None = None
    #: tokens of each example, to put similar ones into one batch; with `batch_tokens`, of each of its columns
    lengths: Sequence[Any] | None = None

    #: the kind of `Report` that tells how a run of the task ended
    report: ClassVar[type]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch in training, by default the model's own; `()`, or `(parts,)` for a sum of losses."""
        return model(**batch).loss

    @abstractmethod
    def count(self, batch: Batch) -> int | Tensor:
        """How many items the loss of a batch is the mean over; `(parts,)` for a loss in parts."""

    @abstractmethod
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The validation figures of the prepared model, the same on every process."""

    def before_epoch(self, model: PreTrainedModel, epoch: int) -> None:  # noqa: B027
        """Called with the model, not its wrapper, before each epoch."""

    def after_evaluation(self, model: nn.Module, state: TrainState) -> None:  # noqa: B027
        """Called on every process after each evaluation."""

    def final_figures(self, best: PreTrainedModel) -> dict[str, float]:
        """More figures of the best model, loaded again from its folder, under their names in the results."""
        return {}

    def eval_loader(self, examples: Any, batch_size: int, collate: Callable | None = None) -> DataLoader:
        """Batches to evaluate on, shared among the processes."""
        return self.accelerator.prepare_data_loader(
            DataLoader(examples, batch_size=batch_size, collate_fn=collate or self.collate)
        )
