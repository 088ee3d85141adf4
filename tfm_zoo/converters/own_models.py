"""Weights of somebody's own model: a state dict, and rules that say which tensor of the zoo each of its tensors is."""

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from .assembling import assemble, common_dtype, skeleton_of
from .checkpoint import LazyTensor, lazy_tensors
from .errors import ConversionError
from .sinusoids import check_sinusoids
from .tensor_matching import check_fit, enumerated, misfits_of, new_weights, split_steps
from .tensor_rules import PLACE, NotConverted, Sinusoids, Step, TensorRule, is_of_kind, of_kind, plan

logger = logging.getLogger(__name__)

#: field of the configuration -> the modules that have a bias if it is true
BIASES = {
    "attention_bias": r".*\.[qkv]_proj",
    "attention_output_bias": r".*\.o_proj",
    "mlp_bias": r".*\.(gate|up)_proj",
    "mlp_output_bias": r".*\.down_proj",
    "norm_bias": r".*norm",
    "lm_head_bias": "lm_head",
}
#: field -> the modules that are there if it is true; if it is false or 0, for those below
LAYERS = {
    "embedding_norm": r".*embeddings\.norm",
    "final_norm": r"(.*(model|coder)\.)?norm",
    "add_pooling_layer": r"(model\.)?pooler\.dense",
    "classifier_dense": r"classifier\.dense",
    "type_vocab_size": r".*embeddings\.embed_token_types",
    "share_encoder_decoder_embeddings": r".*decoder\.embeddings\.embed_tokens",
    "tie_word_embeddings": "lm_head",
}
TIES = ("share_encoder_decoder_embeddings", "tie_word_embeddings")


def from_state_dict(
    state_dict: Mapping[str, torch.Tensor],
    rules: Iterable[TensorRule],
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
) -> PreTrainedModel:
    """A zoo model with the weights of a model of one's own.

    Args:
        state_dict: the weights, such as `torch.load("model.pt", weights_only=True)`. They are copied.
        rules: a [`Rename`], [`Split`], [`SplitHeads`], [`Interleaved`], [`Join`], [`Transpose`] or [`Row`] for each
            tensor. `official` is your own name, and `zoo` the name in `model_class(config).state_dict()`. In a name,
            `{i}` stands for a layer's number. The name of a module stands for its weight and its bias.
            [`NotConverted`] names what is not a weight, [`Sinusoids`] a fixed table of positions, checked against the
            zoo's, and [`ZooOnly`] what starts at random. Their order makes no difference. The most specific rule wins:
            the one with fewer places in braces, then the one with the longer name.
        model_class: a class of the zoo, made from `config`.

    Returns:
        The model, in evaluation mode, in the type of the weights that the rules read.

    Raises:
        ConversionError: if tensors are missing, unexpected, of another shape, or filled by no rule, with a line for
            each kind. Another line names fields of the configuration that would give the right layers and biases. Also
            if two names of the state dict hold one tensor, and the configuration does not tie them.
    """
    if not isinstance(state_dict, Mapping):
        given = f"expected a state dict, got a {type(state_dict).__name__}"
        raise ConversionError(f"{given}: give my_model.state_dict(), or what torch.load() gives.")
    if others := [name for name, value in state_dict.items() if not isinstance(value, torch.Tensor)]:
        names = ", ".join(others)
        raise ConversionError(f"These entries are not tensors: {names}. Is the state dict inside one of them?")
    rules = in_order(rules, config, by="official")
    tensors, skeleton = lazy_tensors(state_dict), skeleton_of(model_class, config)
    fixed = of_kind(Sinusoids, rules, tensors)
    if fixed and config.position_embedding_type != "sinusoidal":
        raise ConversionError(
            f"{', '.join(fixed)}: sinusoids, which position_embedding_type={config.position_embedding_type!r} does not "
            "have: it should be 'sinusoidal'."
        )
    check_sinusoids(fixed, config, "the state dict")
    steps, unfilled = plan(rules, skeleton.state_dict(), to="zoo")
    complete, lacking, filled = split_steps(steps, tensors, skeleton.all_tied_weights_keys)
    unfilled = [name for name in unfilled if name not in filled]
    check_weights(complete, lacking, unfilled, rules, tensors, skeleton)
    check_ties(state_dict, complete, skeleton)

    weights = {}
    for step in complete:
        weights |= zip(step.writes, step.run([tensors[name].read() for name in step.reads]), strict=True)
    merge_tied(weights, skeleton)
    if fresh := sorted(name for step in steps if not step.reads for name in step.writes):
        logger.warning(new_weights("The state dict", fresh))
    dtype = common_dtype(tensors[name] for step in complete for name in step.reads)
    return assemble(skeleton, weights, dtype, attention=None)


