"""Translation as a task: its options, its figures, its card."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from tfm_zoo.training.arguments import option
from tfm_zoo.training.text_to_text.task import TextToTextArguments, TextToTextTask
from tfm_zoo.training.translation import measures
from tfm_zoo.training.translation.data import ParallelTexts


@dataclass(frozen=True)
class TranslationArguments(TextToTextArguments):
    """The options of a translation loop. Defaults are *Attention Is All You Need*'s."""

    score_names: ClassVar = measures.NAMES
    counted_by: ClassVar = "num_eval_translations"

    per_device_train_batch_tokens: int = option(
        4096, "Tokens per process and forward pass, padding included; 0: batches by examples.", "max_tokens", at_least=0
    )
    label_smoothing_factor: float = option(
        0.1, "Label smoothing: probability that is spread over the vocabulary; 0: none.", at_least=0, below=1
    )
    adam_beta2: float = option(0.98, "AdamW's decay of the mean of squared gradients.", at_least=0, below=1)
    adam_epsilon: float = option(1e-9, "AdamW's epsilon.", above=0)
    weight_decay: float = option(0.0, "AdamW's weight decay; 0: it is Adam.", at_least=0)
    num_eval_translations: int = option(
        0, "Validation pairs that each evaluation translates, for BLEU and its like: the first; 0: none.", at_least=0
    )


@dataclass(kw_only=True)
class TranslationTask(TextToTextTask):
    """An encoder-decoder learns to translate."""

    args: TranslationArguments
    data: ParallelTexts

    writes = "translation"
    pipeline_tag = "translation"
    figure_names = {"bleu": "BLEU", "chrf": "chrF", "exact_match": "exact match", **TextToTextTask.figure_names}
    headline = ("bleu", "chrf")
    scores = staticmethod(measures.translation_scores)
    signatures = staticmethod(measures.signatures)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.languages = language_codes(self.data.languages)


def language_codes(names: Iterable[str]) -> list[str] | None:
    """`en` for `en` or `en_XX`; None if a name is no code of two or three letters, as the name of a column may be."""
    codes = [name.split("_")[0] for name in names]
    return codes if all(re.fullmatch("[a-z]{2,3}", code) for code in codes) else None
