"""What a configuration refuses: the kinds of rules, and the rules that all families share.

A rule is made of a function of a configuration that yields what is wrong, where `$field` stands for a field's name and
value. It may rely on the rules before it.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ..models.configuration_tfm import WITH_BIAS

LAYER_TYPES = ("full_attention", "sliding_attention", "linear_attention")
PROBLEMS = ("regression", "single_label_classification", "multi_label_classification")
#: the last two arguments of [`each`]
SIZE = (lambda size: size >= 1, "at least 1")
WINDOW = (lambda size: size > 1, "at least 2, for a cache")
RATE = (lambda rate: 0 <= rate < 1, "a probability in [0, 1)")
FACTOR = (lambda factor: 0 < factor < math.inf, "above 0, and finite")
ACTIVATION = (ACT2FN.__contains__, f"an activation of transformers: {', '.join(ACT2FN)}")
#: the arguments of [`each`] for decoders: official ones see later tokens if their configuration says so
CAUSAL = ("is_causal", bool, "True: the zoo's decoders see no later token")


class Rule:
    """A rule of what fits, as `TfmConfig.rules` has them."""

    def __init__(self, find_wrong: Callable[[Any], Iterator[str]]):
        self.find_wrong = find_wrong

    def check(self, config: Any) -> None:
        """Raises a `ValueError` for what is wrong with a configuration, with names and values of fields."""
        for wrong in self.find_wrong(config):
            raise ValueError(re.sub(r"\$(\w+)", lambda name: f"{name[1]}={getattr(config, name[1], None)!r}", wrong))

    def idle_among(self, given: Mapping[str, Any]) -> set[str]:
        """Fields that are not read beside these values."""
        return set()


def each(names: str, is_right: Callable[[Any], bool], wanted: str) -> Rule:
    """The rule that these fields are `None`, or as `wanted` says."""

    def find_wrong(config: Any) -> Iterator[str]:
        for name in names.split():
            value = getattr(config, name, None)
            if value is not None and not is_right(value):
                yield f"${name} must be {wanted}."

    return Rule(find_wrong)


def tokens(names: str, size: str, place: str) -> Rule:
    """The rule that these fields are `None`, or ids in the vocabulary of this size."""

    def find_wrong(config: Any) -> Iterator[str]:
        last = getattr(config, size) - 1
        for name in names.split():
            if not 0 <= (getattr(config, name) or 0) <= last:
                yield f"${name} is outside {place}, 0 to {last}; it may be None."

    return Rule(find_wrong)


def needs(names: str, other: str, *values: Any) -> Rule:
    """The rule that these fields, where they are chosen, need one of these values of another field."""

    def find_wrong(config: Any) -> Iterator[str]:
        for name in filter(config.is_chosen, names.split()):
            if getattr(config, other) not in values:
                yield f"${name} has no meaning with ${other}: it goes with {' and '.join(map(repr, values))}."

    return Rule(find_wrong)


class Idle(Rule):
    """The rule that fields are chosen only where they are read: where one of the others has this value, or any. A saved
    value that breaks it is left out."""

    def __init__(self, names: str, others: str, value: Any = None):
        self.names, self.others, self.value = names.split(), others.split(), value

    def idle_among(self, given: Mapping[str, Any]) -> set[str]:
        others = [given.get(name) for name in self.others]
        return set() if (any(others) if self.value is None else self.value in others) else {*self.names}

    def find_wrong(self, config: Any) -> Iterator[str]:
        needed = " or ".join(self.others) + ("" if self.value is None else f"={self.value!r}")
        idle = self.idle_among(vars(config))
        for name in (name for name in self.names if name in idle and config.is_chosen(name)):
            yield f"${name} has no effect without {needed}."


@Rule
def lacks(config: Any) -> Iterator[str]:
    """A family's fields are its own."""
    for name in filter(config.is_chosen, sorted(config.lacks & vars(config).keys())):
        yield f"${name} is a field of other families, and not of {type(config).__name__}."


