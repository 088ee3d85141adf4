"""Decoders whose feed-forwards are experts.

Mixtral (Jiang et al. 2024) is otherwise Mistral, Qwen2-MoE (Qwen team 2024) Qwen2, Qwen3-MoE (Yang et al. 2025) Qwen3,
Granite-MoE (2024) Granite; OLMoE (Muennighoff et al. 2024) has the norms of queries and keys of OLMo 2, and others
where LLaMA has them.
"""

from ..config_rules import Computed, Field, Fields, Requires, amended, constants, only, same
from ..tensor_rules import PerExpert, Rename
from .granite import GRANITE
from .llama import HEAD_NORMS, TENSORS, WINDOW, WINDOWS, llama

ROUTER = (
    *same("num_local_experts", "num_experts_per_tok", "output_router_logits", "router_aux_loss_coef"),
    Requires("num_local_experts", lambda count: count is not None, "a number"),
)
#: the number of experts, in classes that name it so
QWEN_ROUTER = amended(
    ROUTER,
    Computed("num_local_experts", lambda official: official.get("num_experts"), lambda count: {"num_experts": count}),
)
EXPERTS = tuple(
    Rename(f"layers.{{i}}.mlp.{name}", f"layers.{{i}}.mlp.{name}")
    for name in ("gate.weight", "experts.gate_up_proj", "experts.down_proj")
)
#: of Qwen2-MoE, Qwen3-MoE and OLMoE in files
STORED_EXPERTS = (
    PerExpert(
        tuple(f"layers.{{i}}.mlp.experts.{{e}}.{name}_proj.weight" for name in ("gate", "up")),
        "layers.{i}.mlp.experts.gate_up_proj",
    ),
    PerExpert("layers.{i}.mlp.experts.{e}.down_proj.weight", "layers.{i}.mlp.experts.down_proj"),
)


def mlp_layer_types(official: Fields) -> list[str]:
    """Every `decoder_sparse_step`-th layer has experts, unless it is one of `mlp_only_layers`."""
    step, dense = official.get("decoder_sparse_step", 1), official.get("mlp_only_layers") or ()
    layers = range(official["num_hidden_layers"])
    return ["dense" if layer in dense or (layer + 1) % step else "sparse" for layer in layers]


def dense_layers(types: list[str]) -> dict[str, object]:
    return {"decoder_sparse_step": 1, "mlp_only_layers": [i for i, mlp_type in enumerate(types) if mlp_type == "dense"]}


MIXTRAL = llama(
    *("mixtral", "Mixtral", "Mixtral"),
    *ROUTER,
    *same("sliding_window"),
    *constants(attention_bias=False, mlp_bias=False, norm_topk_prob=True),
    *only(router_jitter_noise=0.0),
    tensors=(*TENSORS, *EXPERTS),
    stored=(
        Rename("layers.{i}.block_sparse_moe.gate.weight", "layers.{i}.mlp.gate.weight"),
        PerExpert(
            tuple(f"layers.{{i}}.block_sparse_moe.experts.{{e}}.{name}.weight" for name in ("w1", "w3")),
            "layers.{i}.mlp.experts.gate_up_proj",
        ),
        PerExpert("layers.{i}.block_sparse_moe.experts.{e}.w2.weight", "layers.{i}.mlp.experts.down_proj"),
    ),
)
SHARED_EXPERT = tuple(
    Rename(f"layers.{{i}}.mlp.{name}", f"layers.{{i}}.mlp.{name}")
    for name in ("shared_expert_gate", *(f"shared_expert.{part}_proj" for part in ("gate", "up", "down")))
)
#: with an expert that all tokens share
QWEN2_MOE = llama(
    *("qwen2_moe", "Qwen2-MoE", "Qwen2Moe"),
    *QWEN_ROUTER,
    *WINDOWS,
    *same("moe_intermediate_size", "norm_topk_prob", "shared_expert_intermediate_size"),
    Field("qkv_bias", "attention_bias"),
    Computed("mlp_layer_types", mlp_layer_types, dense_layers),
    *constants(attention_output_bias=False, mlp_bias=False),
    models=("Qwen1.5-MoE",),
    tensors=(*TENSORS, *EXPERTS, *SHARED_EXPERT),
    stored=STORED_EXPERTS,
    tokenizer="Qwen2Tokenizer",
)
QWEN3_MOE = llama(
    *("qwen3_moe", "Qwen3-MoE", "Qwen3Moe"),
    *ROUTER,
    WINDOW,
    *same("attention_bias", "head_dim", "moe_intermediate_size", "norm_topk_prob"),
    Computed("mlp_layer_types", mlp_layer_types, dense_layers),
    *constants(mlp_bias=False, qk_norm="head"),
    tensors=(*TENSORS, *HEAD_NORMS, *EXPERTS),
    stored=STORED_EXPERTS,
    tokenizer="Qwen2Tokenizer",
)
OLMOE = llama(
    *("olmoe", "OLMoE", "Olmoe"),
    *QWEN_ROUTER,
    *same("attention_bias", "norm_topk_prob"),
    *constants(mlp_bias=False, qk_norm="whole"),
    *only(clip_qkv=None),
    tensors=(*TENSORS, *HEAD_NORMS, *EXPERTS),
    stored=STORED_EXPERTS,
    heads=("Model", "ForCausalLM"),
    tokenizer="PreTrainedTokenizerFast",
)
SPARSE = "layers.{i}.block_sparse_moe"
#: a softmax over the chosen logits is one over all of them, scaled to sum to one
GRANITE_MOE = llama(
    *("granitemoe", "Granite-MoE", "GraniteMoe"),
    *ROUTER,
    *constants(mlp_bias=False, norm_topk_prob=True),
    base=GRANITE.config,
    tensors=(
        *TENSORS,
        Rename(f"{SPARSE}.router.weight", "layers.{i}.mlp.gate.weight", also=f"{SPARSE}.router.layer.weight"),
        Rename(
            *(f"{SPARSE}.experts.gate_up_proj", "layers.{i}.mlp.experts.gate_up_proj"),
            also=f"{SPARSE}.input_linear.weight",
        ),
        Rename(
            *(f"{SPARSE}.experts.down_proj", "layers.{i}.mlp.experts.down_proj"), also=f"{SPARSE}.output_linear.weight"
        ),
    ),
    heads=("Model", "ForCausalLM"),
    tokenizer="PreTrainedTokenizerFast",
)
