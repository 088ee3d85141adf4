"""Summaries of texts.

Read from top to bottom: the options, the data, the task, and `prepare`. text_to_text.py has what summarization shares
with translation: the loss, the model, what an evaluation writes, and most of the options.
"""

from dataclasses import dataclass
from typing import ClassVar

from datasets import Dataset

from tfm_zoo import built_in_data
from tfm_zoo.training.data import by_role, checked_texts, divide, find_columns, load_source, names_in, without_empty
from tfm_zoo.training.loop import Loop
from tfm_zoo.training.options import option
from tfm_zoo.training.run import start_run
from tfm_zoo.training.tasks.text_to_text import SIDES, TextPairs, TextToTextOptions, TextToTextTask, prepare_pairs

TEXT_COLUMNS = [["text"], ["article"], ["document"], ["dialogue"]]
SUMMARY_COLUMNS = [["summary"], ["highlights"]]


@dataclass(frozen=True)
class SummarizationOptions(TextToTextOptions):
    """The options of a writer of summaries. Names are those of transformers' `run_summarization.py`."""

    built_in: ClassVar = staticmethod(built_in_data.summarised_passages)
    usual_metrics: ClassVar = ("rouge",)
    counted_by: ClassVar = "num_eval_summaries"

    text_column: str | None = option(None, f"Column of texts; default: first of {names_in(TEXT_COLUMNS)}.")
    summary_column: str | None = option(None, f"Column of summaries; default: first of {names_in(SUMMARY_COLUMNS)}.")
    max_source_length: int = option(512, "Longer texts are truncated to this many tokens.", at_least=1)
    num_eval_summaries: int = option(
        0, "Validation texts that each evaluation summarises, for ROUGE: the first; 0: none.", at_least=0
    )


def load_summaries(args: SummarizationOptions) -> TextPairs:
    """Load and check the pairs; the seed decides which rows a missing split and `max_*_samples` take."""
    splits = {name: _pairs(name, split, args) for name, split in load_source(args).items()}
    rows, own_splits, notes = by_role(splits, args)
    rows = without_empty(rows, SIDES, notes)
    return TextPairs(divide(rows, args, args.seed, notes), own_splits, notes)


def _pairs(name: str, split: Dataset, args: SummarizationOptions) -> Dataset:
    """The texts of a split, in the columns "source" and "target"."""
    (text,) = find_columns(split, args.text_column, TEXT_COLUMNS, "text_column")
    (summary,) = find_columns(split, args.summary_column, SUMMARY_COLUMNS, "summary_column")
    texts = checked_texts(args, name, split, text, "text_column")
    return Dataset.from_dict({"source": texts, "target": checked_texts(args, name, split, summary, "summary_column")})


@dataclass(kw_only=True)
class SummarizationTask(TextToTextTask):
    """An encoder-decoder learns to summarise."""

    args: SummarizationOptions

    writes = "summary"
    pipeline_tag = "summarization"
    titles = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", **TextToTextTask.titles}


def prepare(argv: list[str] | None = None) -> Loop:
    """Read options, data and model: all that a user can get wrong."""
    run = start_run("finetune_summarization", SummarizationOptions, argv)
    return prepare_pairs(run, SummarizationTask, load_summaries)
