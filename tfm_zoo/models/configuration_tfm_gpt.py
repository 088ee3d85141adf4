"""Configuration of the decoder family."""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import MixtralConfig

from .configuration_tfm import ENGINES, DecoderFields, Follows, NormPosition, TfmConfig, WriterFields, auto_classes_of


@strict
class TfmGPTConfig(DecoderFields, WriterFields, TfmConfig):
    """Configuration of the decoder family. The defaults are GPT-2 small (Radford et al. 2019)."""

    model_type = "tfm_gpt"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "cache"]
    modeling_file: ClassVar[str] = "modeling_tfm_gpt"
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "TfmGPT", "CausalLM SequenceClassification TokenClassification QuestionAnswering"
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

    position_ids_from_padding: ClassVar[bool]  # a decoder that counts real tokens has `position_ids_from_mask`
    use_cache: bool = True  # in evaluation mode a forward pass returns keys and values (not those of packed rows)

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
            (self.num_experts and act != "silu", f"hidden_act={act!r}: engines compute experts with 'silu'"),
        ):
            if is_so:
                raise ValueError(f"{reason}: serve the model with transformers.")

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