def to_state_dict(model: PreTrainedModel, rules: Iterable[TensorRule]) -> dict[str, torch.Tensor]:
    """The reverse: copies of a zoo model's weights, under the names and in the pieces of one's own model.

    Raises:
        ConversionError: if there are tensors of the zoo's model that no rule names; the message lists them.
    """
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    steps, unread = plan(in_order(rules, model.config, by="zoo"), state, to="zoo")
    if unread := [name for name in unread if name not in model.all_tied_weights_keys]:
        raise ConversionError(f"No rule has tensors of {type(model).__name__}: {enumerated(unread)}.")
    weights = {}
    for step in steps:
        if step.reads:
            weights |= zip(step.reads, step.rule.to_official([state[name] for name in step.writes]), strict=True)
    return weights


def in_order(rules: Iterable[TensorRule], config: PreTrainedConfig, by: Literal["official", "zoo"]) -> list[TensorRule]:
    """The rules for this configuration, those for few tensors, by their names on the side that is read, before those
    for many. Of rules for the same, the first comes first."""

    def reach(rule: TensorRule) -> tuple[int, int]:
        name = (rule.names(by) or rule.names("zoo") or rule.names("official"))[0]
        return len(PLACE.findall(name)), -len(name)

    return [rule.of(config) for rule in sorted(rules, key=reach)]


def check_weights(
    complete: list[Step],
    lacking: list[Step],
    unfilled: list[str],
    rules: tuple[TensorRule, ...],
    tensors: dict[str, LazyTensor],
    skeleton: PreTrainedModel,
) -> None:
    """Raises a `ConversionError` unless the complete steps fill the model and read every weight."""
    parameters = skeleton.state_dict()

    def results_of(name: str) -> list[str]:
        """The tensors that the rule for an unexpected one would make, and that the model lacks."""
        steps, _ = plan(rules, [name], to="official")
        return [other for step in steps for other in step.reads if other not in parameters]

    absent = [f"{name}, for {', '.join(step.writes)}" for step in lacking for name in step.reads if name not in tensors]
    read = {name for step in complete for name in step.reads}
    unread = [name for name in tensors if name not in read and not is_of_kind(NotConverted, rules, name)]
    unexpected = {name: results_of(name) for name in unread}
    misfits = []
    for step in complete:
        misfits += misfits_of(step, tensors, [*map(parameters.get, step.writes)], names={})
    complaints = {
        "no rule for": unfilled,
        "missing": absent,
        "unexpected": [
            f"{name} (a rule would make it {', '.join(results)}, which the model lacks{meant(results, unfilled)})"
            if results
            else name
            for name, results in unexpected.items()
        ],
        "misshapen": misfits,
    }
    wanted = [*unfilled, *(name for step in lacking for name in step.writes)]
    unwanted = {result: len(tensors[name].meta) for name, results in unexpected.items() for result in results}
    knows_all = all(any(map(layer_field, results)) for results in unexpected.values())
    hint = fields_that_fit(wanted, unwanted, knows_all, skeleton.config)
    check_fit("The state dict", skeleton, complaints, hint)


def meant(results: list[str], unfilled: list[str]) -> str:
    """A question, if what a rule would make has the name of a tensor that no rule fills, but for the module's."""
    near, parts = {}, {other: ["", *other.split(".")] for other in unfilled}
    for name in results:
        *outer, module, kind = ["", *name.split(".")]
        others = {part[-2]: other for other, part in parts.items() if part[:-2] == outer and part[-1] == kind}
        if layer_field(name) is None:
            near |= dict.fromkeys(map(others.get, difflib.get_close_matches(module, others, n=1, cutoff=0.5)))
    return f"; is {', '.join(near)} meant, which no rule fills?" if near else ""


