"""Where a model's states begin to differ from those of its fingerprint, and what kind of thing has changed there."""

from math import prod
from typing import Any, NamedTuple

from .fingerprints import places

#: words in the name or the class of a part -> what it computes
PARTS = {
    ("rotary", "position", "wpe"): "positions",
    ("norm", "ln_"): "a norm",
    ("embed", "wte"): "an embedding",
    ("activation", "gelu", "relu", "silu", "act_fn", "tanh", "sigmoid"): "an activation",
}
#: words in the name of what a part belongs to
ATTENTION = ("attn", "attention")
FEED_FORWARD = ("mlp", "feedforward", "feed_forward", "ffn", "intermediate", ".fc")


class Change(NamedTuple):
    """The first part of a model whose states are not what they were."""

    part: str
    part_class: str
    drift: float  # the largest difference, as a share of the state's largest value
    kind: str

    def __str__(self) -> str:
        by = f"by {self.drift:.2g} of its largest value" if self.drift < float("inf") else "in its shape or finiteness"
        return f"the first part that differs is {self.part} ({self.part_class}), {by}: {self.kind}"


def first_change(fingerprint: dict, loaded: dict, tolerance: float) -> Change | None:
    """The first part, in the order of computation, whose states differ by more than `tolerance`."""
    states = loaded.get("states", {})
    for name, before in fingerprint.get("states", {}).items():
        now = states.get(name, before)
        drift, types = drift_of(before, now), (before["dtype"], now["dtype"])
        if fingerprint["dtype"] == loaded["dtype"] and types[0] != types[1]:
            return Change(name, now["class"], drift, f"its type was {types[0]} and is {types[1]}")
        if drift > tolerance:
            kind = kind_of(name, before, now, tolerance, fingerprint["inputs"], loaded)
            return Change(name, now["class"], drift, kind)
    return None


def drift_of(before: dict[str, Any], now: dict[str, Any]) -> float:
    """How far a sample of values has moved, as a share of the largest; infinite where they cannot be compared."""
    pairs = list(zip(before["values"], now["values"], strict=False))
    if before["shape"] != now["shape"] or any((old is None) != (new is None) for old, new in pairs):
        return float("inf")
    numbers = [pair for pair in pairs if None not in pair]
    largest = max((abs(old) for old, _ in numbers), default=0.0) or 1.0
    return max((abs(old - new) for old, new in numbers), default=0.0) / largest


def kind_of(name: str, before: dict, now: dict, tolerance: float, inputs: dict, loaded: dict) -> str:
    """What has changed in a part that is given the states that it was given, as far as can be told."""
    name = name.partition(" ")[0]

    def concerns(names: list[str]) -> bool:  # files may have the names of the base model
        return any(f".{name}.{kind}".endswith(f".{one}") for one in names for kind in ("weight", "bias"))

    if concerns(loaded["missing"]):
        return "its weights are newly initialised"
    if loaded["changed"]:  # their digests leave nothing to guess
        return "its weights" if concerns(loaded["changed"]) else "weights before it"
    words, path = f"{name.rpartition('.')[2]} {now['class']}".lower(), f"{name} {now['class']}".lower()
    for parts, kind in PARTS.items():
        if any(part in words for part in parts):
            return kind
    if any(word in path for word in ATTENTION):  # a projection with the weights that it had is given other states
        return f"attention: {who_attends(before, now, tolerance, inputs)}"
    if any(word in path for word in FEED_FORWARD):
        return "the feed-forward part: its activation, or how it is computed"
    return "how it is computed"


def who_attends(before: dict, now: dict, tolerance: float, inputs: dict) -> str:
    """What an attention's output tells by the tokens at which it differs."""
    mask, shape = inputs.get("attention_mask"), before["shape"]
    unknown = "its mask, its positions or its scale"
    if not mask or shape != now["shape"] or len(shape) < 3:
        return unknown
    tokens = [(row, token) for row in range(len(mask)) for token in range(len(mask[0]))]
    if shape[0] == 1 and shape[1] == sum(map(sum, mask)):  # of a layer that skips padding
        tokens = [(row, token) for row, token in tokens if mask[row][token]]
    elif shape[:2] != [len(mask), len(mask[0])]:
        return unknown
    largest = max((abs(value) for value in before["values"] if value is not None), default=0.0) or 1.0
    kept = [tokens[place // prod(shape[2:])] for place in places(prod(shape), len(before["values"]))]
    differs: dict[tuple[int, int], bool] = {}
    for (row, token), old, new in zip(kept, before["values"], now["values"], strict=True):
        if mask[row][token]:
            drifted = (old is None) != (new is None) or (old is not None and abs(old - new) > tolerance * largest)
            differs[row, token] = differs.get((row, token), False) or drifted
    return told_by_tokens(differs, mask) or unknown


def told_by_tokens(differs: dict[tuple[int, int], bool], mask: list[list[int]] | None) -> str | None:
    """What it means that a layer differs at some tokens, (row, place) -> whether it does, and not at others."""
    rows: dict[int, list[bool]] = {}
    for row, place in sorted(differs):
        rows.setdefault(row, []).append(differs[row, place])
    padded = {row for row in rows if mask and 0 in mask[row]}
    if padded and padded != rows.keys() and not any(any(rows[row]) for row in rows.keys() - padded):
        return "the mask of padding: rows without padding are the same"
    if min(map(len, rows.values())) < 2 or not any(differs.values()):
        return None
    if not any(row[-1] for row in rows.values()):
        return "who attends to whom (the mask): the last token of each row is the same, others are not"
    if not any(row[0] for row in rows.values()):
        return "positions, or who attends to whom: the first token of each row is the same, others are not"
    return None
