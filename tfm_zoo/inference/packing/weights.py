"""Weights of eight and four bits: how they are made of real numbers, and what they stand for."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch

from .roundings import Rounding

GROUP = 32  # inputs that share a scale in four bits
ROWS = 128  # outputs that are rounded at a time, which bounds the memory that it takes
FITS = 3  # how often scales and offsets are fitted to the rounded numbers
TINY = 1e-8

#: fields of a weight that belong to its inputs, and so are the same for all outputs
OF_INPUTS = ("input_scales", "input_zeros")

Weight = TypeVar("Weight", torch.Tensor, "Int8Weight", "Int4Weight", "CalibratedWeight", "KeptWeight")


def joined(weights: list[Weight]) -> Weight:
    """One weight from several of one kind: its outputs are those of the first, then those of the second, ..."""
    if len(weights) == 1:
        return weights[0]
    if isinstance(weights[0], torch.Tensor):
        return torch.cat(weights)
    kind = type(weights[0])
    columns = zip(kind._fields, zip(*weights, strict=True), strict=True)
    return kind(*(tensors[0] if field in OF_INPUTS else torch.cat(tensors) for field, tensors in columns))


def rows(weight: Weight, start: int, end: int) -> Weight:
    """The weight of outputs `start` to `end`, in memory of its own."""
    if isinstance(weight, torch.Tensor):
        return weight[start:end].clone()
    fields = weight._asdict().items()
    return type(weight)(*(each.clone() if field in OF_INPUTS else each[start:end].clone() for field, each in fields))


def by_rows(make: Callable[[torch.Tensor], Weight], weight: torch.Tensor) -> Weight:
    """Makes a weight of `(out_features, in_features)`, a few outputs at a time, in memory allocated beforehand."""
    weight = weight.detach()
    sample = make(weight[:1].float())
    whole = type(sample)(*(tensor.new_empty(len(weight), *tensor.shape[1:]) for tensor in sample))
    for start in range(0, len(weight), ROWS):
        for target, part in zip(whole, make(weight[start : start + ROWS].float()), strict=True):
            target[start : start + ROWS] = part
    return whole


class Int8Weight(NamedTuple):
    """A weight of eight bits, `values * scales`.

    Args:
        values: `(out_features, in_features)`, int8, from -127 to 127.
        scales: `(out_features,)`, float32.
    """

    values: torch.Tensor
    scales: torch.Tensor

    @classmethod
    def of(cls, weight: torch.Tensor) -> "Int8Weight":
        """Rounds a weight `(out_features, in_features)`; the largest number of each output is kept."""
        return by_rows(cls.rounded, weight)

    @classmethod
    def rounded(cls, weight: torch.Tensor) -> "Int8Weight":
        scales = (weight.abs().amax(dim=1) / 127).clamp(min=torch.finfo(torch.float).tiny)
        return cls((weight / scales[:, None]).round().to(torch.int8), scales)

    def real(self) -> torch.Tensor:
        """`(out_features, in_features)`, float32."""
        return self.values * self.scales[:, None]


class CalibratedWeight(NamedTuple):
    """A weight of eight bits, `values * scales / input_scales`, for inputs that become bytes by a [`Rounding`].

    Args:
        values: `(out_features, in_features)`, int8.
        scales: `(out_features,)`, float32.
        input_scales, input_zeros: the fields of the rounding.
    """

    values: torch.Tensor
    scales: torch.Tensor
    input_scales: torch.Tensor
    input_zeros: torch.Tensor

    @classmethod
    def of(cls, weight: torch.Tensor, rounding: Rounding) -> "CalibratedWeight":
        """Rounds a weight `(out_features, in_features)`."""
        return cls(*by_rows(lambda part: Int8Weight.rounded(part * rounding.scales), weight), *rounding)

    @property
    def rounding(self) -> Rounding:
        return Rounding(self.input_scales, self.input_zeros)

    def real(self) -> torch.Tensor:
        """`(out_features, in_features)`, float32."""
        return self.values * self.scales[:, None] / self.input_scales


class KeptWeight(NamedTuple):
    """A weight that stays as it is among those of eight bits: `(out_features, in_features)`, bfloat16."""

    values: torch.Tensor

    def real(self) -> torch.Tensor:
        """`(out_features, in_features)`, float32."""
        return self.values.float()


class Int4Weight(NamedTuple):
    """A weight of four bits, `(values - 8) * scales + offsets`, with a scale and an offset for each `GROUP` of inputs.

    Args:
        values: `(out_features, in_features / 2)`, uint8: the number of an even input in the low four bits, that of the
            odd input after it in the high ones.
        scales, offsets: `(out_features, in_features / GROUP)`, bfloat16, as the kernel reads them.
    """

    values: torch.Tensor
    scales: torch.Tensor
    offsets: torch.Tensor

    @classmethod
    def of(cls, weight: torch.Tensor) -> "Int4Weight":
        """Rounds a weight `(out_features, in_features)`, whose inputs are a multiple of `GROUP`."""
        return by_rows(lambda rows: cls.fitted(rows.unflatten(1, (-1, GROUP))), weight)

    @classmethod
    def fitted(cls, groups: torch.Tensor) -> "Int4Weight":
        """Rounds `(out_features, groups, GROUP)`: levels and lines through them are fitted to each other in turn.

        The first line goes from the lowest to the highest number. Each line after it has the least square error for its
        levels. For normally distributed numbers, three of them reduce the error of the first line by an eighth.
        """
        low, high = groups.amin(dim=2), groups.amax(dim=2)
        scales = ((high - low) / 15).clamp(min=TINY).bfloat16()
        offsets = (low + 8 * scales).bfloat16()
        mean = groups.mean(dim=2, keepdim=True)
        for remaining in reversed(range(FITS + 1)):
            levels = ((groups - offsets[..., None]) / scales[..., None]).round().clamp(-8, 7)
            if remaining:
                middle = levels.mean(dim=2, keepdim=True)
                products = ((levels - middle) * (groups - mean)).sum(dim=2)
                scales = (products / (levels - middle).square().sum(dim=2).clamp(min=TINY)).clamp(min=TINY).bfloat16()
                offsets = (mean.squeeze(2) - scales * middle.squeeze(2)).bfloat16()
        levels = (levels + 8).to(torch.uint8).flatten(1)
        return cls(levels[:, ::2] | levels[:, 1::2] << 4, scales, offsets)

    def levels(self) -> torch.Tensor:
        """`(out_features, in_features)`, uint8, from 0 to 15."""
        return torch.stack((self.values & 15, self.values >> 4), dim=2).flatten(1)

    def real(self) -> torch.Tensor:
        """`(out_features, in_features)`, float32."""
        groups = self.levels().unflatten(1, (-1, GROUP)).float() - 8
        return (groups * self.scales[..., None].float() + self.offsets[..., None].float()).flatten(1)


#: weights that were made of real numbers, and those or the real numbers themselves
Rounded = Int8Weight | CalibratedWeight | KeptWeight | Int4Weight
AnyWeight = torch.Tensor | Rounded
