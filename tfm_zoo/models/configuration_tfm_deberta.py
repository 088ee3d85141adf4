"""Configuration of encoders with DeBERTa's disentangled attention."""

from typing import ClassVar, Literal

from huggingface_hub.dataclasses import strict

from .configuration_tfm import ALIASES, Follows, auto_classes_of
from .configuration_tfm_bert import TfmBertConfig


@strict
class TfmDebertaConfig(TfmBertConfig):
    """Configuration of DeBERTa, versions 1 to 3 (He et al. 2020, 2021): an encoder whose scores compare contents with
    each other and with distances. The defaults are DeBERTa-v3-base; fields have the names of transformers' own."""

    model_type = "tfm_deberta"
    modeling_file: ClassVar[str] = "modeling_tfm_deberta"
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "TfmDeberta",
        "MaskedLM SequenceClassification TokenClassification QuestionAnswering MultipleChoice",
        AutoModelForPreTraining="TfmDebertaForReplacedTokenDetection",
    )
    other_auto_classes: ClassVar[dict[str, str]] = {}
    attribute_map: ClassVar[dict[str, str]] = ALIASES | {"pooler_hidden_act": "pooler_act"}
    vocab_size: int = 128100
    type_vocab_size: int = 0
    norm_eps: float = 1e-7
    position_embedding_type: Literal["none", "learned", "sinusoidal"] = "none"  # official: `position_biased_input`
    pooler_act: str = "gelu"
    add_pooling_layer: bool = False
    #: what scores add to the product of contents: `"c2p"`, of a query with its distance from the key, `"p2c"`, of a key
    #: with its distance from the query
    pos_att_type: list[str] | None = Follows(lambda config: ["c2p", "p2c"])
    attention_scale: float | int | None = Follows(
        lambda config: (config.head_dim * (1 + len(config.pos_att_type))) ** -0.5  # for each product in the sum
    )
    share_att_key: bool = True  # distances are projected as contents are; else by matrices of their own
    max_relative_positions: int | None = Follows("max_position_embeddings")  # all distances from this one on are alike
    #: on each side of a position; the first half hold one distance each, later ones more and more. `None`: one for each
    position_buckets: int | None = 256
    norm_rel_ebd: Literal["layer_norm", "none"] = "layer_norm"  # of the embeddings of distances
    #: narrower embeddings are projected before their norm, without a bias, as officially; else as in ELECTRA
    project_before_norm: bool = False
    key_bias: bool = True  # in the projections of keys, of contents and of distances (not in DeBERTa v1)
    conv_kernel_size: int = 0  # positions that a convolution beside the first layer sees; 0: no convolution
    conv_groups: int = 1
    conv_act: str = "tanh"

    # choices of the block that this attention does not offer
    num_hidden_groups: ClassVar[int]
    num_key_value_heads: ClassVar[int]
    use_parallel_residual: ClassVar[bool]
    num_ln_in_parallel_attn: ClassVar[int]
    qk_norm: ClassVar[None]
    attention_type: ClassVar[str]
    attn_logit_softcapping: ClassVar[None]
    relative_attention_num_buckets: ClassVar[None]
    relative_attention_max_distance: ClassVar[int]
    relative_attention_per_layer: ClassVar[bool]

    @property
    def bucket_span(self) -> int:
        """The number of buckets on each side of a position."""
        return self.position_buckets or self.max_relative_positions

    @property
    def has_position_bias(self) -> bool:
        """Whether distances change the scores."""
        return True
