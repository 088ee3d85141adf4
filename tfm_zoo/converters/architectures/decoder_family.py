"""What all official decoders share: fields of their configurations, their heads, and blocks that several have."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..architecture import Head
from ..config_rules import Computed, ConfigRule, Fields, Free, same
from ..tensor_rules import Rename, SplitHeads, TensorRule
from .projections import QKV


def token_classifier_dropout(official: Fields) -> float:
    """The dropout of official token classifiers, from the first of two fields that a configuration has."""
    rates = (official.get(name) for name in ("classifier_dropout", "hidden_dropout"))
    return next((rate for rate in rates if rate is not None), 0.1)


@dataclass(frozen=True)
class RotaryParameters(ConfigRule):
    """Rotary parameters with the official class's defaults written out on export."""

    write: Callable[[dict[str, Any]], dict[str, Any]]  # the zoo's parameters -> official ones
    read: Callable[[dict[str, Any]], dict[str, Any]] = dict  # the reverse
    zoo = "rope_parameters"

    def to_zoo(self, official: Fields, zoo: Fields) -> dict[str, Any]:
        return {self.zoo: self.read(official[self.zoo])}

    def to_official(self, zoo: Fields, official: Fields) -> dict[str, Any]:
        parameters = zoo.get(self.zoo) or {}
        is_one = "rope_type" in parameters or not parameters
        return {self.zoo: self.write(parameters) if is_one else parameters}


WHOLE_HEADS = {"partial_rotary_factor": 1.0}
#: for classes that rotate a part of each head by default
ROTARY_SHARE = RotaryParameters(
    lambda parameters: WHOLE_HEADS | parameters,
    lambda parameters: {name: value for name, value in parameters.items() if (name, value) not in WHOLE_HEADS.items()},
)
#: for classes with parameters for each type of layer
ROTARY_BY_TYPE = RotaryParameters(
    lambda parameters: {layer_type: dict(parameters) for layer_type in ("full_attention", "sliding_attention")}
)
CONFIG = (
    *same("vocab_size", "initializer_range", "pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings"),
    Computed("classifier_dropout", token_classifier_dropout),
    Free("token_types_as_tokens"),
)
LM_HEAD = Rename("lm_head.weight", "lm_head.weight")
SCORE = Rename("score.weight", "score.weight")
#: the heads that transformers writes for all its newer decoders
GENERIC = {
    "Model": (),
    "ForCausalLM": (LM_HEAD,),
    "ForSequenceClassification": (SCORE,),
    "ForTokenClassification": (SCORE, Rename("score.bias", "score.bias")),
    "ForQuestionAnswering": (Rename("qa_outputs", "qa_outputs"),),
}
#: those of older decoders, whose token classifiers have a name of their own
OLDER = GENERIC | {"ForTokenClassification": (Rename("classifier", "score"),)}
WITHOUT_ANSWERS = ("Model", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification")
WITHOUT_TOKENS = ("Model", "ForCausalLM", "ForSequenceClassification", "ForQuestionAnswering")


def generic_heads(
    name: str, kinds: Iterable[str | Head] = GENERIC, rules: Mapping[str, tuple[TensorRule, ...]] = GENERIC
) -> tuple[Head, ...]:
    """The heads of these kinds for official classes whose names begin with `name`; a `Head` in `kinds` is kept."""
    generic = {kind: Head(f"{name}{kind}", f"TfmGPT{kind}", tensors) for kind, tensors in rules.items()}
    return tuple(generic.get(kind, kind) for kind in kinds)


def megatron_block(layer: str, attention: str) -> tuple[TensorRule, ...]:
    """The rules for a block whose tensor names come from Megatron, as those of BLOOM, Falcon and GPT-NeoX."""
    return (
        Rename(f"{layer}.input_layernorm", "layers.{i}.self_attn_norm"),
        SplitHeads(f"{layer}.{attention}.query_key_value", QKV, by_group=True),
        Rename(f"{layer}.{attention}.dense", "layers.{i}.self_attn.o_proj"),
        Rename(f"{layer}.post_attention_layernorm", "layers.{i}.mlp_norm"),
        Rename(f"{layer}.mlp.dense_h_to_4h", "layers.{i}.mlp.up_proj"),
        Rename(f"{layer}.mlp.dense_4h_to_h", "layers.{i}.mlp.down_proj"),
    )
