"""Which tensors of a checkpoint become which of a zoo model, decided on names, shapes and what it holds twice."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from .architecture import Architecture, Head
from .checkpoint import FLOATS, Checkpoint, LazyTensor
from .errors import ConversionError
from .official_names import canonical_name, is_of_a_head, names_in_checkpoint
from .tensor_rules import NotConverted, Step, TensorRule, find, is_of_kind, plan

SHOWN = 10  # names of a kind in a message
LAYER = re.compile(r"(?<![^.\s])\d+(?=\.)")  # the number of a layer or a head in a name


class Match(NamedTuple):
    """What a zoo model takes from a checkpoint."""

    steps: list[Step]  # what to read from the checkpoint, and what it becomes
    fresh: list[str]  # parameters that the checkpoint lacks and the class initialises
    unused: list[str]  # tensors of the checkpoint that belong to other heads
    tensors: dict[str, LazyTensor]  # the checkpoint's, by their canonical names, which the steps have
    names_in_model: dict[str, str]  # of the zoo: its name in the rules -> its name in this model


def split_steps(
    steps: list[Step], tensors: Mapping[str, LazyTensor], tied: Mapping[str, str]
) -> tuple[list[Step], list[Step], set[str]]:
    """The steps whose tensors are all there; the others that a model needs; and what the complete steps fill.

    A model needs no optional step, and no step whose parameters are `tied` to others that are filled.
    """
    complete, others = [], []
    for step in steps:
        (complete if step.reads and tensors.keys() >= set(step.reads) else others).append(step)
    filled = {tied.get(name, name) for step in complete for name in step.writes}
    filled |= {name for name, source in tied.items() if source in filled}
    return complete, [step for step in others if not step.rule.optional and not filled >= set(step.writes)], filled


def match(
    architecture: Architecture,
    head: Head,
    checkpoint: Checkpoint,
    skeleton: PreTrainedModel,
    overrides: Mapping[str, Any],
) -> Match:
    """How a checkpoint, of this architecture and with this head, fills the zoo model that `skeleton` stands for.

    Raises:
        ConversionError: naming what is missing, unexpected or of another shape, and the `overrides` of the
            configuration, if there are.
    """
    names = names_in_checkpoint(architecture, checkpoint.tensors)
    tensors = {canonical: checkpoint.tensors[name] for canonical, name in names.items()}
    names_in_model, parameters = names_by_rule(skeleton), skeleton.state_dict()
    rules = architecture.tensor_rules([head, architecture.head(type(skeleton))], skeleton.config)
    if any(find(architecture.stored_body, name, "official") for name in tensors):
        # `rules` ends with these. For a file with such names they come first: of a tensor's rules the first is taken.
        rules = (*(rule.of(skeleton.config) for rule in architecture.stored_body), *rules)
    in_rules = {name: name_in_rule for name_in_rule, name in names_in_model.items()}
    tied = {in_rules[name]: in_rules[source] for name, source in skeleton.all_tied_weights_keys.items()}
    all_steps, without_rule = plan(rules, names_in_model.keys(), to="zoo")
    complete, lacking, _ = split_steps(all_steps, tensors, tied)
    is_other_head = head.zoo_name != type(skeleton).__name__
    # Official base models are often saved without a pooler; any other head of a checkpoint has to be whole.
    may_lack_head = is_other_head or head.is_bare

    steps, skipped_steps, missing, misshapen = [], [], [], []
    for step in complete:
        misfits = misfits_of(step, tensors, [parameters[names_in_model[name]] for name in step.writes], names)
        if not misfits:
            steps.append(step)
        elif is_other_head and all(map(is_of_zoo_head, step.writes)):
            skipped_steps.append(step)
        else:
            misshapen += misfits
    for step in lacking:  # (`ZooOnly` reads nothing)
        if not step.reads or (may_lack_head and all(map(is_of_zoo_head, step.writes))):
            skipped_steps.append(step)
        else:
            missing += [name for name in step.reads if name not in tensors]
    unused, unexpected = left_over(architecture, rules, all_steps, skeleton, names)
    of_body = [name for name in without_rule if not is_of_zoo_head(name)]  # (these lack official names)
    complaints = {"missing": of_body + missing, "unexpected": unexpected, "misshapen": misshapen}
    complaints["tied, but different"] = unlike_twins(architecture, checkpoint, names, complete, tied)
    check_fit(checkpoint.title, skeleton, complaints, hint_about(overrides))
    fresh = [name for name in without_rule if name not in of_body]
    fresh += [name for step in skipped_steps for name in step.writes]
    return Match(steps, [names_in_model[name] for name in fresh if name not in tied], unused, tensors, names_in_model)


def left_over(
    architecture: Architecture,
    rules: Iterable[TensorRule],
    steps: Iterable[Step],
    skeleton: PreTrainedModel,
    names: Mapping[str, str],
) -> tuple[list[str], list[str]]:
    """The tensors that a checkpoint holds besides, by their names in it: those of other heads, and those that do not
    belong there. `names`: their canonical names -> those in the checkpoint."""
    expected = {name for step in steps for name in step.reads} | declined_by(skeleton, architecture, names)
    every = (*rules, *architecture.all_tensor_rules)  # of this configuration (ESM's table), then of all heads
    others = [name for name in names if name not in expected and not is_of_kind(NotConverted, every, name)]
    of_heads = [name for name in others if is_of_a_head(architecture, name)]
    return [names[name] for name in of_heads], [names[name] for name in others if name not in of_heads]


def hint_about(overrides: Mapping[str, Any]) -> str:
    """The end of an error: that it may come from what was overridden in the configuration."""
    if not overrides:
        return ""
    given = ", ".join(f"{name}={value!r}" for name, value in overrides.items())
    hint = f"\nIt may be for what was given: {given}. A model of another form starts from a configuration."
    if "num_labels" in overrides or "id2label" in overrides:
        hint += " For other labels, convert it as it is, save it, and load that with these and "
        hint += "ignore_mismatched_sizes=True, which makes a new head."
    return hint


def names_by_rule(model: PreTrainedModel) -> dict[str, str]:
    """The tensors of a zoo model: their names in the rules, as in a class with a head -> their names in this model."""
    prefix = "" if hasattr(model, model.base_model_prefix) else f"{model.base_model_prefix}."
    return {prefix + name: name for name in model.state_dict()}


def is_of_zoo_head(name: str) -> bool:
    """Whether a tensor of the zoo belongs to a head; the pooler and its query count as part of one."""
    return not name.startswith("model.") or name.startswith("model.pooler")


def misfits_of(
    step: Step, tensors: Mapping[str, LazyTensor], parameters: list[torch.Tensor], names: Mapping[str, str]
) -> list[str]:
    """For each parameter that a step cannot fill: what the checkpoint has, and what the parameter is. `names`: the
    checkpoint's, where they are not those that the step reads."""
    sources = [tensors[name].meta for name in step.reads]
    wanted = [described(parameter) for parameter in parameters]
    try:
        found = [described(value) for value in step.run(sources)]
    except (RuntimeError, IndexError):
        found = []
    if cannot_run := len(found) != len(wanted):  # these tensors cannot be cut or joined as the rule says
        found = [" and ".join(dict.fromkeys(map(described, sources)))] * len(wanted)
    read = ", ".join(names.get(name, name) for name in step.reads)
    return [
        f"{read} {value}, where {name} is {parameter}"
        for name, value, parameter in zip(step.writes, found, wanted, strict=True)
        if cannot_run or value != parameter
    ]


