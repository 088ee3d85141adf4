"""Configuration of the encoder family."""

from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict

from .configuration_tfm import ENGINES, Follows, LogitFields, Stored, TfmConfig, auto_classes_of


def window_in_engine(config: Any, window: int | None) -> int | None:
    """A window as it is read: engines count the position itself too, so they read one more."""
    return window if window is None or config._attn_implementation not in ENGINES else window + 1


@strict
class TfmBertConfig(LogitFields, TfmConfig):
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
    position_offset: ClassVar[int]  # dropped: only `pad_token_id` moves the first position

    # what encoders have beside the block
    num_hidden_groups: int | None = Follows("num_hidden_layers")  # of layers in a row that share weights (ALBERT)
    task_type_vocab_size: int = 0  # number of tasks, each with an embedding beside that of the segment (ERNIE)
    dropped_token_id: int | None = None  # a mask whose embedding is zero; others grow with their number (ESM-2)
    rotary_value: bool = False  # rotary positions turn values too (RoFormer)
    add_pooling_layer: bool = True  # whether the bare `TfmBertModel` has a pooler. Heads that read one always have it
    pooler_act: str = "tanh"  # of the pooler, or of the classifier in its place (DistilBERT: `"relu"`)
    pooler_dropout: float | int = 0.0  # before the pooler or that classifier (RoBERTa)
    #: what they read: the first token; the mean of the real tokens; a mean weighted by the softmax of their products
    #: with one learned query; or each real token, whose outputs are then averaged (EuroBERT)
    classifier_pooling: Literal["cls", "mean", "attention", "late"] = "cls"
    classifier_dense: bool = True  # a dense layer and activation in the classifier of sequences, before its projection
    classifier_norm: bool = False  # after the activation of the pooler, or of the classifier in its place (ModernBERT)
    classifier_transform: bool = False  # the layers of `lm_head_transform` in the heads for tokens and answers too
    sentence_dropout: float | int = 0.0  # before the classifier of sentences in pre-training (ALBERT)
    qa_dropout: float | int = 0.0  # before the question-answering head
    lm_head_transform: bool = True

    def validate_fields(self) -> None:
        """Also refuses what an engine does not compute."""
        super().validate_fields()
        if self._attn_implementation in ENGINES and self.dropped_token_id is not None:
            raise ValueError(
                f"dropped_token_id={self.dropped_token_id} scales a sequence by its masks, and an engine packs several "
                "into a row: serve the model with transformers."
            )
