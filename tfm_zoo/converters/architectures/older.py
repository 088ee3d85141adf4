"""GPT-Neo (Black et al. 2021), with windows in every other layer; BioGPT (Luo et al. 2022), with scaled embeddings;
XGLM (Lin et al. 2022), the same with sinusoids."""

from ..architecture import Architecture, Head
from ..config_rules import Computed, Field, Fields, Requires, amended, constants, ignored, only, same
from ..tensor_rules import NotConverted, Rename
from .decoder_family import CONFIG, OLDER, generic_heads
from .projections import QKV

#: GPT-Neo's names of a layer's attention
ATTENTION = {"global": "full_attention", "local": "sliding_attention"}


def layer_types(official: Fields) -> list[str]:
    patterns = official.get("attention_types") or [[["global", "local"], 12]]
    return [ATTENTION[name] for names, count in patterns for _ in range(count) for name in names]


def attention_types(types: list[str]) -> dict[str, object]:
    names = ["local" if layer_type == "sliding_attention" else "global" for layer_type in types]
    return {"attention_types": [[names, 1]], "attention_layers": names}


GPT_NEO = Architecture(
    model_type="gpt_neo",
    title="GPT-Neo",
    prefix="transformer",
    config=(
        *CONFIG,
        *same("hidden_size", "max_position_embeddings", "attention_dropout", "use_cache"),
        Field("num_layers", "num_hidden_layers"),
        Field("num_heads", "num_attention_heads"),
        Field("activation_function", "hidden_act"),
        Field("layer_norm_epsilon", "norm_eps"),
        Field("resid_dropout", "hidden_dropout"),
        Field("embed_dropout", "embedding_dropout"),
        Field("window_size", "sliding_window"),
        Computed("layer_types", layer_types, attention_types),
        Computed(
            "intermediate_size", lambda official: official.get("intermediate_size") or 4 * official["hidden_size"]
        ),
        *constants(attention_scale=1.0, attention_bias=False, attention_output_bias=True, scaled_residual_init=False),
        *constants(token_types_as_tokens=True),
        *ignored("attention_layers"),  # what `attention_types` says
    ),
    tensors=(
        Rename("wte", "embeddings.embed_tokens"),
        Rename("wpe", "embeddings.embed_positions"),
        Rename("h.{i}.ln_1", "layers.{i}.self_attn_norm"),
        *(Rename(f"h.{{i}}.attn.attention.{x}_proj", name) for x, name in zip("qkv", QKV, strict=True)),
        Rename("h.{i}.attn.attention.out_proj", "layers.{i}.self_attn.o_proj"),
        Rename("h.{i}.ln_2", "layers.{i}.mlp_norm"),
        Rename("h.{i}.mlp.c_fc", "layers.{i}.mlp.up_proj"),
        Rename("h.{i}.mlp.c_proj", "layers.{i}.mlp.down_proj"),
        Rename("ln_f", "norm"),
        *(NotConverted(f"h.{{i}}.attn.attention.{name}") for name in ("bias", "masked_bias")),  # causal masks
    ),
    heads=generic_heads("GPTNeo", rules=OLDER),
    tokenizer="GPT2Tokenizer",
)


def classifier_dropout(official: Fields) -> float:
    rate = official.get("classifier_dropout")
    return official["hidden_dropout_prob"] if rate is None else rate


FAIRSEQ = (
    Rename("embed_tokens", "embeddings.embed_tokens"),
    *(Rename(name, name) for name in QKV),
    Rename("layers.{i}.self_attn.out_proj", "layers.{i}.self_attn.o_proj"),
    Rename("layers.{i}.self_attn_layer_norm", "layers.{i}.self_attn_norm"),
    Rename("layers.{i}.fc1", "layers.{i}.mlp.up_proj"),
    Rename("layers.{i}.fc2", "layers.{i}.mlp.down_proj"),
    Rename("layers.{i}.final_layer_norm", "layers.{i}.mlp_norm"),
    Rename("layer_norm", "norm"),
)
BIOGPT = Architecture(
    model_type="biogpt",
    title="BioGPT",
    prefix="biogpt",
    config=amended(
        CONFIG,
        *same("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
        *same("max_position_embeddings", "scale_embedding", "activation_dropout", "use_cache"),
        Field("hidden_dropout_prob", "hidden_dropout"),
        Field("attention_probs_dropout_prob", "attention_dropout"),
        Computed("classifier_dropout", classifier_dropout),
        *constants(norm_eps=1e-5, position_offset=2, scaled_residual_init=False, train_padding_embedding=False),
        *ignored("layer_norm_eps"),  # the class takes 1e-5 whatever this says
        Requires("layerdrop", lambda rate: not rate, "0"),
        *only(is_decoder=False, add_cross_attention=False),
    ),
    tensors=(Rename("embed_positions", "embeddings.embed_positions"), *FAIRSEQ),
    heads=generic_heads(
        "BioGpt",
        (
            "Model",
            Head("BioGptForCausalLM", "TfmGPTForCausalLM", (Rename("output_projection.weight", "lm_head.weight"),)),
            "ForSequenceClassification",
            "ForTokenClassification",
        ),
        OLDER,
    ),
    tokenizer="BioGptTokenizer",
)
XGLM = Architecture(
    model_type="xglm",
    title="XGLM",
    prefix="model",
    config=amended(
        CONFIG,
        *same("max_position_embeddings", "scale_embedding", "attention_dropout", "activation_dropout", "use_cache"),
        Field("d_model", "hidden_size"),
        Field("num_layers", "num_hidden_layers"),
        Field("attention_heads", "num_attention_heads"),
        Field("ffn_dim", "intermediate_size"),
        Field("activation_function", "hidden_act"),
        Field("dropout", "hidden_dropout"),
        Field("init_std", "initializer_range"),
        *constants(position_embedding_type="sinusoidal", sinusoid_type="tensor2tensor", position_offset=2),
        *constants(norm_eps=1e-5, scaled_residual_init=False, train_padding_embedding=False),
        Requires("pad_token_id", lambda index: (index or 0) < 2, "0 or 1: others are positions without sinusoids"),
        Requires("layerdrop", lambda rate: not rate, "0"),
        *only(add_cross_attention=False),
    ),
    tensors=(NotConverted("embed_positions.weights"), *FAIRSEQ),
    heads=generic_heads("XGLM", ("Model", "ForCausalLM")),
    tokenizer="XGLMTokenizer",
)
