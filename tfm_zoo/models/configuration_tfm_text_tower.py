"""Configuration of text towers, the halves of CLIP and SigLIP that read text."""

from typing import ClassVar, Literal

from huggingface_hub.dataclasses import strict

from .configuration_tfm import ALIASES, NormPosition, TfmConfig, auto_classes_of


@strict
class TfmTextTowerConfig(TfmConfig):
    """Configuration of text towers. The defaults are that of CLIP-ViT-B/32 (Radford et al. 2021)."""

    model_type = "tfm_text_tower"
    modeling_file: ClassVar[str] = "modeling_tfm_text_tower"
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "TfmTextTower", AutoModelForTextEncoding="TfmTextTowerModel"
    )
    other_auto_classes: ClassVar[dict[str, str]] = {"TfmTextTowerForProjection": "AutoModel"}
    attribute_map: ClassVar[dict[str, str]] = ALIASES | {"projection_dim": "projection_size"}
    vocab_size: int = 49408
    hidden_size: int = 512
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    hidden_dropout: float | int = 0.0
    attention_dropout: float | int = 0.0
    norm_position: NormPosition = "pre"
    max_position_embeddings: int = 77
    train_padding_embedding: bool = True
    hidden_act: str = "quick_gelu"
    pad_token_id: int | None = 1
    bos_token_id: int | None = 49406
    eos_token_id: int | list[int] | None = 49407
    # A tower has one text, and neither a language model nor a classifier.
    type_vocab_size: ClassVar[int]
    token_types_as_tokens: ClassVar[bool]
    lm_head_bias: ClassVar[bool]
    classifier_dropout: ClassVar[float]

    is_causal: bool = True  # a token sees itself and those before it (CLIP), or all
    #: whose state stands for the text: the first `eos_token_id`, the `"highest"` id, the first of these (CLIP's first
    #: checkpoints), or the `"last"` position, which may be padding (SigLIP)
    pooled_position: Literal["end", "highest", "last"] = "end"
    pooler_size: int | None = None  # width of a projection of that state with a bias (SigLIP). `None`: no projection
    projection_size: int = 512  # width of that of [`TfmTextTowerForProjection`], without a bias
