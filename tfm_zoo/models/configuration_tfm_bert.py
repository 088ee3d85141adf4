"""Configuration of the encoder family."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

from .configuration_tfm import ENGINES, EncoderFields, Stored, TfmConfig, auto_classes_of


def window_in_engine(config: Any, window: int | None) -> int | None:
    """A window as it is read: engines count the position itself too, so they read one more."""
    return window if window is None or config._attn_implementation not in ENGINES else window + 1


@strict
class TfmBertConfig(EncoderFields, TfmConfig):
    """Configuration of the encoder family. The defaults are BERT-base (Devlin et al. 2018)."""

    model_type = "tfm_bert"
    modeling_file: ClassVar[str] = "modeling_tfm_bert"
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "TfmBert",
        "PreTraining MaskedLM NextSentencePrediction SequenceClassification TokenClassification QuestionAnswering "
        "MultipleChoice",
        AutoModelForTextEncoding="TfmBertModel",
    )
    other_auto_classes: ClassVar[dict[str, str]] = {"TfmBertForReplacedTokenDetection": "AutoModelForPreTraining"}
    embedding_norm: bool = True
    norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    type_vocab_size: int = 2
    lm_head_bias: bool = True
    sliding_window: int | None = Stored(window_in_engine)
    position_offset: ClassVar[int]  # nothing but `pad_token_id` moves the first position

    def validate_fields(self) -> None:
        """Also refuses what an engine does not compute."""
        super().validate_fields()
        if self._attn_implementation in ENGINES and self.dropped_token_id is not None:
            raise ValueError(
                f"dropped_token_id={self.dropped_token_id} scales a sequence by its masks, and an engine packs several "
                "into a row: serve the model with transformers."
            )
