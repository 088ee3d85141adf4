"""BLOOM (BigScience 2022) and MPT (MosaicML 2023): GPT-2 whose scores fall with the distance (ALiBi)."""

from dataclasses import dataclass
from typing import Any

from ..architecture import Architecture
from ..config_rules import ConfigRule, Field, Fields, Free, constants, ignored, only, same
from ..tensor_rules import Rename, Split
from .decoder_family import CONFIG, OLDER, generic_heads, megatron_block
from .projections import QKV

ALIBI = (
    *CONFIG,
    *same("use_cache"),
    Field("layer_norm_epsilon", "norm_eps"),
    *constants(position_embedding_type="alibi", embedding_dropout=0.0, scaled_residual_init=False),
    *constants(intermediate_size=lambda zoo: 4 * zoo["hidden_size"]),
)

BLOOM = Architecture(
    model_type="bloom",
    title="BLOOM",
    prefix="transformer",
    config=(
        *same("hidden_size", "hidden_dropout", "attention_dropout"),
        Field("n_layer", "num_hidden_layers"),
        Field("n_head", "num_attention_heads"),
        *ALIBI,
        *constants(hidden_act="gelu_new", embedding_norm=True, position_ids_from_mask=True),
        Free("position_ids_from_mask"),  # models that were converted earlier count all tokens
        Free("max_position_embeddings"),
        *only(apply_residual_connection_post_layernorm=False),
        *ignored("slow_but_exact"),
    ),
    tensors=(
        Rename("word_embeddings", "embeddings.embed_tokens"),
        Rename("word_embeddings_layernorm", "embeddings.norm"),
        *megatron_block("h.{i}", "self_attention"),
        Rename("ln_f", "norm"),
    ),
    heads=generic_heads("Bloom", rules=OLDER),
    tokenizer="BloomTokenizer",
)


#: fields of MPT's attention, with the only values that are converted; the official class ignores most of them
PLAIN_ATTENTION = {
    "attn_type": "multihead_attention",
    "alibi": True,
    "alibi_bias_max": 8,
    "clip_qkv": None,
    "prefix_lm": False,
    "qk_ln": False,
}


@dataclass(frozen=True)
class MptAttention(ConfigRule):
    """MPT's nested `attn_config`, with its only dropout and, in some models, a scale of scores."""

    zoo = "attention_dropout"

    def to_zoo(self, official: Fields, zoo: Fields) -> dict[str, Any]:
        inner = official["attn_config"]
        scale = {} if inner.get("softmax_scale") is None else {"attention_scale": inner["softmax_scale"]}
        return dict.fromkeys((self.zoo, "hidden_dropout"), inner.get("attn_pdrop", 0.0)) | scale

    def to_official(self, zoo: Fields, official: Fields) -> dict[str, Any]:
        inner = dict(official.get("attn_config") or {})
        if zoo[self.zoo] != inner.get("attn_pdrop", 0):
            inner["attn_pdrop"] = zoo[self.zoo]
        if zoo["attention_scale"] != (inner.get("softmax_scale") or zoo["head_dim"] ** -0.5):
            inner["softmax_scale"] = zoo["attention_scale"]
        return {"attn_config": inner}

    def refused(self, official: Fields) -> dict[str, str]:
        inner = official.get("attn_config") or {}
        wanted = [f"{name}={value!r}" for name, value in PLAIN_ATTENTION.items() if inner.get(name, value) != value]
        return {"attn_config": " and ".join(wanted)} if wanted else {}


MPT = Architecture(
    model_type="mpt",
    title="MPT",
    prefix="transformer",
    config=(
        Field("d_model", "hidden_size"),
        Field("n_layers", "num_hidden_layers"),
        Field("n_heads", "num_attention_heads"),
        Field("max_seq_len", "max_position_embeddings"),
        *ALIBI,
        MptAttention(),
        *constants(hidden_act="gelu", attention_bias=False, mlp_bias=False, norm_bias=False),
        *only(logit_scale=None, no_bias=True),
        *ignored("learned_pos_emb", "init_device", "embedding_fraction", "norm_type", "expansion_ratio"),
        *ignored("resid_pdrop", "emb_pdrop"),
    ),
    tensors=(
        Rename("wte", "embeddings.embed_tokens"),
        Rename("blocks.{i}.norm_1", "layers.{i}.self_attn_norm"),
        Split("blocks.{i}.attn.Wqkv", QKV),
        Rename("blocks.{i}.attn.out_proj", "layers.{i}.self_attn.o_proj"),
        Rename("blocks.{i}.norm_2", "layers.{i}.mlp_norm"),
        Rename("blocks.{i}.ffn.up_proj", "layers.{i}.mlp.up_proj"),
        Rename("blocks.{i}.ffn.down_proj", "layers.{i}.mlp.down_proj"),
        Rename("norm_f", "norm"),
    ),
    heads=generic_heads("Mpt", rules=OLDER),
    tokenizer="GPTNeoXTokenizer",
)