def layer_field(name: str, fields: Mapping[str, str] | None = None) -> str | None:
    """The field that says whether there is such a tensor: by default one of `LAYERS` or, for a bias, of `BIASES`."""
    module, _, kind = name.rpartition(".")
    fields = fields or (LAYERS | BIASES if kind == "bias" else LAYERS)
    return next((field for field, pattern in fields.items() if re.fullmatch(pattern, module)), None)


def fields_that_fit(
    wanted: Iterable[str], unwanted: Mapping[str, int], knows_all: bool, config: PreTrainedConfig
) -> str:
    """A line that says which fields to set, if the state dict lacks biases or layers of the model (`wanted`), or if the
    model lacks some of the state dict's (`unwanted`, with the number of rows of each).

    A bias counts if its weight is not in the list. A layer that is wanted counts if `knows_all`: otherwise the state
    dict may have it under a name that no rule knows.
    """
    values: dict[str, bool | int] = {}
    for names, is_there in ((wanted, False), (unwanted, True)):
        for name in names:
            if name.endswith(".bias") and name.removesuffix("bias") + "weight" not in names:
                values[layer_field(name, BIASES)] = is_there
            elif name.endswith(".weight") and (is_there or knows_all) and (field := layer_field(name, LAYERS)):
                size = unwanted[name] if is_there else 0
                values[field] = size if field == "type_vocab_size" else is_there != (field in TIES)
    values.pop(None, None)
    for field, follower in (("attention_bias", "attention_output_bias"), ("mlp_bias", "mlp_output_bias")):
        if field in values:  # its follower would change with it
            values.setdefault(follower, getattr(config, follower))
    if not values:
        return ""
    fields = ", ".join(f"{field}={value}" for field, value in values.items())
    return f"\nThe configuration says which layers and biases there are; for this state dict: {fields}."


def check_ties(state_dict: Mapping[str, torch.Tensor], steps: Iterable[Step], skeleton: PreTrainedModel) -> None:
    """Raises a `ConversionError` if names of the state dict hold one tensor, and the model would have two."""
    tied, seen = skeleton.all_tied_weights_keys, {}
    for step in steps:
        tensors = [state_dict[name] for name in step.reads]
        if not all(tensor.numel() for tensor in tensors):
            continue
        place = tuple((tensor.data_ptr(), tensor.shape, tensor.stride()) for tensor in tensors)
        first = seen.setdefault(place, step)
        one, other = ([tied.get(name, name) for name in each.writes] for each in (first, step))
        if one != other:
            field = tie_of(*one, *other)
            names = f"{', '.join(first.reads)} and {', '.join(step.reads)}"
            raise ConversionError(
                f"{names} are one tensor in the state dict, and two in this configuration: "
                + (f"with {field}=True they are one. " if field else "the zoo does not tie them. ")
                + "To train them apart, put a copy into the state dict."
            )


def tie_of(*names: str) -> str | None:
    """The field that ties these tensors of the zoo."""
    if any(name.startswith("lm_head.") for name in names):
        return "tie_word_embeddings"
    return "share_encoder_decoder_embeddings" if all("embed_tokens" in name for name in names) else None


def merge_tied(weights: dict[str, torch.Tensor], skeleton: PreTrainedModel) -> None:
    """Keeps one of each pair of tensors that the model ties. Raises a `ConversionError` if the two differ."""
    # Embeddings first: where those of source and target differ, the projection differs from one of them, too.
    for name, source in sorted(skeleton.all_tied_weights_keys.items(), key=lambda pair: pair[0].startswith("lm_head.")):
        if name not in weights or source not in weights:
            continue
        if not torch.equal(weights.pop(name), weights[source]):
            raise ConversionError(
                f"{name} and {source} differ in the state dict, and this configuration makes them one tensor: set "
                f"{tie_of(name, source)}=False."
            )
