"""Decoders that are LLaMA with another feed-forward, other norms or another rotation: a few rules each.

In GLM, Helium, ERNIE 4.5 and Cohere, rotated channels form pairs side by side; nanochat turns them the other way. In
Cohere 2 and Exaone 4, layers that see everything have no positions.
"""

from typing import Any

from ..architecture import Architecture
from ..config_rules import Computed, Field, Fields, Requires, amended, choice, constants, ignored, only, same
from ..tensor_rules import Interleaved, Rename, Split, TurnedBackwards
from .decoder_family import (
    ROTARY_SHARE,
    WITHOUT_ANSWERS,
    RotaryParameters,
    generic_heads,
    megatron_block,
    token_classifier_dropout,
)
from .llama import ALWAYS_A_WINDOW, BODY, FIELDS, HEAD_NORMS, TENSORS, head_dim, llama
from .olmo import TENSORS as OUTPUT_NORMS
from .projections import GATE_UP, QKV

ONLY_LANGUAGE = ("Model", "ForCausalLM")
LAYER_NORM = (*constants(norm_type="layernorm"), Field("layer_norm_eps", "norm_eps"))
#: of the feed-forward's output alone; a classifier's may follow from it
RESIDUAL_DROPOUT = (
    *same("hidden_dropout"),
    *constants(attention_output_dropout=0.0, embedding_dropout=0.0),
    Computed("classifier_dropout", token_classifier_dropout),
)
PAIRED = tuple(Interleaved(name, name) for name in QKV[:2])


def rotates(official: Fields) -> list[int]:
    """For each layer, whether it has positions: with a window, only those that slide."""
    is_mixed = official.get("sliding_window") is not None
    return [int(not is_mixed or layer_type == "sliding_attention") for layer_type in official["layer_types"]]


def grows(parameters: dict[str, Any]) -> bool:
    """Whether rotary parameters say how queries grow with their position."""
    return {"llama_4_scaling_beta", "original_max_position_embeddings"} <= parameters.keys()


#: of Cohere 2 and Exaone 4; their layers say which have positions
ONLY_SLIDING_ROTATE = (*same("layer_types"), Computed("no_rope_layers", rotates, lambda layers: {}))

