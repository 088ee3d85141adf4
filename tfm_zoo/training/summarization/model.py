"""The model of a summarization recipe."""

from dataclasses import dataclass
from typing import ClassVar

from tfm_zoo.training.text_to_text.model import TextToTextModelArguments


@dataclass(frozen=True)
class SummarizationModelArguments(TextToTextModelArguments):
    """Which summariser to train."""

    writes: ClassVar = "a summary"
