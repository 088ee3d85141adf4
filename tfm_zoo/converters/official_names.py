"""Finds the rule for an official tensor by any of its names, and the head that a checkpoint holds."""

import re
from collections.abc import Collection, Iterable

from .architecture import Architecture, Head
from .tensor_rules import NotConverted, TensorRule, find, is_of_kind

#: what old checkpoints, which were converted from TensorFlow, call the weight and the bias of a LayerNorm
OLD_LEAVES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
NAMES_HEAD = re.compile("For|LMHead")  # in the name of a class


def canonical_name(architecture: Architecture, name: str) -> str:
    """The name that the rules have for an official tensor, which checkpoints may store under several names."""
    for old, leaf in OLD_LEAVES.items():
        if name.endswith(old):
            name = name.removesuffix(old) + leaf
    rules = architecture.all_tensor_rules
    prefixes = ("", *(f"{prefix}." for prefix in architecture.other_prefixes))
    inner_names = tuple(name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix))
    sides = ("", "encoder.") if architecture.encoder_half_class else ("",)  # (that class leaves out "encoder.")
    full_names = (f"{architecture.prefix}.{side}{inner_name}" for side in sides for inner_name in inner_names)
    for full_name in (name, *full_names):
        full_name = name_of_rule(rules, full_name)
        if find(rules, full_name, "official"):
            return full_name
    return name


def name_of_rule(rules: Iterable[TensorRule], name: str) -> str:
    """The rule's own name for a tensor that is stored under another one (`also`); other tensors keep theirs."""
    if match := find(rules, name, "also"):
        rule, places, leaf = match
        return rule.names("official")[0].format(**dict(places)) + leaf
    return name


def names_in_checkpoint(architecture: Architecture, names: Iterable[str]) -> dict[str, str]:
    """The canonical names of tensors -> the names that they are stored under."""
    canonical = {name: canonical_name(architecture, name) for name in names}
    # If a checkpoint holds a tensor under two names, the official model reads the one that is not the rule's own (with
    # or without the prefix): that one comes last here, and wins. (BERT has two for the bias of its output: if they
    # differ, they are not tied, and `forward` reads that of `decoder`.)
    return {canonical[name]: name for name in sorted(canonical, key=lambda name: not canonical[name].endswith(name))}


def is_converted(architecture: Architecture, name: str) -> bool:
    """Whether an official tensor becomes a weight of the zoo; a mask, a table, or a number that is kept does not."""
    return not is_of_kind(NotConverted, architecture.all_tensor_rules, canonical_name(architecture, name))


def is_of_a_head(architecture: Architecture, name: str) -> bool:
    """Whether an official tensor belongs to one of the architecture's heads, and not to its base model."""
    return any(find(head.tensors, canonical_name(architecture, name), "official") for head in architecture.heads)


def checkpoint_head(architecture: Architecture, classes: Iterable[str] | None, tensors: Collection[str]) -> Head:
    """The head that a checkpoint holds: by the `classes` that its `config.json` names, else by its tensors' names."""
    # Code that no library has may name a class whose head its files lack.
    for head in architecture.heads if architecture.library != "none" else ():
        if head.official in (classes or ()):
            return head
    if architecture.encoder_half_class in (classes or ()):
        return architecture.encoder_half
    names = {canonical_name(architecture, name) for name in tensors}
    prefixes = tuple(f"{prefix}." for prefix in (architecture.prefix, *architecture.other_prefixes))
    has_head = any(name.startswith(prefixes) for name in tensors)
    # T5's names have no prefix, and T5-large names T5WithLMHeadModel, a class of earlier releases.
    has_head = has_head or any(map(NAMES_HEAD.search, classes or ()))

    def agreement(head: Head) -> tuple[int, bool]:
        """How many rules of a head find their tensor, less how many miss one that is neither tied nor optional. If two
        heads agree equally well, the bare model wins, unless the names tell of a head."""
        tied = head.zoo._tied_weights_keys or ()
        hits = [rule for rule in head.tensors if any(find([rule], name, "official") for name in names)]
        missed = [rule for rule in head.tensors if rule not in hits and not rule.optional]
        misses = [rule for rule in missed if not any(name.startswith(rule.zoo) for name in tied)]
        return len(hits) - len(misses), has_head != head.is_bare

    return max(architecture.heads, key=agreement)
