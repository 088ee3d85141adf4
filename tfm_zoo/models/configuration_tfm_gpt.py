"""Configuration of the decoder family."""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import MixtralConfig

from .configuration_tfm import ENGINES, Follows, LogitFields, NormPosition, TfmConfig, WriterFields, auto_classes_of


@strict
class TfmGPTConfig(LogitFields, WriterFields, TfmConfig):
    """Configuration of the decoder family. The defaults are GPT-2 small (Radford et al. 2019)."""

    model_type = "tfm_gpt"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "cache"]
    modeling_file: ClassVar[str] = "modeling_tfm_gpt"
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "TfmGPT", "CausalLM SequenceClassification TokenClassification QuestionAnswering"
    )

    attribute_map: ClassVar[dict[str, str]] = TfmConfig.attribute_map | {"num_experts": "num_local_experts"}
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

    position_ids_from_padding: ClassVar[bool]  # a decoder that counts real tokens has `position_ids_from_mask`
    use_cache: bool = True  # in evaluation mode a forward pass returns keys and values (not those of packed rows)

    # what decoders without an encoder have beside the block
    project_tokens: bool = False  # only tokens and last hidden states are `embedding_size` wide (OPT-350M)
    #: count real tokens only, by the mask; padding has position -1 (OPT). ALiBi counts distances so, too (BLOOM); but
    #: not in a static cache if every layer has a window
    position_ids_from_mask: bool = False
    scale_alibi: bool = False  # ALiBi is a part of the scores that `attention_scale` multiplies (Falcon)
    round_alibi: bool = False  # it is computed from the positions of keys, not from distances, in bfloat16 (Falcon)
    #: `generate` renews its cache where a text passes `original_max_position_embeddings` and LongRoPE changes (Phi 3)
    renew_longrope_cache: bool = False
    scale_attn_by_inverse_layer_idx: bool = False  # divide scores by the layer's number, from 1 on
    scaled_residual_init: bool = True  # what adds to the residual stream starts smaller (GPT-2, section 2.3)
    num_local_experts: int | None = None  # experts in a feed-forward, each gated and without biases (Mixtral)
    num_experts_per_tok: int = 2  # how many of them a router chooses for each token
    moe_intermediate_size: int | None = Follows("intermediate_size")  # width inside an expert
    shared_expert_intermediate_size: int | None = None  # the same of one that all tokens share (Qwen2-MoE)
    norm_topk_prob: bool = True  # whether the weights of the chosen experts are scaled to sum to one
    #: of each layer: `"sparse"`, with experts, or `"dense"`
    mlp_layer_types: list[str] | None = Follows(
        lambda config: ["sparse" if config.num_local_experts else "dense"] * config.num_hidden_layers
    )
    output_router_logits: bool = False  # return them, and a language model the loss that balances the use of experts
    #: what that loss is multiplied by before it is added to the loss of labels (Fedus et al. 2021)
    router_aux_loss_coef: float | int | None = Follows(lambda config: 0.001 if config.num_local_experts else 0.0)

    def validate_fields(self) -> None:
        """Also refuses what an engine does not compute."""
        super().validate_fields()
        if self._attn_implementation not in ENGINES:
            return
        bias, cap, act = self.lm_head_bias, self.final_logit_softcapping, self.hidden_act
        scale = (
            f"logit_scale={self.logit_scale} scales logits before lm_head_bias={bias}, final_logit_softcapping={cap}"
        )
        width = f"project_tokens gives the last hidden states the width embedding_size={self.embedding_size}"
        for is_so, reason in (
            (self.project_tokens, f"{width}, and an engine's logits read hidden_size={self.hidden_size}"),
            (self.lm_head_transform, "lm_head_transform=True adds layers that an engine skips"),
            (self.logit_scale != 1 and (bias or cap is not None), f"{scale}, and an engine after them"),
            (self.num_local_experts and act != "silu", f"hidden_act={act!r}: engines compute experts with 'silu'"),
        ):
            if is_so:
                raise ValueError(f"{reason}: serve the model with transformers.")

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
