"""Pre-training of encoders as a task: its options, its losses, its figures, its card."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical
from transformers.utils import ModelOutput

from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.arguments import LoopArguments, option
from tfm_zoo.training.pretraining.data import Documents
from tfm_zoo.training.sharding import is_sharded, unwrapped
from tfm_zoo.training.task import Batch, Task, inputs_of, sums_of_rows

#: an evaluation's figures, and what the card calls them
FIGURES = {
    "mlm_accuracy": "accuracy of masked tokens",
    "nsp_accuracy": "accuracy of next sentences",
    "mlm_loss": "loss per masked token",
    "nsp_loss": "loss per pair",
    "loss": "sum of losses",
}


@dataclass(frozen=True)
class PretrainingArguments(LoopArguments):
    """The options of a pre-training loop, besides those of every loop. Defaults are BERT's (Devlin et al. 2019)."""

    next_sentence_prediction: bool = option(True, "Train also on pairs of segments; false: on masked tokens alone.")
    max_seq_length: int = option(128, "Tokens of an example at most.", "max_length")
    short_seq_prob: float = option(0.1, "Share of the pairs that are made shorter than that.", at_least=0, at_most=1)
    mlm_probability: float = option(0.15, "Share of the tokens that are to be predicted.")
    whole_word_mask: bool = option(False, "Mask all tokens of a word, or none of them.")
    block_documents: int = option(2000, "Documents that are mixed at a time, by all readers together.", at_least=2)

    @property
    def figures(self) -> list[str]:
        return [name for name in FIGURES if self.next_sentence_prediction or "nsp" not in name]


@dataclass(kw_only=True)
class PretrainingTask(Task):
    """An encoder learns to predict masked tokens and, of pairs of segments, whether one follows the other."""

    args: PretrainingArguments
    data: Documents

    pipeline_tag = "fill-mask"

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.args.figures
        self.figure_names = {name: FIGURES[name] for name in names}
        self.headline = [name for name in names if name.endswith("accuracy")]
        labels = torch.cat([torch.as_tensor(example["labels"]) for example in self.splits["validation"]])
        counts = labels[labels != IGNORED].unique(return_counts=True)[1]
        if not len(counts):
            raise ValueError("no token of the validation documents is masked: give more of them")
        # The loss, in nats, of a guess that knows only how frequent each label is.
        self.entropy = Categorical(counts.double()).entropy().item()

    @property
    def picture_metrics(self) -> list[str]:
        # Without pairs the loss, which every picture has, is that of masked tokens.
        has_pairs = self.args.next_sentence_prediction
        return [name for name in self.figure_names if name != "loss"] if has_pairs else self.headline

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return losses(model, batch, self.is_zoo)

    @staticmethod
    def count(batch: Batch) -> Tensor:
        """How many items each part of the loss is the mean over: masked tokens and, of pairs, examples."""
        pairs = [len(batch["labels"])] if "next_sentence_label" in batch else []
        return torch.tensor([int((batch["labels"] != IGNORED).sum()), *pairs])

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """For each example the number, summed loss and hits of masked tokens; for a pair also its own loss and hit."""
        labelled = batch["labels"] != IGNORED
        if self.is_zoo and not is_sharded(self.accelerator):  # the parts of a sharded model cannot be called alone
            options = {"return_logits": False, "output_hidden_states": True}
            outputs = model(**inputs_of(batch), labels=batch["labels"], **options)
            whole = unwrapped(self.accelerator, model)
            with self.accelerator.autocast():
                logits = whole.lm_head(whole.head(outputs.hidden_states[-1][labelled]))
        else:
            outputs = model(**inputs_of(batch))
            logits = token_logits(outputs)[labelled]
        tokens = sums_of_rows(losses_and_hits(logits, batch["labels"][labelled]), labelled)
        columns = [labelled.sum(dim=1, keepdim=True), tokens]
        if "next_sentence_label" in batch:
            columns.append(losses_and_hits(outputs.seq_relationship_logits, batch["next_sentence_label"]))
        return torch.cat(columns, dim=1)

    def figures(self, columns: Tensor) -> dict[str, float]:
        """Loss and accuracy per masked token and per pair."""
        tokens, mlm_loss, mlm_correct, *pairs = columns.sum(dim=1).tolist()
        values = {"mlm_loss": mlm_loss / tokens, "mlm_accuracy": mlm_correct / tokens}
        if pairs:
            examples = columns.shape[1]
            values |= {"nsp_loss": pairs[0] / examples, "nsp_accuracy": pairs[1] / examples}
        return {"loss": values["mlm_loss"] + values.get("nsp_loss", 0), **values}


def losses(model: nn.Module, batch: Batch, is_zoo: bool) -> Tensor:
    """The mean loss per masked token (0 if there is none) and, of pairs, per pair; `(1,)` or `(2,)`."""
    labels = batch["labels"]
    labelled = labels != IGNORED
    if is_zoo and labelled.any():  # logits are made for the labelled tokens only
        outputs = model(**inputs_of(batch), labels=labels)
        parts = [outputs.loss]
    else:
        outputs = model(**inputs_of(batch))
        summed = F.cross_entropy(token_logits(outputs)[labelled].float(), labels[labelled], reduction="sum")
        parts = [summed / labelled.sum().clamp(min=1)]
    if "next_sentence_label" in batch:
        parts.append(F.cross_entropy(outputs.seq_relationship_logits.float(), batch["next_sentence_label"]))
    return torch.stack(parts)


def token_logits(outputs: ModelOutput) -> Tensor:
    """The logits of the tokens, `(batch, length, vocab_size)`, from either head."""
    return outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits


def losses_and_hits(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of each item, and 1 for each that was predicted right: `(items, 2)`."""
    loss = F.cross_entropy(logits.float(), labels, reduction="none")
    return torch.stack([loss, logits.argmax(dim=-1) == labels], dim=1)
