"""Which tensor of a checkpoint becomes which of a model, decided on names and shapes before anything is read."""

import re
from collections.abc import Iterable

import torch
from transformers import PreTrainedModel

from .architecture import Architecture, Head
from .checkpoint import Checkpoint, LazyTensor
from .rules import ConversionError, Step, plan

SHOWN = 10


def full_names(model: PreTrainedModel) -> dict[str, str]:
    """The names of a zoo model's tensors as the rules have them, as in a class with a head -> in this model."""
    prefix = "" if hasattr(model, model.base_model_prefix) else f"{model.base_model_prefix}."
    return {prefix + name: name for name in model.state_dict()}


def by_canonical_name(architecture: Architecture, checkpoint: Checkpoint) -> dict[str, LazyTensor]:
    """A checkpoint's tensors under the names that the rules have."""
    canonical = {name: architecture.canonical(name) for name in checkpoint.tensors}
    # Where a tensor is there under its synonym too, it is the synonym that the native model reads: it comes last.
    order = sorted(canonical, key=lambda name: not name.endswith(canonical[name]))
    return {canonical[name]: checkpoint.tensors[name] for name in order}


def match(
    architecture: Architecture, held: Head, checkpoint: Checkpoint, skeleton: PreTrainedModel
) -> tuple[list[Step], list[str], list[str]]:
    """The steps that fill a model; its parameters that none fills, which belong to a head that was not there; and the
    tensors that it has no use for, which belong to other heads.

    Args:
        architecture: of the checkpoint.
        held: the head that the checkpoint holds.
        checkpoint: its tensors are not read.
        skeleton: the zoo model to be, on the meta device.

    Raises:
        ConversionError: naming every tensor that is missing, unexpected or of another shape.
    """
    own_head = architecture.head(type(skeleton))
    # Native bare models are often saved without their pooler; any other head of the checkpoint's own has to be whole.
    may_lack_head = held is not own_head or own_head.is_bare
    tied = skeleton.all_tied_weights_keys
    tensors = by_canonical_name(architecture, checkpoint)
    own_names, weights = full_names(skeleton), skeleton.state_dict()
    parameters = {full: weights[name] for full, name in own_names.items()}
    steps, unknown = plan((*held.rules, *architecture.rules(own_head)), parameters, to="zoo")

    def source(name: str) -> str:
        """The parameter that one is tied to, or is itself."""
        return tied.get(own_names[name], own_names[name])

    # Of those that are tied one is enough, whichever it is.
    there = {source(name) for step in steps if tensors.keys() >= set(step.reads) for name in step.writes}
    spared = {name for name in parameters if name in architecture.optional or source(name) in there}

    filling, fresh, misshapen = [], [name for name in unknown if architecture.may_be_fresh(name)], []
    missing = [name for name in unknown if name not in fresh]
    for step in steps:
        belongs_to_head = all(map(architecture.may_be_fresh, step.writes))
        absent = [name for name in step.reads if name not in tensors]
        if absent and spared.issuperset(step.writes):
            continue
        if absent and belongs_to_head and may_lack_head:
            fresh += step.writes
            continue
        if absent:
            missing += absent
            continue
        made = step.run([tensors[name].meta for name in step.reads])
        wrong = [
            f"{', '.join(step.reads)} {described(tensor)}, where {name} is {described(parameters[name])}"
            for name, tensor in zip(step.writes, made, strict=True)
            if described(tensor) != described(parameters[name])
        ]
        if wrong and belongs_to_head and held is not own_head:
            fresh += step.writes
        elif wrong:
            misshapen += wrong
        else:
            filling.append(step)

    read = {name for step in steps for name in step.reads}
    declined = declined_by(skeleton, architecture, tensors)
    unread = [name for name in tensors if name not in read | declined and not architecture.is_ignored(name)]
    unused = [name for name in unread if architecture.is_of_a_head(name)]
    unexpected = [name for name in unread if name not in unused]
    complaints = {"missing": missing, "unexpected": unexpected, "misshapen": misshapen}
    if any(complaints.values()):
        found = "; ".join(f"{what}: {enumerated(names)}" for what, names in complaints.items() if names)
        raise ConversionError(f"{checkpoint.title} does not fit {type(skeleton).__name__}: {found}.")
    return filling, [own_names[name] for name in fresh if own_names[name] not in tied], unused


def declined_by(skeleton: PreTrainedModel, architecture: Architecture, names: Iterable[str]) -> set[str]:
    """The official tensors that a zoo class is made to do without: the decoder's, where it is an encoder alone."""
    patterns = skeleton._keys_to_ignore_on_load_unexpected or ()
    rules = [rule for head in architecture.heads for rule in head.rules]
    steps, _ = plan((*rules, *architecture.full_body), names, to="official")
    return {
        name
        for step in steps
        for name in step.writes
        if all(any(re.search(pattern, read) for pattern in patterns) for read in step.reads)
    }


def described(tensor: torch.Tensor) -> str:
    return f"of shape {tuple(tensor.shape)}" + ("" if tensor.is_floating_point() else ", not of a floating type")


def enumerated(names: list[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
