"""A model that summarises: which checkpoint, or which new one."""

from dataclasses import dataclass
from typing import ClassVar

from tfm_zoo.training.text_to_text.model import TextToTextModelArguments


@dataclass(frozen=True)
class SummarizationModelArguments(TextToTextModelArguments):
    """Which checkpoint to start from, or which new model to make."""

    writes: ClassVar = "a summary"
