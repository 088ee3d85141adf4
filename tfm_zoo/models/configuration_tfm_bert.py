"""Configuration of the encoder family."""

from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict

from .compat import ACT2FN
from .configuration_tfm import ENGINES, TfmConfig, add_following_fields


class SlidingWindow:
    """The field `sliding_window`. Serving engines count the position itself too, so they read one more."""

    def __get__(self, config: Any, owner: type | None = None) -> int | None:
        if config is None:
            return self
        window = vars(config).get("sliding_window")
        return window if window is None or config._attn_implementation not in ENGINES else window + 1

    def __set__(self, config: Any, value: int | None) -> None:
        vars(config)["sliding_window"] = value


@strict
class TfmBertConfig(TfmConfig):
    """Configuration of the encoder family. The defaults are BERT-base (Devlin et al. 2018).

    Args (beyond those of [`TfmConfig`]):
        layer_types: for each layer `"full_attention"`, `"sliding_attention"` (which sees `sliding_window` positions to
            each side) or `"linear_attention"`. `None`: as `attention_type` and `sliding_window` say, for all layers.
        num_hidden_groups: number of groups of consecutive layers; the layers of a group share their weights (ALBERT).
            `None`: every layer is a group.
        position_ids_from_padding: count positions over real tokens only. The table of positions has row `pad_token_id`
            for padding, and the next row for the first real token (RoBERTa).
        add_pooling_layer: whether the bare `TfmBertModel` has a pooler. Heads that read one always have it.
        pooler_act: activation of the pooler, or of the classifier in its place (BERT: `"tanh"`, DistilBERT: `"relu"`).
        pooler_dropout: dropout before the pooler or that classifier (RoBERTa).
        classifier_pooling: what the pooler or that classifier reads: `"cls"`, the first position; `"mean"` of the real
            tokens; `"attention"`, a mean weighted by the softmax of their products with one learned query; or `"late"`,
            each real token, whose outputs are then averaged (EuroBERT).
        classifier_dense: whether the classifier of sequences has a dense layer and activation before its projection.
        classifier_dropout: dropout before the classifiers. `None`: `hidden_dropout`.
        sentence_dropout: dropout before the classifier of sentences in pre-training (ALBERT).
        qa_dropout: dropout before the question-answering head.
        lm_head_act: activation of the masked-language-modelling head. `None`: `hidden_act`.
        lm_head_transform: whether the masked-language-modelling head has a dense layer, activation and norm before its
            projection (BERT).
        lm_head_bias: a bias in the projection of the masked-language-modelling head.
        classifier_bias: a bias in the dense layers of the pooler, of the classifier in its place, and of the
            masked-language-modelling head.
        classifier_norm: a norm after the activation of the pooler, or of the classifier in its place (ModernBERT).
        classifier_transform: whether the heads for tokens and for answers have the layers of `lm_head_transform` too.
        skip_padding: compute nothing at padding. Outputs at real tokens are the same; at padding they are zero.
    """

    model_type = "tfm_bert"
    modeling_file: ClassVar[str] = "modeling_tfm_bert"
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "TfmBertConfig",
        "AutoModel": "TfmBertModel",
        "AutoModelForTextEncoding": "TfmBertModel",
        "AutoModelForPreTraining": "TfmBertForPreTraining",
        "AutoModelForMaskedLM": "TfmBertForMaskedLM",
        "AutoModelForNextSentencePrediction": "TfmBertForNextSentencePrediction",
        "AutoModelForSequenceClassification": "TfmBertForSequenceClassification",
        "AutoModelForTokenClassification": "TfmBertForTokenClassification",
        "AutoModelForQuestionAnswering": "TfmBertForQuestionAnswering",
        "AutoModelForMultipleChoice": "TfmBertForMultipleChoice",
    }
    other_auto_classes: ClassVar[dict[str, str]] = {"TfmBertForReplacedTokenDetection": "AutoModelForPreTraining"}

    embedding_norm: bool = True
    norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    type_vocab_size: int = 2

    layer_types: list[str] | None = None
    num_hidden_groups: int | None = None
    position_ids_from_padding: bool = False
    add_pooling_layer: bool = True
    pooler_act: str = "tanh"
    pooler_dropout: float | int = 0.0
    classifier_pooling: Literal["cls", "mean", "attention", "late"] = "cls"
    classifier_dense: bool = True
    classifier_dropout: float | int | None = None
    sentence_dropout: float | int = 0.0
    qa_dropout: float | int = 0.0
    lm_head_act: str | None = None
    lm_head_transform: bool = True
    lm_head_bias: bool = True
    classifier_bias: bool = True
    classifier_norm: bool = False
    classifier_transform: bool = False
    skip_padding: bool = True

    def validate_encoder(self):
        """The family's own fields fit each other."""
        self.check_layer_types()
        if not 1 <= self.num_hidden_groups <= self.num_hidden_layers:
            raise ValueError(
                f"num_hidden_groups={self.num_hidden_groups} should be from 1 to num_hidden_layers="
                f"{self.num_hidden_layers}, the layers that it divides."
            )
        kinds = set(zip(self.layer_types, self.no_rope_layers, strict=True))
        is_alike = len(kinds) == 1 and self.first_norm
        if self.num_hidden_groups < self.num_hidden_layers and not is_alike:
            raise ValueError(
                f"num_hidden_groups={self.num_hidden_groups} makes layers share their weights, but layer_types="
                f"{self.layer_types}, no_rope_layers={self.no_rope_layers} and first_norm={self.first_norm} make them "
                "differ."
            )
        if self.classifier_norm and not self.classifier_dense:
            raise ValueError(
                "classifier_norm=True is a norm after the activation, which classifier_dense=False leaves out: "
                "choose one of the two."
            )
        last = self.max_position_embeddings - 1
        if self.position_ids_from_padding and (self.pad_token_id is None or self.pad_token_id >= last):
            raise ValueError(
                f"position_ids_from_padding=True counts from pad_token_id + 1: pad_token_id={self.pad_token_id} should "
                f"be less than {last}, the last of max_position_embeddings={last + 1} positions."
            )
        for name in ("pooler_act", "lm_head_act"):
            act = getattr(self, name)
            if act is not None and act not in ACT2FN:
                raise ValueError(f"{name}={act!r} is not an activation of transformers: {', '.join(ACT2FN)}.")


add_following_fields(
    TfmBertConfig,
    # transformers iterates over it for an Auto class with two classes (`other_auto_classes`), even where it is `None`.
    architectures=lambda config: [],
    num_hidden_groups=lambda config: config.num_hidden_layers,
    layer_types=lambda config: [config.layer_type] * config.num_hidden_layers,
)
TfmBertConfig.sliding_window = SlidingWindow()
