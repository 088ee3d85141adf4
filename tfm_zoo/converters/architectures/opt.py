"""OPT (Zhang et al. 2022): GPT-2 with ReLU, whose positions are counted from the mask."""

from ..architecture import Architecture
from ..config_rules import Computed, Field, Fields, Requires, amended, choice, constants, same
from ..tensor_rules import Rename
from .decoder_family import CONFIG, WITHOUT_TOKENS, generic_heads
from .projections import QKV


def has_final_norm(official: Fields) -> bool:
    return official.get("do_layer_norm_before", True) and not official.get("_remove_final_layer_norm")


def has_narrow_tokens(official: Fields) -> bool:
    return official.get("word_embed_proj_dim", official["hidden_size"]) != official["hidden_size"]


OPT = Architecture(
    model_type="opt",
    title="OPT",
    prefix="model",
    config=amended(
        CONFIG,
        *same("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"),
        *same("attention_dropout", "use_cache"),
        Field("word_embed_proj_dim", "embedding_size"),
        Computed("project_tokens", has_narrow_tokens, lambda value: {}),
        Field("ffn_dim", "intermediate_size"),
        Field("activation_function", "hidden_act"),
        Field("dropout", "hidden_dropout"),
        Field("init_std", "initializer_range"),
        Field("enable_bias", "attention_bias"),
        Field("enable_bias", "mlp_bias"),
        *choice("do_layer_norm_before", "norm_position", {True: "pre", False: "post"}, True),
        Computed("final_norm", has_final_norm, lambda value: {"_remove_final_layer_norm": not value}),
        *constants(embedding_dropout=0.0, norm_eps=1e-5, position_ids_from_mask=True, position_offset=2),
        *constants(scaled_residual_init=False, train_padding_embedding=False),
        *choice("layer_norm_elementwise_affine", "norm_type", {True: "layernorm", False: "plain_layernorm"}, True),
        Requires("layerdrop", lambda rate: not rate, "0"),
    ),
    tensors=(
        Rename("decoder.embed_tokens", "embeddings.embed_tokens"),
        Rename("decoder.project_in", "embeddings.token_projection"),
        Rename("decoder.embed_positions", "embeddings.embed_positions"),
        *(Rename(f"decoder.{name}", name) for name in QKV),
        Rename("decoder.layers.{i}.self_attn.out_proj", "layers.{i}.self_attn.o_proj"),
        Rename("decoder.layers.{i}.self_attn_layer_norm", "layers.{i}.self_attn_norm"),
        Rename("decoder.layers.{i}.fc1", "layers.{i}.mlp.up_proj"),
        Rename("decoder.layers.{i}.fc2", "layers.{i}.mlp.down_proj"),
        Rename("decoder.layers.{i}.final_layer_norm", "layers.{i}.mlp_norm"),
        Rename("decoder.final_layer_norm", "norm"),
        Rename("decoder.project_out", "projection"),
    ),
    heads=generic_heads("OPT", WITHOUT_TOKENS),
    tokenizer="GPT2Tokenizer",
)
