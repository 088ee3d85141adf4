"""Two models side by side: the first layer at which they differ, for models whose layers correspond."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from .diagnosis import told_by_tokens
from .fingerprints import named, temporarily
from .states import first_tensor, layers_of, watched

#: functions of torch that tell models apart, norms and activations -> their arguments that do: name, place, default
TOLD_NORMS = {"layer_norm": ("eps", 4, 1e-5), "rms_norm": ("eps", 3, None)}
ACTIVATIONS = {
    "gelu": ("approximate", 1, "none"),
    **dict.fromkeys(("relu", "silu", "tanh", "sigmoid", "leaky_relu", "elu", "mish")),
}
TOLD = TOLD_NORMS | ACTIVATIONS
#: what norms call, and what marks their place
NORMS = (*TOLD_NORMS, "rsqrt", "std", "var")
#: products with weights of fewer bits -> the type of these
ROUNDED = {"qlinear_pointwise": "int8", "linear_dynamic": "int8", "_weight_int4pack_mm_for_cpu": "int4"}
LOGGED = {*TOLD, *NORMS, *ROUNDED, "linear", "addmm", "matmul"}
#: the name of what a whole model computes
OUTPUT = "(output)"


class State(NamedTuple):
    """What a part of a model computes, and the functions of torch that it called for it."""

    values: torch.Tensor
    calls: list[str]


@dataclass
class Step:
    """A pair of states: what a layer of each model computes, or what the first layers are given."""

    one: str
    other: str
    difference: float  # the largest; infinite for states of other shapes
    relative: float  # the same, as a share of the largest value

    def __str__(self) -> str:
        names = self.one if self.one == self.other else f"{self.one} / {self.other}"
        return f"{names:56} {self.difference:10.2g} {self.relative:10.2g}"


@dataclass
class Comparison:
    """Two models, state by state.

    `first` is the step at which they begin to differ, `None` if they do not; `hints` say what the models do otherwise
    there, as far as can be seen. `str` is a table of the `layers`, and of the part that differs first.
    """

    steps: list[Step]
    tolerance: float
    layers: list[str] = field(default_factory=list)  # the names of those of the first model
    hints: list[str] = field(default_factory=list)

    @property
    def first(self) -> Step | None:
        return next((step for step in self.steps if step.relative > self.tolerance), None)

    def __str__(self) -> str:
        first, whole = self.first, (*self.layers, OUTPUT)
        shown = [step for step in self.steps if step is first or step.one.split(" ")[0] in whole]
        lines = [f"{'states after':56} {'difference':>10} {'relative':>10}"]
        lines += [f"{step}{'  <- differs first' if step is first else ''}" for step in shown]
        more = len(self.steps) - len(shown)
        lines += [f"({more} more in .steps)"] if more else []
        return "\n".join([*lines, *(f"- {hint}" for hint in self.hints)])


@torch.no_grad()
def compare(
    one: nn.Module, other: nn.Module, batch: Any, other_batch: Any = None, tolerance: float = 1e-5
) -> Comparison:
    """Runs two models, or modules, on a batch, and finds the first layer at which they differ.

    Layers are the members of lists of modules, and correspond by their order. If both models have parts of the same
    names, all parts are compared. With an `attention_mask`, only real tokens are compared.

    Args:
        one: a module; it is compared in evaluation mode.
        other: a module whose layers correspond to those of `one`.
        batch: the arguments of both: a dict, a tuple, or a tensor.
        other_batch: those of `other`, if it takes others.
        tolerance: the largest relative difference between states that count as the same.

    Raises:
        ValueError: if the models have no layers, or not the same number.
    """
    batches = (batch, batch if other_batch is None else other_batch)
    names = [[name for name, _ in model.named_modules()] for model in (one, other)]
    layers = [layers_of(model) for model in (one, other)]
    if names[0] != names[1]:
        if not layers[0] or len(layers[0]) != len(layers[1]):
            raise ValueError(f"Models of {len(layers[0])} and {len(layers[1])} layers cannot be paired.")
        names = layers
    masks = (given.get("attention_mask") for given in batches if isinstance(given, Mapping))
    mask = next((given for given in masks if isinstance(given, torch.Tensor) and given.ndim == 2), None)
    ones, others = (
        states_of(model, given, set(watch), mask)
        for model, given, watch in zip((one, other), batches, names, strict=True)
    )
    same = names[0] == names[1]
    pairs = [(name, name) for name in ones if name in others] if same else zip(ones, others, strict=False)
    comparison = Comparison([], tolerance, layers[0])
    for name, other_name in pairs:
        difference = distances(ones[name].values, others[other_name].values).max().item()
        comparison.steps.append(Step(name, other_name, difference, difference / largest_of(ones[name].values)))
    if comparison.first:
        pair = ones[comparison.first.one], others[comparison.first.other]
        comparison.hints = [*hints_of_calls(*(state.calls for state in pair)), *hints_of_tokens(*pair, mask, tolerance)]
    return comparison


def states_of(model: nn.Module, batch: Any, names: set[str], mask: torch.Tensor | None) -> dict[str, State]:
    """What the parts of these names compute, and at the end the model itself."""
    calls = Calls()

    def keep(module: nn.Module, values: torch.Tensor) -> State:
        return State(real(values.float(), mask), calls.taken())

    with temporarily(list(model.modules()), training=False), watched(model, keep, names) as states, calls:
        arguments = batch if isinstance(batch, tuple) else (batch,)
        outputs = model(**batch) if isinstance(batch, Mapping) else model(*arguments)
    last = first_tensor(named(outputs))
    return states | ({} if last is None else {OUTPUT: keep(model, last)})


class Calls(TorchFunctionMode):
    """Notes which of the `LOGGED` functions are called, with the argument that tells two of them apart."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def taken(self) -> list[str]:
        noted, self.noted = self.noted, []
        return noted

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name, kwargs, given = getattr(function, "__name__", ""), kwargs or {}, args
        # A packed product may apply an activation, whose name and form are among its arguments.
        if name == "_linear_pointwise":
            name, given = (args[3], (args[0], args[5])) if args[3] != "none" else ("linear", args)
        elif name == "qlinear_pointwise" and args[10] != "none":
            self.noted.append(name)
            name, given = args[10], (args[0], args[12])
        if name in LOGGED:
            key, place, default = TOLD.get(name) or (None, 0, None)
            value = kwargs.get(key, given[place] if len(given) > place else default)
            self.noted.append(f"{name}({key}={value})" if key else name)
        return function(*args, **kwargs)


