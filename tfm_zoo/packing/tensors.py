"""A weight of eight or four bits as the plain tensors of a checkpoint: `weight`, `weight_scales`, `weight_offsets`.

They do not depend on a machine's kernels, and layers that are computed as one have tensors of their own.
"""

import torch

from .weights import Int4Weight, Int8Weight

#: dtype of the tensor `weight` -> what it forms together with its scales and offsets
KINDS = {torch.int8: Int8Weight, torch.uint8: Int4Weight}


def names_of(kind: type[Int8Weight] | type[Int4Weight]) -> list[str]:
    """The names of a weight's fields in a checkpoint."""
    return ["weight" if field == "values" else f"weight_{field}" for field in kind._fields]


def named(weight: Int8Weight | Int4Weight) -> dict[str, torch.Tensor]:
    """The tensors of a weight, by name."""
    return dict(zip(names_of(type(weight)), weight, strict=True))


def layer_tensors(weight: torch.Tensor | Int8Weight | Int4Weight, bias: torch.Tensor | None) -> dict[str, torch.Tensor]:
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


def same(first: Int8Weight | Int4Weight, second: Int8Weight | Int4Weight) -> bool:
    """Whether two weights are equal, bit for bit."""
    return type(first) is type(second) and all(map(torch.equal, first, second))
