"""Summaries of texts. text_to_text.py has what they share with translation."""

from dataclasses import dataclass
from typing import ClassVar

from datasets import Dataset

from tfm_zoo.data import built_in_data, row_files, splits
from tfm_zoo.data.options import option
from tfm_zoo.training.run import Run
from tfm_zoo.training.task import load_task_of_rows
from tfm_zoo.training.tasks.text_to_text import SIDES, TextPairs, TextToTextOptions, TextToTextTask, build_seq2seq

TEXT_COLUMNS = [["text"], ["article"], ["document"], ["dialogue"]]
SUMMARY_COLUMNS = [["summary"], ["highlights"]]


@dataclass(frozen=True)
class SummarizationOptions(TextToTextOptions):
    """The options of a writer of summaries. Names are those of transformers' `run_summarization.py`."""

    built_in: ClassVar = staticmethod(built_in_data.summarised_passages)
    writes: ClassVar = "summary"

    text_column: str | None = option(None, f"Column of texts; default: first of {row_files.names_in(TEXT_COLUMNS)}.")
    summary_column: str | None = option(None, f"Of summaries; default: {row_files.names_in(SUMMARY_COLUMNS)}.")
    max_source_length: int = option(512, "Longer texts are truncated to this many tokens.", at_least=1)


def load_summaries(args: SummarizationOptions) -> TextPairs:
    """Load and check the pairs; the seed decides which rows a missing split and `max_*_samples` take."""
    raw, notes = splits.load_splits(args)
    rows = {name: _pairs(splits.FoundSplit(args, name, split)) for name, split in raw.items()}
    rows = splits.without_empty(rows, SIDES, notes)
    return TextPairs(splits.cut_splits(args, rows, notes, args.seed), notes)


def _pairs(table: splits.FoundSplit) -> Dataset:
    """The texts of a split, in the columns "source" and "target"."""
    args = table.args
    (text,) = row_files.find_columns(table.rows, args.text_column, TEXT_COLUMNS, "text_column")
    (summary,) = row_files.find_columns(table.rows, args.summary_column, SUMMARY_COLUMNS, "summary_column")
    texts, summaries = table.texts(text, "text_column"), table.texts(summary, "summary_column")
    return Dataset.from_dict({"source": texts, "target": summaries})


@dataclass(kw_only=True)
class SummarizationTask(TextToTextTask):
    """An encoder-decoder learns to summarise."""

    pipeline_tag = "summarization"
    metric_titles = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", **TextToTextTask.metric_titles}


def load_task(run: Run) -> SummarizationTask:
    return load_task_of_rows(SummarizationTask, run, load_summaries, build_seq2seq)
