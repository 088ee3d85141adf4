"""The rules of each family: what fits what in its configuration."""

import operator
from collections.abc import Iterator
from typing import Any

from ..models.configuration_tfm import TfmConfig, names_of
from ..models.configuration_tfm_bert import TfmBertConfig
from ..models.configuration_tfm_deberta import TfmDebertaConfig
from ..models.configuration_tfm_encoder_decoder import TfmEncoderDecoderConfig
from ..models.configuration_tfm_gpt import TfmGPTConfig
from ..models.configuration_tfm_text_tower import TfmTextTowerConfig
from .rules import ACTIVATION, CAUSAL, RATE, RULES, SCORES, SIZE, WINDOW, Idle, Rule, each, needs, tokens

OF_EXPERTS = (
    "num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size norm_topk_prob router_aux_loss_coef"
)


@Rule
def shared_layers(config: Any) -> Iterator[str]:
    """Layers that share their weights are alike."""
    if not 1 <= config.num_hidden_groups <= config.num_hidden_layers:
        yield "$num_hidden_groups should be from 1 to $num_hidden_layers, the layers that it divides."
    layers = {*zip(config.layer_types, config.no_rope_layers, strict=True)}
    if config.num_hidden_groups < config.num_hidden_layers and not (len(layers) == 1 and config.first_norm):
        yield "$num_hidden_groups shares weights of layers whose $layer_types, $no_rope_layers or $first_norm differ."


@Rule
def distances(config: Any) -> Iterator[str]:
    """Scores read distances, and buckets hold all of them."""
    if not config.pos_att_type or not set(config.pos_att_type) <= {"c2p", "p2c"}:
        yield "$pos_att_type should name 'c2p', 'p2c' or both."
    if config.position_buckets is not None and not 2 <= config.position_buckets < 2 * config.max_relative_positions - 2:
        yield "$position_buckets should be None, or from 2 to less than twice $max_relative_positions - 1."
    if config.conv_kernel_size and config.conv_kernel_size % 2 == 0:
        yield "$conv_kernel_size should be odd, for a convolution that has a middle."
    if config.conv_kernel_size and config.hidden_size % config.conv_groups:
        yield "$conv_groups should divide $hidden_size."
    if config.project_before_norm and config.embedding_size == config.hidden_size:
        yield "$project_before_norm has no effect where $embedding_size is $hidden_size."


@Rule
def pooling(config: Any) -> Iterator[str]:
    """The end of a text can be found."""
    if config.pooled_position == "end" and not isinstance(config.eos_token_id, int):
        yield "$pooled_position is where the end token stands: $eos_token_id should be one id."


@Rule
def decoder_positions(config: Any) -> Iterator[str]:
    """Padding has a row in a table of positions, and a cache is renewed for LongRoPE alone."""
    has_table = config.position_embedding_type in ("learned", "sinusoidal")
    if config.position_ids_from_mask and has_table and not config.position_offset:
        yield "$position_ids_from_mask puts padding at -1: $position_embedding_type should be 'learned' from row 1 on."
    if config.renew_longrope_cache and getattr(config, "rope_parameters", {}).get("rope_type") != "longrope":
        yield "$renew_longrope_cache is for rope_parameters with rope_type='longrope': this model has others, or none."


@Rule
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
    right = {"mlp_type": "gated", "mlp_bias": False, "mlp_output_bias": False, "activation_dropout": 0}
    if wrong := [f"${name} should be {value!r}" for name, value in right.items() if getattr(config, name) != value]:
        yield f"$num_local_experts are gated feed-forwards without biases: {', '.join(wrong)}."


@Rule
def decoder_heads(config: Any) -> Iterator[str]:
    """The decoder's heads are together as wide as the encoder's."""
    heads, width = config.decoder_attention_heads, config.num_attention_heads * config.head_dim
    group = config.num_attention_heads // config.num_key_value_heads
    pairs = 2 if config.position_embedding_type == "rotary" else 1
    if width % (heads * pairs) or heads % group:
        even = " of even width" if pairs == 2 else ""
        yield (
            f"$decoder_attention_heads should divide {width}, the width of the encoder's heads together, into equal "
            f"heads{even}, and be a multiple of {group}, the query heads that share a key."
        )


@Rule
def two_stacks(config: Any) -> Iterator[str]:
    """What the decoder shares with the encoder fits both."""
    if any(isinstance(value, dict) for value in getattr(config, "rope_parameters", {}).values()):
        yield "$rope_parameters differ by type of layer, but there is one type: give those of all layers."
    if config.share_encoder_decoder_embeddings and config.decoder_vocab_size != config.vocab_size:
        yield "$share_encoder_decoder_embeddings is for one size: $vocab_size and $decoder_vocab_size must be equal."


ENCODER = (
    *(*RULES, SCORES),
    Idle("task_type_vocab_size", "type_vocab_size"),
    tokens("dropped_token_id", "vocab_size", "the vocabulary"),
    each("pooler_dropout sentence_dropout qa_dropout", *RATE),
    each("pooler_act lm_head_act", *ACTIVATION),
    needs("classifier_norm", "classifier_dense", True),
    Idle("lm_head_act", "lm_head_transform classifier_transform"),
    shared_layers,
)
#: a configuration -> its rules, which `plugin/registration.py` gives it
RULES_OF = {
    TfmConfig: RULES,
    TfmBertConfig: ENCODER,
    TfmDebertaConfig: (
        *ENCODER,
        each("max_relative_positions conv_groups", *SIZE),
        each("conv_kernel_size", lambda size: size >= 0, "0 (no convolution) or more"),
        each("conv_act", *ACTIVATION),
        distances,
        Idle("conv_groups conv_act", "conv_kernel_size"),
    ),
    TfmTextTowerConfig: (*RULES, SCORES, each("pooler_size projection_size", *SIZE), pooling),
    TfmGPTConfig: (
        *(*RULES, SCORES),
        each("sliding_window", *WINDOW),
        each(*CAUSAL),
        needs("scale_attn_by_inverse_layer_idx", "attention_type", "softmax"),
        decoder_positions,
        Idle(OF_EXPERTS, "num_local_experts"),
        each("shared_expert_intermediate_size", *SIZE),
        experts,
        needs("logit_scale project_tokens", "lm_head_transform", False),
        Idle("lm_head_act classifier_bias", "lm_head_transform"),
        each("lm_head_act", *ACTIVATION),
    ),
    TfmEncoderDecoderConfig: (
        *RULES,
        each("sliding_window", *WINDOW),
        each(*CAUSAL),
        each("decoder_layers decoder_vocab_size decoder_attention_heads decoder_ffn_dim", *SIZE),
        decoder_heads,
        each("use_parallel_residual", operator.not_, "False: cross-attention reads what attention added"),
        needs("final_logits_bias", "lm_head_bias", False),
        two_stacks,
        needs("norm_target_tokens", "embedding_norm", True),
        tokens("pad_token_id decoder_start_token_id", "decoder_vocab_size", "the target's vocabulary"),
        Idle("initializer_range", "weight_init", "normal"),
    ),
}


def fields_of_others(family: type[TfmConfig]) -> set[str]:
    """What a family refuses: the fields that other families have, under any of their names."""
    others = set().union(*map(names_of, RULES_OF))
    # Scripts set the first of these on every configuration, and a rule of decoders refuses the second.
    return others - names_of(family) - {"use_cache", "is_causal"}
