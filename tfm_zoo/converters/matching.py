"""Which tensor of a checkpoint becomes which of a model, decided on names and shapes before anything is read."""

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
) -> tuple[list[Step], list[str]]:
    """The steps that fill a model, and its parameters that none fills, which belong to a head that was not there.

    Args:
        architecture: of the checkpoint.
        held: the head that the checkpoint holds.
        checkpoint: its tensors are not read.
        skeleton: the zoo model to be, on the meta device.

    Raises:
        ConversionError: naming every tensor that is missing, unexpected or of another shape.
    """
    own_head = architecture.head(type(skeleton))
    tensors = by_canonical_name(architecture, checkpoint)
    own_names, weights = full_names(skeleton), skeleton.state_dict()
    parameters = {full: weights[name] for full, name in own_names.items()}
    steps, unknown = plan((*held.rules, *architecture.rules(own_head)), parameters, to="zoo")

    filling, fresh, misshapen = [], [name for name in unknown if architecture.may_be_fresh(name)], []
    missing = [name for name in unknown if name not in fresh]
    for step in steps:
        belongs_to_head = all(map(architecture.may_be_fresh, step.writes))
        absent = [name for name in step.reads if name not in tensors]
        if absent:
            missing += [] if belongs_to_head else absent
            fresh += step.writes if belongs_to_head else []
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
    unexpected = [name for name in tensors if name not in read and is_unexpected(architecture, name)]
    complaints = {"missing": missing, "unexpected": unexpected, "misshapen": misshapen}
    if any(complaints.values()):
        found = "; ".join(f"{what}: {enumerated(names)}" for what, names in complaints.items() if names)
        raise ConversionError(f"{checkpoint.title} does not fit {type(skeleton).__name__}: {found}.")
    return filling, [own_names[name] for name in fresh if own_names[name] not in skeleton.all_tied_weights_keys]


def is_unexpected(architecture: Architecture, name: str) -> bool:
    """Whether a tensor that nothing reads stands where the model would compute with it: in the body, not in a head."""
    return architecture.is_body(name) and not (architecture.is_of_a_head(name) or architecture.is_ignored(name))


def described(tensor: torch.Tensor) -> str:
    return f"of shape {tuple(tensor.shape)}" + ("" if tensor.is_floating_point() else ", not of a floating type")


def enumerated(names: list[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
