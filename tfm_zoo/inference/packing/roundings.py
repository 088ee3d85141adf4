"""How the inputs of a product become bytes, by what was seen of them: a scale of all channels, or one of each."""

from typing import NamedTuple

import torch

TOP = 255  # the largest byte
OCTAVE = 16  # steps of scales to a doubling: what calibration rounds a little differently gives the same scales
SHARES = (1.0, 0.9, 0.8, 0.65, 0.5, 0.35)  # of what was seen that bytes reach; what lies beyond is clipped
SHARES_OF_CHANNELS = (1.0, 0.8)
STRENGTHS = (1.0, 0.75, 0.5)  # how far scales of channels follow inputs, and not weights (SmoothQuant's alpha)
TINY = 1e-12


class Rounding(NamedTuple):
    """Inputs to bytes, `round(inputs / scales) + zeros`, from 0 to `top`.

    Args:
        scales: `(1,)` or `(in_features,)`, float32.
        zeros: of the same shape: the bytes that stand for 0, whole numbers; of channels also beyond a byte.
    """

    scales: torch.Tensor
    zeros: torch.Tensor

    @classmethod
    def of(cls, low: torch.Tensor, high: torch.Tensor) -> "Rounding":
        """Bytes that reach from `low` to `high`, both `(1,)` or `(in_features,)`, or a little farther."""
        return cls.centred(stepped((high - low).clamp(min=TINY) / TOP), low, high)

    @classmethod
    def centred(cls, scales: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> "Rounding":
        zeros = (TOP / 2 - (low + high) / 2 / scales).round()
        return cls(scales, zeros.clamp(0, TOP) if len(scales) == 1 else zeros)

    def within(self, top: int) -> "Rounding":
        """The same with bytes up to `top`."""
        if top == TOP:
            return self
        return Rounding(self.scales * (TOP / top), (self.zeros * (top / TOP)).round())

    def real(self, inputs: torch.Tensor) -> torch.Tensor:
        """What the bytes of inputs stand for, float32."""
        scales, zeros = self
        return ((inputs.float() / scales).round_().add_(zeros).clamp_(0, TOP) - zeros) * scales


def stepped(scales: torch.Tensor) -> torch.Tensor:
    """The next larger scales of a fixed series."""
    return torch.exp2((torch.log2(scales) * OCTAVE - 1e-3).ceil() / OCTAVE)


def roundings(low: torch.Tensor, high: torch.Tensor) -> list[Rounding]:
    """By one scale, what may suit inputs that were seen between `low` and `high`, both `(in_features,)`."""
    least, largest = low.amin()[None].clamp(max=0), high.amax()[None].clamp(min=0)
    return [Rounding.of(share * least, share * largest) for share in SHARES]


def channel_scales(
    low: torch.Tensor, high: torch.Tensor, weight: torch.Tensor, is_centred: bool = False
) -> list[Rounding]:
    """The same by scales of channels. `weight`: `(out_features, in_features)`, whose largest numbers count for them;
    `is_centred`: the byte for 0 is the same for all."""
    if is_centred:
        high = high.maximum(-low)
        low = -high
    spans, heights, found = (high - low).clamp(min=TINY), weight.abs().amax(0).clamp(min=TINY), []
    for strength in STRENGTHS:
        scales = spans**strength / heights ** (1 - strength)
        scales = scales * (spans / scales).amax() / TOP
        found += [Rounding.centred(stepped(share * scales), low, high) for share in SHARES_OF_CHANNELS]
    return found
