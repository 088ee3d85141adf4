"""Falcon (Almazrouei et al. 2023): attention beside feed-forward, with one key-value head or groups."""

from ..architecture import Architecture
from ..config_rules import Computed, Field, Fields, choice, constants, ignored, only, same
from ..tensor_rules import NotConverted, When
from .alibi import BLOOM
from .decoder_family import CONFIG, OLDER, generic_heads
from .llama import ROTATES_WHOLE_HEADS

#: the form of Falcon that has a field for each choice
NEW = {"new_decoder_architecture": True}


def key_value_heads(official: Fields) -> int:
    if official.get("new_decoder_architecture"):
        return official["num_kv_heads"]
    return 1 if official.get("multi_query", True) else official["num_attention_heads"]


def norms_of_a_block(official: Fields) -> int:
    """How many norms a block has before attention and feed-forward, where those are beside each other."""
    if official.get("new_decoder_architecture"):
        return official.get("num_ln_in_parallel_attn") or 2
    return 1 if official.get("parallel_attn") else 2


def has_alibi(zoo: Fields) -> bool:
    return zoo["position_embedding_type"] == "alibi"


def output_dropout(zoo: Fields) -> float:
    """Beside the feed-forward, attention has no dropout of its own: `hidden_dropout` is that of their sum."""
    return 0.0 if zoo["use_parallel_residual"] else zoo["attention_dropout"]


def has_two_parallel_norms(config) -> bool:
    return config.use_parallel_residual and config.num_ln_in_parallel_attn == 2


FALCON = Architecture(
    model_type="falcon",
    title="Falcon",
    prefix="transformer",
    config=(
        *CONFIG,
        *same("hidden_size", "num_hidden_layers", "num_attention_heads", "attention_dropout", "hidden_dropout"),
        *same("max_position_embeddings", "use_cache"),
        Field("layer_norm_epsilon", "norm_eps"),
        Field("ffn_hidden_size", "intermediate_size"),
        Field("activation", "hidden_act"),
        Field("parallel_attn", "use_parallel_residual"),
        Field("bias", "attention_bias"),
        Field("bias", "mlp_bias"),
        Computed("num_key_value_heads", key_value_heads, lambda count: {"num_kv_heads": count} | NEW),
        Computed("num_ln_in_parallel_attn", norms_of_a_block, lambda count: {"num_ln_in_parallel_attn": count} | NEW),
        *choice("alibi", "position_embedding_type", {True: "alibi", False: "rotary"}, False),
        # With ALiBi, official configurations hold rotary parameters that nothing reads.
        Computed(
            "rope_parameters", lambda official: None if official.get("alibi") else official.get("rope_parameters")
        ),
        *constants(position_ids_from_mask=has_alibi, scale_alibi=has_alibi, round_alibi=has_alibi),
        *constants(embedding_dropout=0.0, attention_output_dropout=output_dropout, scaled_residual_init=False),
        ROTATES_WHOLE_HEADS,
        *only(hidden_dropout=0.0),
        *ignored("multi_query", "num_kv_heads", "num_ln_in_parallel_attn"),  # each of one form of Falcon
    ),
    tensors=(
        When("h.{i}.ln_attn", "layers.{i}.self_attn_norm", condition=has_two_parallel_norms),
        When("h.{i}.ln_mlp", "layers.{i}.mlp_norm", condition=has_two_parallel_norms),
        *BLOOM.tensors,
        NotConverted("h.{i}.self_attention.rotary_emb.inv_freq"),
    ),
    heads=generic_heads("Falcon", rules=OLDER),
    tokenizer="PreTrainedTokenizerFast",
)
