"""Configuration of the decoder family."""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import MixtralConfig

from .configuration_tfm import NormPosition, TfmConfig, add_following_fields


@strict
class TfmGPTConfig(TfmConfig):
    """Configuration of the decoder family. The defaults are GPT-2 small (Radford et al. 2019).

    Args (beyond those of [`TfmConfig`]):
        layer_types: for each layer `"full_attention"`, `"sliding_attention"` (which sees `sliding_window` positions) or
            `"linear_attention"`. `None`: as `attention_type` and `sliding_window` say, for all layers.
        num_local_experts: number of experts that feed-forwards consist of, each gated and without biases (Mixtral).
            `None`: feed-forwards as `mlp_type` says.
        num_experts_per_tok: how many of them a router chooses for each token.
        moe_intermediate_size: width inside an expert. `None`: `intermediate_size`.
        norm_topk_prob: whether the weights of the chosen experts are scaled to sum to one.
        mlp_layer_types: for each layer `"sparse"`, with experts, or `"dense"`. `None`: `"sparse"` if there are experts.
        output_router_logits: whether models return the router's logits and a language model its loss, which balances
            the use of the experts (Fedus et al. 2021) and is added to the loss of labels.
        router_aux_loss_coef: what that loss is multiplied by first. `None`: 0.001 if there are experts, else 0.
        project_tokens: only tokens have the width `embedding_size`. A projection without bias widens them before
            positions are added; another narrows the last hidden states, so that the vocabulary can be tied (OPT-350M).
        position_ids_from_mask: if a caller passes no `position_ids`, count the tokens that the attention mask shows;
            padding has position -1 (OPT). ALiBi then counts distances in the same way (BLOOM), except in a static
            cache if every layer slides.
        scale_alibi: ALiBi is a part of the scores that `attention_scale` multiplies (Falcon).
        round_alibi: ALiBi is computed from the position of each key, not from distances, and rounded to bfloat16; needs
            `position_ids_from_mask` (Falcon).
        position_offset: rows of the learned position table before that of the first position (OPT: 2).
        scaled_residual_init: start the projections that add to the residual stream smaller by the square root of
            their number, as GPT-2 does (Radford et al. 2019, section 2.3).
        lm_head_bias: a bias in the projection onto the vocabulary (Phi, GPT-J).
        logit_scale: what logits, but not their bias, are multiplied by.
        final_logit_softcapping: a soft cap: logits become `cap * tanh(logits / cap)` (Gemma 2).
        classifier_dropout: dropout before the classifier of tokens.
        renew_longrope_cache: generation computes its cache anew where a text passes `original_max_position_embeddings`,
            beyond which LongRoPE has other frequencies (Phi 3).
        use_cache: whether a forward pass in evaluation mode returns its keys and values (not those of packed rows).
        skip_padding: in training, compute neither padding nor what follows the last position of a row that a loss
            reads; a classifier of sequences never computes them, unless there is a cache.
    """

    model_type = "tfm_gpt"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]
    modeling_file: ClassVar[str] = "modeling_tfm_gpt"
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "TfmGPTConfig",
        "AutoModel": "TfmGPTModel",
        "AutoModelForCausalLM": "TfmGPTForCausalLM",
        "AutoModelForSequenceClassification": "TfmGPTForSequenceClassification",
        "AutoModelForTokenClassification": "TfmGPTForTokenClassification",
        "AutoModelForQuestionAnswering": "TfmGPTForQuestionAnswering",
    }

    #: how tensor parallelism and expert parallelism divide experts
    experts_tp_plan: ClassVar[dict[str, str]] = {
        "layers.*.mlp.experts.gate_up_proj": "packed_colwise",
        "layers.*.mlp.experts.down_proj": "rowwise",
        "layers.*.mlp.experts": "moe_tp_experts",
    }
    #: that of Mixtral, whose experts have these names: the styles of a plan change between releases of transformers
    experts_ep_plan: ClassVar[dict[str, str]] = MixtralConfig.base_model_ep_plan

    vocab_size: int = 50257
    hidden_act: str = "gelu_new"
    max_position_embeddings: int = 1024
    norm_position: NormPosition = "pre"
    bos_token_id: int | None = 50256
    eos_token_id: int | list[int] | None = 50256
    train_padding_embedding: bool = True

    layer_types: list[str] | None = None
    num_local_experts: int | None = None
    num_experts_per_tok: int = 2
    moe_intermediate_size: int | None = None
    norm_topk_prob: bool = True
    mlp_layer_types: list[str] | None = None
    output_router_logits: bool = False
    router_aux_loss_coef: float | int | None = None
    project_tokens: bool = False
    position_ids_from_mask: bool = False
    scale_alibi: bool = False
    round_alibi: bool = False
    position_offset: int = 0
    scaled_residual_init: bool = True
    lm_head_bias: bool = False
    logit_scale: float | int = 1.0
    final_logit_softcapping: float | int | None = None
    classifier_dropout: float | int = 0.1
    renew_longrope_cache: bool = False
    use_cache: bool = True
    skip_padding: bool = True

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.num_local_experts is not None:
            plan, is_mixed = self.base_model_tp_plan, "dense" in self.mlp_layer_types
            dense = {name: style for name, style in plan.items() if is_mixed or ".mlp." not in name}
            self.base_model_tp_plan = dense | self.experts_tp_plan

    @property
    def num_experts(self) -> int | None:
        """`num_local_experts`, under the name by which trl asks for it."""
        return self.num_local_experts

    @property
    def base_model_ep_plan(self) -> dict[str, str] | None:
        return None if self.num_local_experts is None else self.experts_ep_plan

    def validate_layer_types(self):
        """The family's own fields fit each other. (By its name it runs after transformers' `validate_layer_type`.)"""
        self.check_layer_types()
        self.check_experts()
        self.check_offset()
        has_rows = self.position_embedding_type in ("learned", "sinusoidal")
        if self.position_ids_from_mask and has_rows and not self.position_offset:
            raise ValueError(
                f"position_ids_from_mask=True gives padding position -1, for which position_embedding_type="
                f"{self.position_embedding_type!r} has no row: it should be 'learned' with position_offset from 1 on."
            )
        if self.renew_longrope_cache and getattr(self, "rope_parameters", {}).get("rope_type") != "longrope":
            raise ValueError(
                "renew_longrope_cache=True is for a cache that outgrows rope_parameters with rope_type='longrope'; "
                "this model has others, or none."
            )
        if self.sliding_window == 1:
            raise ValueError("sliding_window=1 lets a position see itself alone; caches take windows of 2 and more.")

    def check_experts(self):
        """The fields about experts fit each other."""
        types, count = self.mlp_layer_types, self.num_local_experts
        if count is None:
            if "sparse" in types or self.output_router_logits:
                raise ValueError(
                    f"mlp_layer_types={types} with output_router_logits={self.output_router_logits} is for "
                    "feed-forwards of experts: num_local_experts=None should say how many."
                )
            return
        if not 1 <= self.num_experts_per_tok <= count or self.moe_intermediate_size < 1:
            raise ValueError(
                f"num_experts_per_tok={self.num_experts_per_tok} should be from 1 to num_local_experts={count}, and "
                f"moe_intermediate_size={self.moe_intermediate_size} at least 1."
            )
        if self.mlp_type != "gated" or self.mlp_bias or self.mlp_output_bias or self.activation_dropout:
            raise ValueError(
                f"num_local_experts={count} are gated feed-forwards without biases: mlp_type={self.mlp_type!r}, "
                f"mlp_bias={self.mlp_bias}, mlp_output_bias={self.mlp_output_bias} and activation_dropout="
                f"{self.activation_dropout} should be 'gated', False, False and 0."
            )


add_following_fields(
    TfmGPTConfig,
    layer_types=lambda config: [config.layer_type] * config.num_hidden_layers,
    mlp_layer_types=lambda config: ["sparse" if config.num_local_experts else "dense"] * config.num_hidden_layers,
    moe_intermediate_size=lambda config: config.intermediate_size,
    router_aux_loss_coef=lambda config: 0.001 if config.num_local_experts else 0.0,
)