@Rule
def heads(config: Any) -> Iterator[str]:
    """Heads have a width, and key-value heads an equal share of the query heads."""
    if not (config.head_dim or config.is_chosen("head_dim")):
        yield "$hidden_size is not a multiple of $num_attention_heads: change one of them, or set head_dim."
    if config.num_attention_heads % config.num_key_value_heads:
        yield "$num_attention_heads is not a multiple of $num_key_value_heads, which serve equally many of them."


@Rule
def embeddings(config: Any) -> Iterator[str]:
    """Embeddings are as wide as what reads them."""
    if config.project_tokens and config.embedding_size == config.hidden_size:
        yield "$project_tokens projects from $embedding_size to $hidden_size, which is the same: they should differ."
    if config.tie_word_embeddings and config.embedding_size != config.output_size and not config.lm_head_transform:
        yield "$tie_word_embeddings without lm_head_transform needs $embedding_size to be $hidden_size."


@Rule
def layer_types(config: Any) -> Iterator[str]:
    """Every layer has a type of attention, and sliding ones a window."""
    types = config.layer_types
    if not set(types) <= set(LAYER_TYPES):
        yield f"$layer_types should name one of {', '.join(LAYER_TYPES)} for each layer."
    if len(types) != config.num_hidden_layers:
        yield f"$num_hidden_layers is not the length of $layer_types, {len(types)}."
    if config.sliding_window is None and "sliding_attention" in types:
        yield "$layer_types has layers that slide: $sliding_window should say how far."
    if config.attention_type == "linear" and set(types) != {"linear_attention"}:
        yield "$attention_type makes every layer linear, and $layer_types does not."


@Rule
def positions(config: Any) -> Iterator[str]:
    """Tables of positions have rows for those that are counted, and sinusoids pairs of channels to fill."""
    from_padding, position_type = config.position_ids_from_padding, config.position_embedding_type
    if from_padding and config.pad_token_id is None:
        yield "$position_ids_from_padding counts from pad_token_id + 1: $pad_token_id should be an id."
    if from_padding and position_type == "learned" and config.pad_token_id >= config.max_position_embeddings - 1:
        yield "$position_ids_from_padding counts from $pad_token_id + 1: $max_position_embeddings should be more."
    if position_type == "sinusoidal" and config.position_size % 2:
        name = "hidden_size" if config.position_size == config.hidden_size else "embedding_size"
        yield f"$position_embedding_type fills pairs of channels; ${name} is odd."


@Rule
def rotary_positions(config: Any) -> Iterator[str]:
    """Each layer has rotary positions or none, and each type of layer parameters for them."""
    layers, is_rotary = config.no_rope_layers, config.position_embedding_type == "rotary"
    if config.is_chosen("no_rope_layers") and not (len(layers) == config.num_hidden_layers and set(layers) <= {0, 1}):
        yield "$no_rope_layers should have 0 or 1 for each of $num_hidden_layers."
    if is_rotary and config.head_dim % 2:
        yield "$position_embedding_type turns pairs of channels, and $head_dim is odd."
    parameters = getattr(config, "rope_parameters", None) or {}
    for layer_type in dict.fromkeys(config.layer_types) if is_rotary else ():
        own = parameters.get(layer_type, parameters)
        rope_type, share = own.get("rope_type"), own.get("partial_rotary_factor", 1.0)
        if "llama_4_scaling_beta" in own and (own is not parameters or "original_max_position_embeddings" not in own):
            yield "$rope_parameters with llama_4_scaling_beta are one set, with original_max_position_embeddings."
        if rope_type is None or any(isinstance(each, dict) for each in own.values()):  # those of other layers
            yield f"$rope_parameters should have those of {layer_type!r} layers."
        if rope_type not in ("default", *ROPE_INIT_FUNCTIONS):
            yield f"rope_type={rope_type!r} should be one of: default, {', '.join(ROPE_INIT_FUNCTIONS)}."
        if not (0 < share <= 1 and config.head_dim * share >= 2):
            yield f"partial_rotary_factor={share} is not a share in (0, 1] of $head_dim with a pair of channels in it."


