"""Weights of somebody's own model: a state dict, and rules that say which tensor of the zoo each of its tensors is."""

import logging
from collections.abc import Iterable, Mapping

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from .assembling import assemble, common_dtype, skeleton_of
from .checkpoint import LazyTensor, lazy_tensors
from .errors import ConversionError
from .sinusoids import check_sinusoids
from .tensor_matching import enumerated, misfits_of
from .tensor_rules import NotConverted, Sinusoids, Step, TensorRule, find, plan

logger = logging.getLogger(__name__)


def from_state_dict(
    state_dict: Mapping[str, torch.Tensor],
    rules: Iterable[TensorRule],
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
) -> PreTrainedModel:
    """A zoo model with the weights of a model of one's own.

    Args:
        state_dict: the weights, such as `torch.load("model.pt", weights_only=True)`. They are copied.
        rules: a [`Rename`], [`Split`], [`SplitHeads`], [`Join`], [`Transpose`] or [`Row`] for each tensor, with one's
            own name as `official`, and the name in `model_class(config).state_dict()` as `zoo`. In a name, `{i}` stands
            for a layer's number; one that stops at a module stands for its weight and its bias. [`NotConverted`] names
            what is no weight, [`Sinusoids`] a fixed table of positions, which is checked against the zoo's, and
            [`ZooOnly`] what is to be initialised anew.
        model_class: a class of the zoo, made from `config`.

    Returns:
        The model, in evaluation mode, in the type of the weights that the rules read.

    Raises:
        ConversionError: naming every tensor that is missing, unexpected or of another shape, or that no rule fills.
    """
    if not isinstance(state_dict, Mapping):
        raise ConversionError(
            f"A {type(state_dict).__name__} is no state dict: give my_model.state_dict(), or what torch.load() gives."
        )
    if others := [name for name, value in state_dict.items() if not isinstance(value, torch.Tensor)]:
        listed = ", ".join(others)
        raise ConversionError(f"A state dict holds tensors, and this one {listed}: is it one of these?")
    rules = tuple(rule.of(config) for rule in rules)
    tensors, skeleton = lazy_tensors(state_dict), skeleton_of(model_class, config)
    fixed = {name: tensor for name, tensor in tensors.items() if is_of_kind(Sinusoids, rules, name)}
    if fixed and config.position_embedding_type != "sinusoidal":
        raise ConversionError(
            f"{', '.join(fixed)}: sinusoids, which position_embedding_type={config.position_embedding_type!r} does not "
            "have: it should be 'sinusoidal'."
        )
    check_sinusoids(fixed, config, "the state dict")
    steps, unfilled = plan(rules, skeleton.state_dict(), to="zoo")
    complete = [step for step in steps if step.reads and tensors.keys() >= set(step.reads)]
    check_fit(complete, steps, unfilled, rules, tensors, skeleton)

    weights = {}
    for step in complete:
        weights |= zip(step.writes, step.run([tensors[name].read() for name in step.reads]), strict=True)
    merge_tied(weights, skeleton)
    if fresh := sorted(name for step in steps if not step.reads for name in step.writes):
        logger.warning(f"{model_class.__name__}: initialised anew, to be trained first: {', '.join(fresh)}.")
    dtype = common_dtype(tensors[name] for step in complete for name in step.reads)
    return assemble(skeleton, weights, dtype, attention=None)


def to_state_dict(model: PreTrainedModel, rules: Iterable[TensorRule]) -> dict[str, torch.Tensor]:
    """The reverse: copies of a zoo model's weights, under the names and in the pieces of one's own model.

    Raises:
        ConversionError: naming every tensor that no rule takes back.
    """
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    steps, unread = plan([rule.of(model.config) for rule in rules], state, to="zoo")
    if unread := [name for name in unread if name not in model.all_tied_weights_keys]:
        raise ConversionError(f"No rule has tensors of {type(model).__name__}: {enumerated(unread)}.")
    weights = {}
    for step in steps:
        if step.reads:
            weights |= zip(step.reads, step.rule.to_official([state[name] for name in step.writes]), strict=True)
    return weights


def check_fit(
    complete: list[Step],
    steps: list[Step],
    unfilled: list[str],
    rules: tuple[TensorRule, ...],
    tensors: dict[str, LazyTensor],
    skeleton: PreTrainedModel,
) -> None:
    """Raises a `ConversionError` unless the complete steps fill the model and read all that is a weight."""
    parameters, tied = skeleton.state_dict(), skeleton.all_tied_weights_keys
    filled = {tied.get(name, name) for step in complete for name in step.writes}

    def is_filled(names: Iterable[str]) -> bool:
        return all(tied.get(name, name) in filled for name in names)

    def described(name: str) -> str:
        """An unexpected tensor, with what a rule makes of it."""
        steps, _ = plan(rules, [name], to="official")
        writes = [other for step in steps for other in step.reads if other not in parameters]
        return f"{name} (which a rule makes {', '.join(writes)})" if writes else name

    absent = [
        f"{name}, for {', '.join(step.writes)}"
        for step in steps
        if step not in complete and not step.rule.optional and not is_filled(step.writes)
        for name in step.reads
        if name not in tensors
    ]
    read = {name for step in complete for name in step.reads}
    unread = [name for name in tensors if name not in read and not is_of_kind(NotConverted, rules, name)]
    misfits = [misfit for step in complete for misfit in misfits_of(step, tensors, [*map(parameters.get, step.writes)])]
    complaints = {
        "no rule for": [name for name in unfilled if not is_filled([name])],
        "missing": absent,
        "unexpected": [*map(described, unread)],
        "misshapen": misfits,
    }
    if listed := "; ".join(f"{kind}: {enumerated(names)}" for kind, names in complaints.items() if names):
        raise ConversionError(f"The state dict does not fit {type(skeleton).__name__}: {listed}.")


def merge_tied(weights: dict[str, torch.Tensor], skeleton: PreTrainedModel) -> None:
    """Keeps one of each pair of tensors that the model ties. Raises a `ConversionError` if the two differ."""
    for name, source in skeleton.all_tied_weights_keys.items():
        if name in weights and source in weights and not torch.equal(weights.pop(name), weights[source]):
            raise ConversionError(
                f"{name} and {source} differ in the state dict, and this configuration makes them one tensor: see "
                "tie_word_embeddings."
            )


def is_of_kind(kind: type[TensorRule], rules: tuple[TensorRule, ...], name: str) -> bool:
    """Whether the rule for a tensor is of this kind."""
    match = find(rules, name, "official")
    return match is not None and isinstance(match[0], kind)
