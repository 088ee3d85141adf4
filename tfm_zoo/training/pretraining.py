"""Pre-training of encoders as a task: its options, its losses, evaluation, its card."""

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn
from transformers.utils import ModelOutput

from tfm_zoo.hub.cards import table
from tfm_zoo.models.inputs import IGNORED
from tfm_zoo.training.arguments import LoopArguments, check_at_least, option
from tfm_zoo.training.documents import Documents
from tfm_zoo.training.reports import Report, shortened
from tfm_zoo.training.runs import is_sharded
from tfm_zoo.training.text_sources import CHARACTERS

FIGURES = {
    "mlm_accuracy": "accuracy of masked tokens",
    "nsp_accuracy": "accuracy of next sentences",
    "mlm_loss": "loss per masked token",
    "nsp_loss": "loss per pair",
    "loss": "sum of losses",
}


@dataclass
class PretrainingArguments(LoopArguments):
    """What a pre-training loop needs to know beyond any other. The defaults are BERT's (Devlin et al. 2019)."""

    next_sentence_prediction: bool = option(
        True, "Train on pairs of segments, which do or do not follow one another; false: on masked tokens alone."
    )
    max_seq_length: int = option(128, "Tokens of an example at most.", "max_length")
    short_seq_prob: float = option(0.1, "Share of the pairs that are made shorter than that.")
    mlm_probability: float = option(0.15, "Share of the tokens that are to be predicted.")
    whole_word_mask: bool = option(False, "Mask all tokens of a word, or none of them.")
    block_documents: int = option(
        2000,
        f"Documents, or {CHARACTERS:,} characters of them, that are read together: they change places, and B of a pair"
        " comes from another of them.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, {"block_documents": 2})
        if not 0 <= self.short_seq_prob <= 1:
            raise ValueError(f"short_seq_prob must be at least 0 and at most 1, not {self.short_seq_prob}")

    @property
    def figures(self) -> dict[str, str]:
        """Names of an evaluation's figures, and what they are called."""
        return {name: title for name, title in FIGURES.items() if self.next_sentence_prediction or "nsp" not in name}


def inputs_of(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """What of a batch the model reads: all but what it is to predict."""
    return {name: value for name, value in batch.items() if name not in ("labels", "next_sentence_label")}


def labelled_tokens(batch: dict[str, Tensor]) -> Tensor:
    return batch["labels"] != IGNORED


def count_parts(batch: dict[str, Tensor]) -> Tensor:
    """What each part of the loss is the mean over: the masked tokens and, of pairs, the examples."""
    pairs = [len(batch["labels"])] if "next_sentence_label" in batch else []
    return torch.tensor([int(labelled_tokens(batch).sum()), *pairs])


def losses(model: nn.Module, batch: dict[str, Tensor], is_zoo: bool) -> Tensor:
    """The mean loss per masked token (0 if there is none) and, of pairs, per pair; `(1,)` or `(2,)`.

    Args:
        is_zoo: whether it is a zoo model, which makes the logits of the labelled tokens only.
    """
    inputs, labelled = inputs_of(batch), labelled_tokens(batch)
    if is_zoo and labelled.any():
        outputs = model(**inputs, labels=batch["labels"])
        parts = [outputs.loss]
    else:
        outputs = model(**inputs)
        summed = F.cross_entropy(token_logits(outputs)[labelled].float(), batch["labels"][labelled], reduction="sum")
        parts = [summed / labelled.sum().clamp(min=1)]
    if "next_sentence_label" in batch:
        parts.append(F.cross_entropy(outputs.seq_relationship_logits.float(), batch["next_sentence_label"]))
    return torch.stack(parts)


def token_logits(outputs: ModelOutput) -> Tensor:
    """`(batch, length, vocab_size)`, whichever of the two heads made them."""
    return outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits


@torch.no_grad()
def evaluate_pretraining(
    accelerator: Accelerator, model: nn.Module, loader: Iterable[dict[str, Tensor]], is_zoo: bool
) -> dict[str, float]:
    """Loss and accuracy per masked token and per pair, and examples per second, the same on every process.

    Args:
        loader: batches with "labels", prepared by the accelerator.
        is_zoo: whether it is a zoo model, whose head is asked about the labelled tokens only.
    """
    model.eval()
    rows: list[Tensor] = []
    start = perf_counter()
    for batch in loader:
        labelled = labelled_tokens(batch)
        if is_zoo and not is_sharded(accelerator):  # no part of a sharded model can be called by itself
            options = {"return_logits": False, "output_hidden_states": True}
            outputs = model(**inputs_of(batch), labels=batch["labels"], **options)
            whole = accelerator.unwrap_model(model)
            with accelerator.autocast():
                logits = whole.lm_head(whole.head(outputs.hidden_states[-1][labelled]))
        else:
            outputs = model(**inputs_of(batch))
            logits = token_logits(outputs)[labelled]
        loss, correct = _judged(logits, batch["labels"][labelled])
        sums = torch.stack([torch.ones_like(loss), loss, correct], dim=1)
        figures = sums.new_zeros(len(labelled), 3).index_add_(0, labelled.nonzero()[:, 0], sums)
        if "next_sentence_label" in batch:
            pairs = _judged(outputs.seq_relationship_logits, batch["next_sentence_label"])
            figures = torch.cat([figures, torch.stack(pairs, dim=1)], dim=1)
        # Drops the examples that filled up the last batch so that every process had one.
        rows.append(accelerator.gather_for_metrics(figures).cpu())
    seconds = perf_counter() - start
    model.train()
    examples = sum(map(len, rows))
    tokens, *sums = torch.cat(rows).double().sum(dim=0).tolist()
    values = {"mlm_loss": sums[0] / tokens, "mlm_accuracy": sums[1] / tokens}
    if len(sums) > 2:
        values |= {"nsp_loss": sums[2] / examples, "nsp_accuracy": sums[3] / examples}
    total = sum(value for name, value in values.items() if name.endswith("loss"))
    return {"loss": total, **values, "samples_per_second": examples / seconds}


def _judged(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each item, and 1 where it was recognised."""
    loss = F.cross_entropy(logits.float(), labels, reduction="none")
    return loss, (logits.argmax(dim=-1) == labels).float()


def unigram_entropy(examples: Iterable[dict[str, Any]]) -> float:
    """The loss, in nats, of guessing the labels by no more than how frequent each is among them.

    Raises:
        ValueError: if there is no label.
    """
    labels = np.concatenate([example["labels"] for example in examples])
    counts = np.unique(labels[labels != IGNORED], return_counts=True)[1]
    if not len(counts):
        raise ValueError("no token of the validation documents is masked: give more of them")
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


@dataclass
class PretrainingReport(Report):
    """The card of a pre-trained encoder."""

    documents: Documents
    examples: dict[str, str]  # how many, of each split
    max_length: int  # of an example, in tokens
    entropy: float  # what guessing by frequency costs

    pipeline_tag = "fill-mask"

    @property
    def figure_names(self) -> dict[str, str]:
        return self.args.figures

    @property
    def picture_metrics(self) -> tuple[str, ...]:
        if not self.args.next_sentence_prediction:  # the loss is that of masked tokens
            return ("mlm_accuracy",)
        return tuple(name for name in self.args.figures if name != "loss")

    @property
    def headline(self) -> tuple[str, ...]:
        return tuple(name for name in self.args.figures if name.endswith("accuracy"))

    def introduction(self) -> str:
        origin = f"`{shortened(self.base_model)}`, trained further" if self.base_model else "A new encoder, trained"
        heads = "masked tokens and next sentences" if self.args.next_sentence_prediction else "masked tokens"
        return f"""
{origin} on `{self.dataset}` to predict {heads} (Devlin et al. 2019), to be fine-tuned.
{self.carries_its_code}

```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

model = AutoModelForSequenceClassification.from_pretrained("{self.repository}"{self.remote_code})
tokenizer = AutoTokenizer.from_pretrained("{self.repository}"{self.remote_code})
```

Or `recipes/finetune_classification.py --model_name_or_path {self.repository}`.
""".strip()

    def data(self) -> str:
        pairs = (
            """
A pair is two segments of a document that follow one another, or, in one half of the pairs, of two documents: accuracy
by chance is 0.5."""
            * self.args.next_sentence_prediction
        )
        return f"""
Losses in nats, of {self.args.mlm_probability:.0%} of the tokens, which depend on the tokenizer (here
{self.model.config.vocab_size:,} tokens): guessing by their frequency alone has a loss of {self.entropy:.2f}.{pairs}

{table(self.examples, ("split", "examples"))}

{" ".join(self.documents.notes)}
""".strip()

    def split_of_the_figures(self) -> str | None:
        return "validation" if self.documents.has_own_validation else None

    def task_settings(self) -> dict[str, Any]:
        args = self.args
        short = f", {args.short_seq_prob:.0%} of the pairs shorter" if args.next_sentence_prediction else ""
        words = "words, all tokens of each" if args.whole_word_mask else "tokens"
        return {
            "tokens per example": f"at most {self.max_length}{short}",
            "masked": f"{args.mlm_probability:.0%} of the {words}; of these 80 % by [MASK], 10 % by another token",
            "documents mixed": f"{args.block_documents:,}, or {CHARACTERS:,} characters, at a time",
        }
