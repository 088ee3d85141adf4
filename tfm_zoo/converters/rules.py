"""Reversible rules between the tensor names of two sides, 'official' and 'zoo': one ordered list serves both ways.

Names in a rule are patterns. `{i}` stands for a layer's number, and a name that stops at a module stands for its
weight and its bias: `Rename("encoder.layer.{i}.output.dense", "layers.{i}.mlp.down_proj")`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch

Side = Literal["official", "zoo"]
LEAVES = (".weight", ".bias")


class ConversionError(ValueError):
    """A checkpoint or a model that cannot be converted; the message names what stands in the way."""


def same(*names: str) -> dict[str, str]:
    """A map for names that both sides share."""
    return {name: name for name in names}


@dataclass(frozen=True)
class Rule:
    """Tensors that the two sides hold under different names, and perhaps in different pieces.

    Args:
        official: the official side's name, or the names of its pieces.
        zoo: the zoo's.
    """

    official: str | tuple[str, ...]
    zoo: str | tuple[str, ...]

    def names(self, side: Side) -> tuple[str, ...]:
        names = getattr(self, side)
        return (names,) if isinstance(names, str) else names

    def under(self, official: str, zoo: str) -> "Rule":
        """The same rule, for names that stand below a module `official` on one side and `zoo` on the other."""
        prefixed = [
            tuple(f"{top}.{name}" for name in self.names(side)) for top, side in ((official, "official"), (zoo, "zoo"))
        ]
        return type(self)(*prefixed)

    def to_zoo(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return tensors

    def to_official(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return tensors


class Rename(Rule):
    """One tensor, another name."""


class Split(Rule):
    """One official tensor that holds several of the zoo's of equal size, one below the other."""

    def to_zoo(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [part.clone() for part in tensors[0].chunk(len(self.zoo))]

    def to_official(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [torch.cat(list(tensors))]


class Transpose(Rule):
    """One tensor, which the official side holds as `(in, out)` and the zoo, as `nn.Linear` does, as `(out, in)`."""

    def to_zoo(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [tensors[0].t().contiguous()]

    to_official = to_zoo


class Row(Rule):
    """One tensor, which the official side holds as one row, `(1, n)`, and the zoo as `(n,)`."""

    def to_zoo(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [tensors[0].squeeze(0)]

    def to_official(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [tensors[0].unsqueeze(0)]


class SplitTransposed(Rule):
    """One official tensor, `(in, out)`, that holds several of the zoo's of equal size side by side."""

    def to_zoo(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        parts = tensors[0].chunk(len(self.zoo), dim=-1)
        return [part.t().clone(memory_format=torch.contiguous_format) for part in parts]

    def to_official(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [torch.cat([tensor.t() for tensor in tensors], dim=-1)]


@dataclass(frozen=True)
class Step:
    """One rule at work on one layer's weight or bias: reads tensors of one side, makes tensors of the other."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    run: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]


def plan(rules: Iterable[Rule], wanted: Iterable[str], to: Side) -> tuple[list[Step], list[str]]:
    """The steps that make the tensors `wanted` of side `to`, by the first rule that fits each; and those none fits."""
    rules = tuple(rules)
    steps, unknown = {}, []
    for name in wanted:
        found = find(rules, name, to)
        if found is None:
            unknown.append(name)
        else:
            rule, layer, leaf = found
            read, written = ("official", "zoo") if to == "zoo" else ("zoo", "official")
            steps[found] = Step(
                *(tuple(fill(pattern, layer, leaf) for pattern in rule.names(side)) for side in (read, written)),
                rule.to_zoo if to == "zoo" else rule.to_official,
            )
    return list(steps.values()), unknown


def find(rules: Iterable[Rule], name: str, side: Side) -> tuple[Rule, str, str] | None:
    """The first rule that has the tensor `name` on its `side`, with the layer's number and the name's end."""
    for rule in rules:
        for pattern in rule.names(side):
            if match := compiled(pattern).fullmatch(name):
                return rule, match.groupdict().get("i", ""), match["leaf"]
    return None


@cache
def compiled(pattern: str) -> re.Pattern:
    leaf = "" if pattern.endswith(LEAVES) else "|".join(map(re.escape, LEAVES))
    return re.compile(re.escape(pattern).replace(r"\{i\}", r"(?P<i>\d+)") + f"(?P<leaf>{leaf}|)")


def fill(pattern: str, layer: str, leaf: str) -> str:
    return pattern.replace("{i}", layer) + leaf
