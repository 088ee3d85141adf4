"""Reversible rules between the tensors of the two sides, "official" and "zoo": one sequence of rules serves both ways.

Names in a rule are patterns: `Rename("{side}_{i}.fc1", "{side}.{i}.mlp.up_proj")`. `{i}` stands for a layer's number,
any other name in braces for a word that both sides have. The name of a module stands for its weight and its bias.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .errors import ConversionError

if TYPE_CHECKING:  # a table is data: importing it does not load torch
    import torch
    from transformers import PreTrainedConfig

Tensors = Sequence["torch.Tensor"]
Side = Literal["official", "zoo"]
LEAVES = (".weight", ".bias")
PLACE, NUMBER, WORD = re.compile(r"\{(\w+)\}"), r"\d+", r"\w+"


@dataclass(frozen=True)
class TensorRule:
    """Tensors that the two sides hold under different names, and perhaps in different pieces.

    Args:
        official, zoo: the name on that side, or the names of the pieces. It is empty if that side lacks the tensor.
        also: other official names of the same tensor. The official model reads these if a checkpoint has both.
        optional: whether either side may lack the tensor; the other then has it as its class initialises it.
    """

    official: str | tuple[str, ...] = ()
    zoo: str | tuple[str, ...] = ()
    also: str | tuple[str, ...] = ()
    optional: bool = False
    #: places in braces that official names alone have
    official_places: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self):
        patterns = (*self.names("official"), *self.names("zoo"))
        if len({frozenset(PLACE.findall(pattern)) - self.official_places for pattern in patterns}) > 1:
            raise ValueError(f"{self}: all its names should have the same places in braces.")

    def names(self, side: Side | Literal["also"]) -> tuple[str, ...]:
        names = getattr(self, side)
        return (names,) if isinstance(names, str) else names

    def under(self, official: str, zoo: str) -> "TensorRule":
        """The same rule for names below a module, which is called `official` on one side and `zoo` on the other."""
        tops = (("official", official), ("zoo", zoo), ("also", official))
        return replace(self, **{side: tuple(f"{top}.{name}" for name in self.names(side)) for side, top in tops})

    def of(self, config: "PreTrainedConfig") -> "TensorRule":
        """The rule for a model with this configuration of the zoo."""
        return self

    def to_zoo(self, tensors: Tensors) -> Tensors:
        return tensors

    def to_official(self, tensors: Tensors) -> Tensors:
        return tensors


class Rename(TensorRule):
    """One tensor, which has another name."""


@dataclass(frozen=True)
class When(Rename):
    """One tensor that has another name in models that fulfil `condition`. Other models use the next rule that fits."""

    condition: Callable[["PreTrainedConfig"], bool] = bool

    def of(self, config: "PreTrainedConfig") -> TensorRule:
        return self if self.condition(config) else TensorRule()


@dataclass(frozen=True)
class Split(TensorRule):
    """One official tensor in which several zoo tensors of equal size are stacked along the first dimension."""

    transposed: bool = False  # whether the official side holds it as `(in, out)`

    def to_zoo(self, tensors: Tensors) -> Tensors:
        import torch

        packed = tensors[0].t() if self.transposed else tensors[0]
        return [part.clone(memory_format=torch.contiguous_format) for part in packed.chunk(len(self.zoo))]

    def to_official(self, tensors: Tensors) -> Tensors:
        import torch

        packed = torch.cat(list(tensors))
        return [packed.t().contiguous() if self.transposed else packed]


@dataclass(frozen=True)
class SplitHeads(TensorRule):
    """One official tensor in which queries, keys and values are stacked: all queries, all keys, all values; or,
    `by_group`, for each key head the query heads that share it, then its key and its value."""

    by_group: bool = False
    heads: tuple[int, int, int] = ()  # how many of each there are, in the model or in a group
    groups: int = 1

    def of(self, config: "PreTrainedConfig") -> TensorRule:
        keys = config.num_key_value_heads
        groups = keys if self.by_group else 1
        heads = (config.num_attention_heads // groups, keys // groups, keys // groups)
        return replace(self, heads=heads, groups=groups)

    def to_zoo(self, tensors: Tensors) -> Tensors:
        (packed,) = tensors
        parts = packed.unflatten(0, (self.groups, sum(self.heads), -1)).split(self.heads, dim=1)
        return [part.flatten(0, 2).clone() for part in parts]

    def to_official(self, tensors: Tensors) -> Tensors:
        import torch

        parts = zip(tensors, self.heads, strict=True)
        return [torch.cat([part.unflatten(0, (self.groups, n, -1)) for part, n in parts], dim=1).flatten(0, 2)]


@dataclass(frozen=True)
class Interleaved(TensorRule):
    """Queries or keys whose rotated channels form pairs side by side; the zoo has the first channels of all
    pairs, then the second ones."""

    channels: tuple[int, ...] = ()  # of a head: the zoo's channel in each official place

    def of(self, config: "PreTrainedConfig") -> TensorRule:
        if config.position_embedding_type != "rotary":
            raise ConversionError(
                f"{type(self).__name__}({self.official!r}) is for rotary positions, and the model has "
                f"position_embedding_type={config.position_embedding_type!r}: use Rename."
            )
        parameters = config.rope_parameters
        by_type = [parameters.get(layer_type, parameters) for layer_type in config.layer_types]
        rotated, *others = {int(config.head_dim * own.get("partial_rotary_factor", 1.0)) for own in by_type}
        if others:
            raise ConversionError(
                f"{type(self).__name__}({self.official!r}) needs as many rotated channels in all layers, and "
                f"rope_parameters={parameters} differ in partial_rotary_factor."
            )
        first, second = range(rotated // 2), range(rotated // 2, rotated)  # of each pair
        return replace(self, channels=(*self.in_order(first, second), *range(rotated, config.head_dim)))

    def in_order(self, first: range, second: range) -> tuple[int, ...]:
        return tuple(channel for pair in zip(first, second, strict=True) for channel in pair)

    def to_zoo(self, tensors: Tensors) -> Tensors:
        return [self.reordered(tensors[0], sorted(range(len(self.channels)), key=self.channels.__getitem__))]

    def to_official(self, tensors: Tensors) -> Tensors:
        return [self.reordered(tensors[0], self.channels)]

    def reordered(self, tensor: "torch.Tensor", channels: Sequence[int]) -> "torch.Tensor":
        return tensor.unflatten(0, (-1, len(channels)))[:, list(channels)].flatten(0, 1)


class TurnedBackwards(Interleaved):
    """Queries or keys that positions turn the other way round: as if the channels of each pair were exchanged."""

    def in_order(self, first: range, second: range) -> tuple[int, ...]:
        return (*second, *first)


class Join(TensorRule):
    """Several official tensors of equal size, such as those of single heads, which are stacked in one of the zoo."""

    def to_zoo(self, tensors: Tensors) -> Tensors:
        import torch

        return [torch.cat(list(tensors))]

    def to_official(self, tensors: Tensors) -> Tensors:
        return [part.clone() for part in tensors[0].chunk(len(self.official))]


@dataclass(frozen=True)
class PerExpert(TensorRule):
    """Official tensors of single experts, whose names hold the expert's number as `{e}`. The zoo has one tensor for
    them, `(experts, ...)`. If an expert has several, they are stacked along their first dimension."""

    official_places = frozenset({"e"})

    def of(self, config: "PreTrainedConfig") -> TensorRule:
        experts = range(config.num_local_experts or 0)
        names = tuple(name.replace("{e}", str(expert)) for expert in experts for name in self.names("official"))
        return Stacked(names, self.zoo, pieces=len(self.names("official")))


@dataclass(frozen=True)
class Stacked(TensorRule):
    """Official tensors of all experts in turn, `pieces` of each, which the zoo has as one, `(experts, ...)`."""

    pieces: int = 1

    def to_zoo(self, tensors: Tensors) -> Tensors:
        import torch

        packed = torch.stack(list(tensors))
        return [packed.view(-1, self.pieces * packed.shape[1], *packed.shape[2:])]

    def to_official(self, tensors: Tensors) -> Tensors:
        return [part.clone() for expert in tensors[0] for part in expert.chunk(self.pieces)]


class Transpose(TensorRule):
    """One tensor, which the official side holds as `(in, out)` and the zoo, as `nn.Linear` does, as `(out, in)`."""

    def to_zoo(self, tensors: Tensors) -> Tensors:
        return [tensors[0].t().contiguous()]

    to_official = to_zoo


class Row(TensorRule):
    """One tensor, which the official side holds as one row, `(1, n)`, and the zoo as `(n,)`."""

    def to_zoo(self, tensors: Tensors) -> Tensors:
        return [tensors[0].squeeze(0)]

    def to_official(self, tensors: Tensors) -> Tensors:
        return [tensors[0].unsqueeze(0)]


class NotConverted(TensorRule):
    """An official tensor that becomes no weight of the zoo, such as a mask that old versions saved."""


class Sinusoids(NotConverted):
    """A table of sinusoidal positions, which both sides make for themselves; a trained one is refused."""


class Frequencies(NotConverted):
    """Frequencies of rotary positions that the official class reads from the checkpoint (ESM), and the zoo computes:
    rounded ones are refused. (LLaMA's class computes them, too: those in old checkpoints are `NotConverted`.)"""


class Kept(NotConverted):
    """A few official numbers that the zoo does not read: they stay in its configuration, and come back."""


class ZooOnly(TensorRule):
    """A tensor that the zoo's class has and the official one has not: the zoo initialises it."""

    def __post_init__(self):
        if self.official:
            raise ValueError(f"ZooOnly({self.official!r}) names a tensor of the zoo: it should be ZooOnly(zoo=...).")


@dataclass(frozen=True)
class Step:
    """A rule at work on one weight or bias of one layer: it reads tensors of one side and writes those of the other."""

    rule: TensorRule
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    run: Callable[[Tensors], Tensors]


def plan(rules: Iterable[TensorRule], wanted: Iterable[str], to: Side) -> tuple[list[Step], list[str]]:
    """The steps that make the `wanted` tensors of one side out of those of the other, each by the first rule that fits;
    and the names that no rule fits."""
    rules = tuple(rules)
    steps, without_rule = {}, []
    for name in wanted:
        match = find(rules, name, to)
        if match is None:
            without_rule.append(name)
            continue
        rule, places, leaf = match
        sides = ("official", "zoo") if to == "zoo" else ("zoo", "official")
        reads, writes = (tuple(name.format(**dict(places)) + leaf for name in rule.names(side)) for side in sides)
        # Several wanted tensors may come out of the same step, which then stands here once.
        steps[match] = Step(rule, reads, writes, rule.to_zoo if to == "zoo" else rule.to_official)
    return list(steps.values()), without_rule


def find(rules: Iterable[TensorRule], name: str, side: Side) -> tuple[TensorRule, tuple, str] | None:
    """The first rule for the tensor `name` of a side; what its places in braces stand for; and the ending, one of
    `LEAVES`, if the rule names the module alone."""
    for rule in rules:
        for pattern in rule.names(side):
            if match := compiled(pattern).fullmatch(name):
                *places, (_, leaf) = match.groupdict().items()
                return rule, tuple(places), leaf
    return None


def is_of_kind(kind: type[TensorRule], rules: Iterable[TensorRule], name: str) -> bool:
    """Whether the rule for an official tensor is of this kind."""
    match = find(rules, name, "official")
    return match is not None and isinstance(match[0], kind)


def of_kind(kind: type[TensorRule], rules: tuple[TensorRule, ...], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Those official tensors whose rule is of this kind."""
    return {name: tensor for name, tensor in tensors.items() if is_of_kind(kind, rules, name)}


@cache
def compiled(pattern: str) -> re.Pattern:
    leaf = "" if pattern.endswith(LEAVES) else "|".join(map(re.escape, LEAVES))
    text, *rest = PLACE.split(pattern)  # text, then by turns the name of a place in braces and the text after it
    places = zip(rest[::2], map(re.escape, rest[1::2]), strict=True)
    parts = (f"(?P<{name}>{NUMBER if name == 'i' else WORD}){after}" for name, after in places)
    return re.compile(f"{re.escape(text)}{''.join(parts)}(?P<leaf>{leaf}|)")
