"""Weights of eight and four bits: how they are made of real numbers, and what they stand for."""

from typing import NamedTuple

import torch

GROUP = 32  # inputs that share a scale in four bits
ROWS = 1024  # outputs that are rounded at a time, which bounds the memory that it takes
FITS = 3
TINY = 1e-8


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
        weight = weight.detach().float()
        scales = (weight.abs().amax(dim=1) / 127).clamp(min=torch.finfo(torch.float).tiny)
        return cls((weight / scales[:, None]).round().to(torch.int8), scales)

    def real(self) -> torch.Tensor:
        """`(out_features, in_features)`, float32."""
        return self.values * self.scales[:, None]


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
        parts = [cls.fitted(rows.float().unflatten(1, (-1, GROUP))) for rows in weight.detach().split(ROWS)]
        return cls(*map(torch.cat, zip(*parts, strict=True)))

    @classmethod
    def fitted(cls, groups: torch.Tensor) -> "Int4Weight":
        """Rounds `(out_features, groups, GROUP)`: levels and lines through them are fitted to each other in turn.

        The first line is that from the lowest to the highest number. Each of those after it has the least square error
        for its levels; three take an eighth from the error of the first, for normally distributed numbers.
        """
        low, high = groups.amin(dim=2), groups.amax(dim=2)
        scales = ((high - low) / 15).clamp(min=TINY).bfloat16()
        offsets = (low + 8 * scales).bfloat16()
        mean = groups.mean(dim=2, keepdim=True)
        for left in reversed(range(FITS + 1)):
            levels = ((groups - offsets[..., None]) / scales[..., None]).round().clamp(-8, 7)
            if left:
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
