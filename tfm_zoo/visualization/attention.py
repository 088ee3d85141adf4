"""An attention map: the weights of one kind of attention on one text, with the tokens of their rows and columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

#: a name for each kind of attention, and what its queries and its keys are
KINDS = {
    "encoder": ("self-attention of the encoder", "token that attends", "token attended to"),
    "decoder": ("self-attention of the decoder", "token that attends", "token attended to"),
    "cross": ("cross-attention of the decoder", "target's token, that attends", "source's token, attended to"),
}


@dataclass(frozen=True)
class AttentionMap:
    """The attention weights of one text, in all heads of all layers that have weights.

    Args:
        kind: "encoder" or "decoder" (self-attention), or "cross" (from the decoder to the encoder).
        weights: `(layers, heads, queries, keys)`; the keys of each query sum to 1.
        queries: the tokens that attend.
        keys: the tokens that are attended to.
        model: the model's name.
        layers: the numbers of these layers in the model. `None`: 0, 1, 2, ...
    """

    kind: str
    weights: torch.Tensor
    queries: list[str]
    keys: list[str]
    model: str
    layers: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.layers is None:
            object.__setattr__(self, "layers", range(len(self.weights)))

    @property
    def names(self) -> tuple[str, str, str]:
        """The name of this kind of attention, and what its queries and keys are."""
        return KINDS[self.kind]

    def check(self, layer: int | None, head: int | None) -> None:
        """Check that the map has this layer and this head. `None` stands for any."""
        for name, number, known in (("layer", layer, self.layers), ("head", head, range(self.weights.shape[1]))):
            if number is not None and number not in known:
                has = f"{known[0]} to {known[-1]}" if isinstance(known, range) else f"weights in {listed(known)} alone"
                raise ValueError(f"{name} {number}: the {self.kind} attention of {self.model} has {has}.")


def choose(maps: Mapping[str, AttentionMap], kind: str | None = None) -> AttentionMap:
    """The map of this kind. `None`: the last one, which for an encoder-decoder is "cross"."""
    if kind is None:
        return list(maps.values())[-1]
    if kind not in maps:
        model = next(iter(maps.values())).model
        raise ValueError(f"kind {kind!r}: {model} has attention of the kind {' or '.join(maps)}.")
    return maps[kind]


def listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