def real(values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """The states of a batch's real tokens (`(tokens, size)`), which is all that layers that skip padding compute. What
    all rows share, such as embeddings of positions `(1, length, size)`, is repeated for each."""
    if mask is None or values.ndim < 3:
        return values
    if values.shape[:2] == (1, mask.shape[1]) and mask.sum() != mask.shape[1]:  # (else a row of real tokens?)
        values = values.expand(len(mask), *values.shape[1:])
    return values[mask.bool()] if values.shape[:2] == mask.shape else values.flatten(0, 1)


def distances(values: torch.Tensor, other_values: torch.Tensor) -> torch.Tensor:
    """How far apart two states are at each place: infinitely where only one of them is finite, and for other shapes."""
    if values.shape != other_values.shape:
        return torch.full_like(values, torch.inf)
    same = (values == other_values) | (values.isnan() & other_values.isnan())
    return (values - other_values).abs().masked_fill(same, 0).nan_to_num(nan=torch.inf, posinf=torch.inf)


def largest_of(values: torch.Tensor) -> float:
    """The largest finite value, regardless of its sign; 1 if all are 0."""
    return values.nan_to_num(nan=0, posinf=0, neginf=0).abs().max().item() or 1.0


def hints_of_calls(calls: list[str], other_calls: list[str]) -> list[str]:
    """What two layers call otherwise: norms elsewhere, other activations, another epsilon, weights of fewer bits. A
    norm that is written out in other functions does not show its epsilon."""
    hints, places = [], [place_of_norms(each) for each in (calls, other_calls)]
    if places[0] != places[1] and all(places):
        hints.append(f"one has its norms {places[0]}, the other {places[1]}")
    for kind in (TOLD_NORMS, ACTIVATIONS):
        told = [{call for call in each if call.partition("(")[0] in kind} for each in (calls, other_calls)]
        alone = [sorted(told[0] - told[1]), sorted(told[1] - told[0])]
        if any(alone) and (all(told) or kind is ACTIVATIONS):
            one, other = (", ".join(names) or "nothing of the kind" for names in alone)
            hints.append(f"one calls {one}, the other {other}")
    types = [", ".join(sorted({ROUNDED[call] for call in each if call in ROUNDED})) for each in (calls, other_calls)]
    if types[0] != types[1]:
        one, other = (f"{name} weights, which are rounded" if name else "unrounded weights" for name in types)
        hints.append(f"one multiplies by {one}, the other by {other}")
    return hints


def place_of_norms(calls: list[str]) -> str | None:
    """Where a layer's norms stand; `None` without norms."""
    norms = [call.startswith(NORMS) for call in calls]
    if not any(norms) or all(norms):
        return None
    if norms[0]:
        return "before and after" if norms[-1] else "before its parts (pre-norm)"
    return "after its parts (post-norm)" if norms[-1] else "inside its parts"


def hints_of_tokens(one: State, other: State, mask: torch.Tensor | None, tolerance: float) -> list[str]:
    """What the tokens tell at which two states differ."""
    values, other_values = one.values, other.values
    if values.shape != other_values.shape or values.ndim < 2:
        return []
    if mask is None or len(values) != int(mask.sum()):
        mask = torch.ones(values.shape[:2] if values.ndim > 2 else (1, len(values)), dtype=torch.long)
    tokens = list(map(tuple, mask.nonzero().tolist()))
    apart = distances(values, other_values) > tolerance * largest_of(values)
    differs = apart.reshape(len(tokens), -1).any(dim=1).tolist()
    told = told_by_tokens(dict(zip(tokens, differs, strict=True)), mask.tolist())
    return [told] if told else []