@Rule
def position_bias(config: Any) -> Iterator[str]:
    """There is at most one bias of positions, and scores that it is added to."""
    buckets, distance = config.relative_attention_num_buckets, config.relative_attention_max_distance
    if buckets is not None and not 4 <= buckets < 2 * distance:
        yield "$relative_attention_num_buckets should be at least 4, and below twice $relative_attention_max_distance."
    if config.position_embedding_type == "alibi" and buckets is not None:
        yield "$position_embedding_type and $relative_attention_num_buckets are two biases of positions: choose one."
    if config.has_position_bias and config.has_linear_attention:
        biases = "$position_embedding_type and $relative_attention_num_buckets (or DeBERTa's distances)"
        yield f"{biases} add to scores, which linear attention lacks: choose no linear layer."


#: of the families without cross-attention, in which all attention may be linear
SCORES = needs("attention_scale attn_logit_softcapping", "attention_type", "softmax")
RULES = (
    lacks,
    each("vocab_size hidden_size embedding_size num_hidden_layers num_attention_heads num_key_value_heads", *SIZE),
    heads,
    each("head_dim intermediate_size max_position_embeddings sliding_window", *SIZE),
    each("type_vocab_size task_type_vocab_size position_offset", lambda count: count >= 0, "0 or more"),
    each("hidden_dropout embedding_dropout attention_dropout activation_dropout attention_output_dropout", *RATE),
    each("final_dropout classifier_dropout", *RATE),
    each("norm_eps attention_scale attn_logit_softcapping logit_scale final_logit_softcapping", *FACTOR),
    each("initializer_range", lambda value: 0 <= value < math.inf, "at least 0, and finite"),
    each("embedding_multiplier residual_multiplier", math.isfinite, "finite"),
    each("hidden_act", *ACTIVATION),
    each("problem_type", PROBLEMS.__contains__, f"None or one of {', '.join(PROBLEMS)}"),
    each("is_decoder add_cross_attention", operator.not_, "False: encoder, decoder and encoder-decoder are classes"),
    tokens("pad_token_id", "vocab_size", "the vocabulary"),
    needs("round_embedding_scale", "scale_embedding", True),
    needs("embedding_multiplier", "embedding_norm", False),
    needs("token_types_as_tokens", "type_vocab_size", 0),
    embeddings,
    needs("norm_bias", "norm_type", *WITH_BIAS),
    needs("qk_norm", "norm_type", *WITH_BIAS, "rmsnorm", "zero_centered_rmsnorm", "plain_rmsnorm"),
    needs("first_norm", "norm_position", "pre", "both"),
    needs("use_parallel_residual", "norm_position", "pre"),
    needs("num_ln_in_parallel_attn", "use_parallel_residual", True),
    needs("residual_multiplier", "norm_position", "pre", "post"),
    needs("residual_multiplier", "use_parallel_residual", False),
    needs("sliding_window", "attention_type", "softmax"),
    layer_types,
    needs("position_offset", "position_embedding_type", "learned", "sinusoidal"),
    needs("position_offset", "position_ids_from_padding", False),
    Idle("sinusoid_type", "position_embedding_type", "sinusoidal"),
    positions,
    needs("rope_parameters rope_theta rotary_value no_rope_layers", "position_embedding_type", "rotary"),
    rotary_positions,
    Idle("relative_attention_max_distance relative_attention_per_layer", "relative_attention_num_buckets"),
    position_bias,
    needs("scale_alibi round_alibi", "position_embedding_type", "alibi"),
    needs("round_alibi", "position_ids_from_mask", True),
)
