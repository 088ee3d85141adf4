"""The text towers of CLIP (Radford et al. 2021), SigLIP (Zhai et al. 2023) and SigLIP 2 (Tschannen et al. 2025).

CLIP's first checkpoints name a wrong end token, 2. Their text is pooled at the highest id, which the right one is.
"""

from ..architecture import Architecture, Head
from ..config_rules import Computed, ConfigRule, Field, Free, Requires, constants, only, same
from ..tensor_rules import NotConverted, Rename, TensorRule

LAYER, ATTENTION = "encoder.layers.{i}", "encoder.layers.{i}.self_attn"
FIELDS = (
    *same("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "hidden_act"),
    *same("max_position_embeddings", "attention_dropout", "pad_token_id", "bos_token_id", "eos_token_id"),
    Field("layer_norm_eps", "norm_eps"),
)
TENSORS = (
    Rename("embeddings.token_embedding", "embeddings.embed_tokens"),
    Rename("embeddings.position_embedding", "embeddings.embed_positions"),
    NotConverted("embeddings.position_ids"),
    *(Rename(f"{ATTENTION}.{part}_proj", f"layers.{{i}}.self_attn.{part}_proj") for part in "qkv"),
    Rename(f"{ATTENTION}.out_proj", "layers.{i}.self_attn.o_proj"),
    Rename(f"{LAYER}.layer_norm1", "layers.{i}.self_attn_norm"),
    Rename(f"{LAYER}.mlp.fc1", "layers.{i}.mlp.up_proj"),
    Rename(f"{LAYER}.mlp.fc2", "layers.{i}.mlp.down_proj"),
    Rename(f"{LAYER}.layer_norm2", "layers.{i}.mlp_norm"),
    Rename("final_layer_norm", "norm"),
)
PROJECTION = (Rename("text_projection.weight", "text_projection.weight"),)


def text_tower(
    model_type: str, title: str, name: str, *config: ConfigRule, tensors: tuple[TensorRule, ...], heads=()
) -> Architecture:
    """The table for official classes whose names begin with `name`."""
    return Architecture(
        model_type=model_type,
        title=title,
        prefix="text_model",
        config=(*FIELDS, *config),
        tensors=tensors,
        heads=(Head(f"{name}Model", "TfmTextTowerModel"), *heads),
        tokenizer="CLIPTokenizer" if name == "CLIPText" else "SiglipTokenizer",
    )


def siglip(model_type: str, title: str, name: str) -> Architecture:
    return text_tower(
        *(model_type, title, name),
        Field("projection_size", "pooler_size"),
        *constants(is_causal=False, pooled_position="last"),
        Free("initializer_range"),
        tensors=(*TENSORS, Rename("head", "pooler")),
    )


CLIP_TEXT = text_tower(
    *("clip_text_model", "CLIP's text tower", "CLIPText"),
    *same("initializer_range"),
    Field("projection_dim", "projection_size"),
    Computed(
        "pooled_position",
        lambda official: "highest" if official["eos_token_id"] == 2 else "end",
        lambda kind: {"eos_token_id": 2} if kind == "highest" else {},
    ),
    *constants(is_causal=True, pooler_size=None),
    *only(is_causal=True),
    Requires("eos_token_id", lambda token: isinstance(token, int), "one id"),
    Requires("projection_dim", lambda width: width is not None, "a number"),
    tensors=TENSORS,
    heads=(Head("CLIPTextModelWithProjection", "TfmTextTowerForProjection", PROJECTION),),
)
SIGLIP_TEXT = siglip("siglip_text_model", "SigLIP's text tower", "SiglipText")
SIGLIP2_TEXT = siglip("siglip2_text_model", "SigLIP 2's text tower", "Siglip2Text")