def unlike_twins(
    architecture: Architecture,
    checkpoint: Checkpoint,
    names: Mapping[str, str],
    steps: Iterable[Step],
    tied: Mapping[str, str],
) -> list[str]:
    """Pairs of names for one tensor, in a checkpoint where they have different values, and where a third tensor is
    missing that is tied to it. The official model reads one of the two, and may tie the third to the other."""
    filled = {name for step in steps for name in step.writes}
    sources = {source for name, source in tied.items() if name not in filled}
    shared = {name for step in steps if sources & {*step.writes} for name in step.reads}
    others = {name: canonical_name(architecture, name) for name in checkpoint.tensors.keys() - {*names.values()}}
    pairs = [(other, names[name]) for other, name in others.items() if name in shared]
    return [" and ".join(pair) for pair in pairs if not torch.equal(*(checkpoint.tensors[n].read() for n in pair))]


def declined_by(skeleton: PreTrainedModel, architecture: Architecture, names: Iterable[str]) -> set[str]:
    """The official names of tensors that a zoo class leaves unread, by its own patterns: for an encoder alone, those
    of the decoder."""
    patterns = skeleton._keys_to_ignore_on_load_unexpected
    if not patterns:
        return set()
    declined = re.compile("|".join(patterns))
    # (The patterns are about names of the zoo: those that steps to the official side would read.)
    steps, _ = plan(architecture.all_tensor_rules, names, to="official")
    return {name for step in steps if step.reads and all(map(declined.search, step.reads)) for name in step.writes}


def described(tensor: torch.Tensor) -> str:
    wrong = "" if tensor.dtype in FLOATS.values() else ", not of a floating type of 16 bits or more"
    return f"of shape {tuple(tensor.shape)}{wrong}"


def check_fit(title: str, model: PreTrainedModel, complaints: Mapping[str, list[str]], hint: str = "") -> None:
    """Raises a `ConversionError`, with a line for each kind of complaint about the tensors of `title`, if there are."""
    if lines := [f"{kind}: {enumerated(names)}." for kind, names in complaints.items() if names]:
        raise ConversionError(f"{title} does not fit {type(model).__name__}:\n" + "\n".join(lines) + hint)


def new_weights(source: str, names: list[str]) -> str:
    """The warning about parameters that `source` does not fill."""
    these = ", ".join(names) if len(names) <= SHOWN else enumerated(names)
    return f"{source} has no weights that fit {these}: new weights were made for these, to be trained."


def enumerated(names: list[str]) -> str:
    """A list of the first names; one stands for all that differ from it only in the number of a layer or a head."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(LAYER.sub("", name), []).append(name)
    entries = [name + f" (and {len(others)} like it)" * bool(others) for name, *others in alike.values()]
    shown = len(entries) if len(entries) <= SHOWN + 2 else SHOWN  # "and 1 more" would be as long as the name
    text = ("; " if any(", " in entry for entry in entries) else ", ").join(entries[:shown])
    return text if shown == len(entries) else f"{text} and {len(entries) - shown} more"
