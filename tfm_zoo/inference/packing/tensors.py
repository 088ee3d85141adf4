"""A weight of eight or four bits as the plain tensors of a checkpoint: `weight`, `weight_scales`, `weight_offsets`,
and, of a calibrated one, `weight_input_scales` and `weight_input_zeros`.

They do not depend on a machine's kernels, and layers that are computed as one have tensors of their own.
"""

import torch
from torch import nn

from .weights import AnyWeight, CalibratedWeight, Int4Weight, Int8Weight, KeptWeight, Rounded

#: dtype of the tensor `weight` -> what it forms together with its scales and offsets
KINDS = {torch.int8: Int8Weight, torch.uint8: Int4Weight}


def kind_of(layer: nn.Module) -> type[Rounded] | None:
    """What the tensors of a loaded or calibrated layer form; `None`: a plain weight."""
    if getattr(layer, "is_kept", False):
        return KeptWeight
    kind = KINDS.get(layer.weight.dtype)
    return CalibratedWeight if kind is Int8Weight and hasattr(layer, "weight_input_scales") else kind


def hold(layer: nn.Module, weight: Rounded) -> None:
    """Gives a layer a weight of one of the kinds, as if it had been loaded so."""
    layer.is_kept = isinstance(weight, KeptWeight)
    for name, tensor in named(weight).items():
        layer.register_parameter(name, nn.Parameter(tensor, requires_grad=False))


def names_of(kind: type[Rounded]) -> list[str]:
    """The names of a weight's fields in a checkpoint."""
    return ["weight" if field == "values" else f"weight_{field}" for field in kind._fields]


def named(weight: Rounded) -> dict[str, torch.Tensor]:
    """The tensors of a weight, by name."""
    return dict(zip(names_of(type(weight)), weight, strict=True))


def layer_tensors(weight: AnyWeight, bias: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """The tensors of a packed layer, by name.

    Raises:
        ValueError: if its weight is not of eight or four bits.
    """
    if isinstance(weight, torch.Tensor):
        dtype = str(weight.dtype).removeprefix("torch.")
        raise ValueError(
            f"A model packed in {dtype} is not saved: save it before pack_weights, and pack it once loaded."
        )
    return named(weight) | ({} if bias is None else {"bias": bias})


def same(first: Rounded, second: Rounded) -> bool:
    """Whether two weights are equal, bit for bit."""
    return type(first) is type(second) and all(map(torch.equal, first, second))
