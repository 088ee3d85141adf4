"""Configuration of the decoder family."""

from collections.abc import Iterator
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import MixtralConfig

from .configuration_checks import ACTIVATION, CAUSAL, ENGINES, RULES, SCORES, SIZE, WINDOW, Idle, Rule, each, needs
from .configuration_tfm import DecoderFields, Follows, NormPosition, TfmConfig, WriterFields, auto_classes_of

OF_EXPERTS = (
    "num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size norm_topk_prob router_aux_loss_coef"
)


def positions(config: Any) -> Iterator[str]:
    """Padding has a row in a table of positions, and a cache is renewed for LongRoPE alone."""
    has_table = config.position_embedding_type in ("learned", "sinusoidal")
    if config.position_ids_from_mask and has_table and not config.position_offset:
        yield "$position_ids_from_mask puts padding at -1: $position_embedding_type should be 'learned' from row 1 on."
    if config.renew_longrope_cache and getattr(config, "rope_parameters", {}).get("rope_type") != "longrope":
        yield "$renew_longrope_cache is for rope_parameters with rope_type='longrope': this model has others, or none."


def experts(config: Any) -> Iterator[str]:
    """Experts are there where a layer is to have them, and are gated feed-forwards without biases."""
    types, count = config.mlp_layer_types, config.num_local_experts
    if not set(types) <= {"sparse", "dense"}:
        yield "$mlp_layer_types should name 'sparse' or 'dense' for each layer."
    if len(types) != config.num_hidden_layers:
        yield f"$num_hidden_layers is not the length of $mlp_layer_types, {len(types)}."
    if count is None:
        if "sparse" in types or config.output_router_logits:
            yield "$mlp_layer_types and $output_router_logits are for experts: $num_local_experts should say how many."
        return
    if not 1 <= config.num_experts_per_tok <= count or config.moe_intermediate_size < 1:
        yield "$num_experts_per_tok should be from 1 to $num_local_experts, and $moe_intermediate_size at least 1."
    if config.mlp_type != "gated" or config.mlp_bias or config.mlp_output_bias or config.activation_dropout:
        yield (
            "$num_local_experts are gated feed-forwards without biases: $mlp_type, $mlp_bias, $mlp_output_bias and "
            "$activation_dropout should be 'gated', False, False and 0."
        )


def serves_decoder(config: Any) -> Iterator[str]:
    """An engine computes what the decoder does."""
    if config._attn_implementation not in ENGINES:
        return
    if config.project_tokens:
        yield (
            "$project_tokens projects the last hidden states to $embedding_size, and an engine's logits read "
            "$hidden_size: serve the model with transformers."
        )
    if config.lm_head_transform:
        yield "$lm_head_transform adds layers that an engine skips: serve the model with transformers."
    if config.logit_scale != 1 and (config.lm_head_bias or config.final_logit_softcapping is not None):
        yield (
            "$logit_scale scales logits before their bias and their cap, and an engine scales them after $lm_head_bias "
            "and $final_logit_softcapping: serve the model with transformers."
        )
    if config.num_local_experts is not None and config.hidden_act != "silu":
        yield "$hidden_act: engines compute experts with 'silu', so serve the model with transformers."


@strict
class TfmGPTConfig(DecoderFields, WriterFields, TfmConfig):
    """Configuration of the decoder family. The defaults are GPT-2 small (Radford et al. 2019)."""

    model_type = "tfm_gpt"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "cache"]
    modeling_file: ClassVar[str] = "modeling_tfm_gpt"
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "TfmGPT", "CausalLM SequenceClassification TokenClassification QuestionAnswering"
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *(*RULES, SCORES),
        each("sliding_window", *WINDOW),
        each(*CAUSAL),
        needs("scale_attn_by_inverse_layer_idx", "attention_type", "softmax"),
        positions,
        Idle(OF_EXPERTS, "num_local_experts"),
        each("shared_expert_intermediate_size", *SIZE),
        experts,
        needs("logit_scale project_tokens", "lm_head_transform", False),
        Idle("lm_head_act classifier_bias", "lm_head_transform"),
        each("lm_head_act", *ACTIVATION),
        serves_decoder,
    )

    #: how tensor parallelism divides experts
    experts_tp_plan: ClassVar[dict[str, str]] = {
        "layers.*.mlp.experts.gate_up_proj": "packed_colwise",
        "layers.*.mlp.experts.down_proj": "rowwise",
        "layers.*.mlp.experts": "moe_tp_experts",
    }

    vocab_size: int = 50257
    intermediate_size: int | None = Follows(lambda config: 4 * config.hidden_size)
    hidden_act: str = "gelu_new"
    max_position_embeddings: int = 1024
    norm_position: NormPosition = "pre"
    bos_token_id: int | None = 50256
    eos_token_id: int | list[int] | None = 50256
    train_padding_embedding: bool = True
    classifier_dropout: float | int = 0.1

    position_ids_from_padding: ClassVar[bool]  # decoders count by the mask
    use_cache: bool = True  # in evaluation mode a forward pass returns keys and values (not those of packed rows)

    @property
    def num_experts(self) -> int | None:
        """`num_local_experts`, under the name by which trl asks for it."""
        return self.num_local_experts

    def tp_plan(self) -> dict[str, str]:
        plan = super().tp_plan()
        if self.num_local_experts is None:
            return plan
        is_mixed = "dense" in self.mlp_layer_types
        return {name: style for name, style in plan.items() if is_mixed or ".mlp." not in name} | self.experts_tp_plan

    @property
    def base_model_ep_plan(self) -> dict[str, str] | None:
        """That of Mixtral, whose experts have these names: styles of plans change between releases of transformers."""
        return None if self.num_local_experts is None else MixtralConfig.base_model_ep_plan