#: of ByteDance (2025)
SEED_OSS = llama(
    *("seed_oss", "Seed-OSS", "SeedOss"),
    *same("attention_bias", "mlp_bias"),
    Field("attention_out_bias", "attention_output_bias"),
    Field("residual_dropout", "hidden_dropout"),
    *constants(embedding_dropout=0.0),
    tokenizer="PreTrainedTokenizerFast",
)
#: AFM (Arcee 2025), with squared ReLU in place of a gate
ARCEE = llama(
    *("arcee", "Arcee", "Arcee"),
    *same("attention_bias", "mlp_bias"),
    *constants(mlp_type="dense"),
    tokenizer="PreTrainedTokenizerFast",
)
#: Nemotron-4 (NVIDIA 2024): LayerNorm around one, and squared ReLU in place of a gate
NEMOTRON = llama(
    *("nemotron", "Nemotron", "Nemotron"),
    *same("attention_bias", "mlp_bias", "norm_eps"),
    *constants(norm_type="zero_centered_layernorm", mlp_type="dense"),
    ROTARY_SHARE,
    base=FIELDS,
    tokenizer="PreTrainedTokenizerFast",
)
#: for classes whose own default is scaled, and warns of a model of few positions
PLAIN_WITHOUT = RotaryParameters(lambda parameters: parameters or {"rope_type": "default", "rope_theta": 10000.0})
XIELU = tuple(f"layers.{{i}}.mlp.act_fn.{tensor}" for tensor in ("alpha_p", "alpha_n", "beta", "eps"))
#: Apertus (Swiss AI 2025): norms of heads, and xIELU, an activation with weights, in place of a gate
APERTUS = llama(
    *("apertus", "Apertus", "Apertus"),
    *same("attention_bias"),
    *constants(mlp_type="dense", mlp_bias=False, qk_norm="head"),
    PLAIN_WITHOUT,
    tensors=(
        Rename("layers.{i}.attention_layernorm", "layers.{i}.self_attn_norm"),
        Rename("layers.{i}.feedforward_layernorm", "layers.{i}.mlp_norm"),
        *(Rename(name, name) for name in XIELU),
        *BODY,
        *HEAD_NORMS,
    ),
    heads=("Model", "ForCausalLM", "ForTokenClassification"),
    tokenizer="PreTrainedTokenizerFast",
)
#: Jais 2 (Inception 2025): LayerNorm, and squared ReLU in place of a gate
JAIS2 = llama(
    *("jais2", "Jais 2", "Jais2"),
    *same("attention_bias", "mlp_bias"),
    *LAYER_NORM,
    *constants(mlp_type="dense"),
    heads=ONLY_LANGUAGE,
    tokenizer="PreTrainedTokenizerFast",
)
#: Kyutai 2025
HELIUM = llama(
    *("helium", "Helium", "Helium"),
    *same("attention_bias", "mlp_bias", "head_dim"),
    *constants(attention_output_bias=False),
    tensors=(*PAIRED, *TENSORS),
    heads=WITHOUT_ANSWERS,
    tokenizer="PreTrainedTokenizerFast",
)
#: Baidu 2025, the dense model
ERNIE4_5 = llama(
    *("ernie4_5", "ERNIE 4.5", "Ernie4_5"),
    Field("use_bias", "attention_bias"),
    Field("use_bias", "mlp_bias"),
    *constants(attention_dropout=0.0),
    tensors=(*PAIRED, *TENSORS),
    heads=ONLY_LANGUAGE,
)
#: Team GLM 2024: part of each head is rotated
GLM = llama(
    *("glm", "GLM", "Glm"),
    *same("attention_bias", "head_dim"),
    *constants(attention_output_bias=False, mlp_bias=False),
    ROTARY_SHARE,
    base=FIELDS,
    tensors=(*PAIRED, Split("layers.{i}.mlp.gate_up_proj", GATE_UP), *TENSORS),
    heads=WITHOUT_ANSWERS,
    tokenizer="PreTrainedTokenizerFast",
)
#: the same with norms on both sides of each sub-layer
GLM4 = llama(
    *("glm4", "GLM-4", "Glm4"),
    *constants(norm_position="both"),
    base=GLM.config,
    tensors=(
        Rename("layers.{i}.post_self_attn_layernorm", "layers.{i}.self_attn_output_norm"),
        Rename("layers.{i}.post_mlp_layernorm", "layers.{i}.mlp_output_norm"),
        *GLM.tensors,
    ),
    heads=WITHOUT_ANSWERS,
    tokenizer="PreTrainedTokenizerFast",
)
#: Bellagente et al. 2024: LayerNorm, and attention beside feed-forward if `use_parallel_residual`
STABLELM = llama(
    *("stablelm", "StableLM", "StableLm"),
    *LAYER_NORM,
    *RESIDUAL_DROPOUT,
    *same("use_parallel_residual"),
    Field("use_qkv_bias", "attention_bias"),
    *constants(attention_output_bias=False, mlp_bias=False),
    *constants(num_ln_in_parallel_attn=lambda zoo: 1 if zoo["use_parallel_residual"] else 2),
    *only(qk_layernorm=False),  # each head has a norm with weights of its own
    ROTARY_SHARE,
    base=FIELDS,
    heads=WITHOUT_ANSWERS,
    tokenizer="PreTrainedTokenizerFast",
)
COHERE_CONFIG = (
    *LAYER_NORM,
    *same("attention_bias", "logit_scale"),
    *constants(mlp_bias=False, norm_bias=False, use_parallel_residual=True, num_ln_in_parallel_attn=1),
)
#: Command R (Cohere 2024): attention beside feed-forward, through one LayerNorm without bias
COHERE = llama(
    *("cohere", "Cohere", "Cohere"),
    *COHERE_CONFIG,
    *only(use_qk_norm=False),  # each head has a norm with weights of its own
    tensors=(*PAIRED, *TENSORS),
    heads=ONLY_LANGUAGE,
    tokenizer="CohereTokenizer",
)
COHERE2 = llama(
    *("cohere2", "Cohere 2", "Cohere2"),
    *COHERE_CONFIG,
    *ALWAYS_A_WINDOW,
    *ONLY_SLIDING_ROTATE,
    tensors=(*PAIRED, *TENSORS),
    heads=ONLY_LANGUAGE,
    tokenizer="CohereTokenizer",
)
#: LG AI Research 2025: norms after each sub-layer, and of each head
EXAONE4 = llama(
    *("exaone4", "Exaone 4", "Exaone4"),
    *same("sliding_window"),
    *ONLY_SLIDING_ROTATE,
    *constants(attention_bias=False, mlp_bias=False, norm_position="output", qk_norm="head"),
    *ignored("sliding_window_pattern"),  # where there are no `layer_types`, it makes them
    tensors=OUTPUT_NORMS,
    tokenizer="PreTrainedTokenizerFast",
)


