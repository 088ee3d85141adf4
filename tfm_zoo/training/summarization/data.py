"""Texts and their summaries, from any source."""

from dataclasses import dataclass
from typing import ClassVar

from datasets import Dataset

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import option
from tfm_zoo.training.sources import checked_texts, find_columns, load_source, names_in
from tfm_zoo.training.splits import by_role, divide, without_empty
from tfm_zoo.training.text_to_text.data import SIDES, PairArguments, TextPairs

TEXT_COLUMNS = [["text"], ["article"], ["document"], ["dialogue"]]
SUMMARY_COLUMNS = [["summary"], ["highlights"]]


@dataclass(frozen=True)
class SummaryArguments(PairArguments):
    """Where the texts are, and how much of them to use. Names are those of transformers' `run_summarization.py`."""

    built_in: ClassVar = staticmethod(generated.summarised_passages)

    text_column: str | None = option(None, f"Column of texts; default: first of {names_in(TEXT_COLUMNS)}.")
    summary_column: str | None = option(None, f"Column of summaries; default: first of {names_in(SUMMARY_COLUMNS)}.")
    max_source_length: int = option(512, "Longer texts are truncated to this many tokens.", at_least=1)
    source_prefix: str = option("", "Put before every text, such as 'summarize: ' for T5.")


def load_summaries(args: SummaryArguments, seed: int) -> TextPairs:
    """Load and check the pairs; the seed decides which rows a missing split and `max_*_samples` take."""
    splits = {name: _pairs(name, split, args) for name, split in load_source(args).items()}
    rows, own_splits, notes = by_role(splits, args)
    rows = without_empty(rows, SIDES, notes)
    return TextPairs(divide(rows, args, seed, notes), own_splits, notes)


def _pairs(name: str, split: Dataset, args: SummaryArguments) -> Dataset:
    """The texts of a split, in the columns "source" and "target"."""
    (text,) = find_columns(split, args.text_column, TEXT_COLUMNS, "text_column")
    (summary,) = find_columns(split, args.summary_column, SUMMARY_COLUMNS, "summary_column")
    texts = checked_texts(args, name, split, text, "text_column")
    return Dataset.from_dict({"source": texts, "target": checked_texts(args, name, split, summary, "summary_column")})
