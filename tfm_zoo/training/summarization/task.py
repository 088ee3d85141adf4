"""Summarization as a task: its options, its figures, its card."""

from dataclasses import dataclass
from typing import ClassVar

from tfm_zoo.training.arguments import option
from tfm_zoo.training.summarization.measures import NAMES, rouge_scores
from tfm_zoo.training.text_to_text.task import TextToTextArguments, TextToTextTask


@dataclass(frozen=True)
class SummarizationArguments(TextToTextArguments):
    """The options of a summarization loop."""

    score_names: ClassVar = NAMES
    counted_by: ClassVar = "num_eval_summaries"

    num_eval_summaries: int = option(
        0, "Validation texts that each evaluation summarises, for ROUGE: the first; 0: none.", at_least=0
    )


@dataclass(kw_only=True)
class SummarizationTask(TextToTextTask):
    """An encoder-decoder learns to summarise."""

    args: SummarizationArguments

    writes = "summary"
    pipeline_tag = "summarization"
    figure_names = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", **TextToTextTask.figure_names}
    headline = NAMES
    scores = staticmethod(rouge_scores)