def static_rotation(official: Fields) -> dict[str, Any] | None:
    """The rotary parameters of Hunyuan, whose `alpha` makes those that it calls dynamic plain ones of another base."""
    parameters = official.get("rope_parameters")
    if not (parameters and parameters["rope_type"] == "dynamic" and parameters.get("alpha")):
        return parameters
    width = head_dim(official)
    theta = parameters["rope_theta"] * parameters["alpha"] ** (width / (width - 2))
    return {"rope_type": "default", "rope_theta": theta}


#: Tencent 2025, the dense models: norms of queries and keys after positions have turned them
HUNYUAN = llama(
    *("hunyuan_v1_dense", "Hunyuan", "HunYuanDenseV1"),
    *same("attention_bias"),
    *constants(mlp_bias=False, qk_norm="turned_head"),
    Computed("rope_parameters", static_rotation, lambda parameters: {"rope_parameters": parameters}),
    *ignored("eod_token_id"),
    models=("Hunyuan-MT",),
    tensors=(
        Rename("layers.{i}.self_attn.query_layernorm", "layers.{i}.self_attn.q_norm"),
        Rename("layers.{i}.self_attn.key_layernorm", "layers.{i}.self_attn.k_norm"),
        *TENSORS,
    ),
    heads=("Model", "ForCausalLM", "ForSequenceClassification"),
    tokenizer="PreTrainedTokenizerFast",
)
KEEPS_LENGTHS = ("default", "linear", "dynamic", "llama3")
#: Karpathy 2025: norms without weights, of the embeddings and of heads too, and squared ReLU in place of a gate. The
#: norms of heads stand after their rotation, which leaves a head as long as it was: before it they are the same.
NANOCHAT = llama(
    *("nanochat", "nanochat", "NanoChat"),
    *same("attention_bias", "final_logit_softcapping"),
    *constants(mlp_type="dense", mlp_bias=False, norm_type="plain_rmsnorm", qk_norm="head", embedding_norm=True),
    Requires(
        "rope_parameters",
        lambda parameters: (parameters or {}).get("rope_type", "default") in KEEPS_LENGTHS,
        f"rope_type one of {', '.join(KEEPS_LENGTHS)}",
    ),
    tensors=(
        *(TurnedBackwards(name, name) for name in QKV[:2]),
        Rename("layers.{i}.mlp.fc1", "layers.{i}.mlp.up_proj"),
        Rename("layers.{i}.mlp.fc2", "layers.{i}.mlp.down_proj"),
        *BODY,
    ),
    heads=ONLY_LANGUAGE,
    tokenizer="PreTrainedTokenizerFast",
)
#: Mistral AI 2025: Mistral with queries that grow with their position. (The models that read pictures hold it in parts
#: of other names.)
MINISTRAL3 = llama(
    *("ministral3", "Ministral 3", "Ministral3"),
    *same("sliding_window", "head_dim"),
    *constants(attention_bias=False, mlp_bias=False),
    PLAIN_WITHOUT,
    Requires("rope_parameters", grows, "with llama_4_scaling_beta and original_max_position_embeddings"),
    tokenizer="PreTrainedTokenizerFast",
)
#: Elsen et al. 2023: packed queries, keys and values, LayerNorm of heads too, and squared ReLU in place of a gate
PERSIMMON = Architecture(
    model_type="persimmon",
    title="Persimmon",
    prefix="model",
    config=amended(
        (rule for rule in FIELDS if rule.zoo not in ("num_key_value_heads", "mlp_type")),
        *LAYER_NORM,
        *RESIDUAL_DROPOUT,
        *choice("qk_layernorm", "qk_norm", {True: "head", False: None}, True),
        ROTARY_SHARE,
    ),
    tensors=(
        *megatron_block("layers.{i}", "self_attn"),
        *(Rename(f"layers.{{i}}.self_attn.{x}_layernorm", f"layers.{{i}}.self_attn.{x}_norm") for x in "qk"),
        Rename("final_layernorm", "norm"),
        *TENSORS,
    ),
    heads=generic_heads("Persimmon", WITHOUT_ANSWERS),
    tokenizer="LlamaTokenizer",
)
