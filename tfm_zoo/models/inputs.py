"""Checks of a model's inputs, made before any work is done."""

import torch

from .unpadding import is_traced


def check_inputs(
    input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, attention_mask: torch.Tensor | None
) -> tuple[int, int]:
    """Shapes fit each other.

    Args:
        input_ids: `(batch, length)`.
        inputs_embeds: `(batch, length, hidden_size)`; exactly one of the two is given.
        attention_mask: `(batch, length)`, or `(batch, 1 or heads, length, length)`, or `None`.

    Returns:
        (batch, length).

    Raises:
        ValueError: naming the argument and its shape.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError(
            f"Exactly one of input_ids and inputs_embeds is needed; {'neither' if input_ids is None else 'both'} given."
        )
    name, inputs, dims = ("input_ids", input_ids, 2) if inputs_embeds is None else ("inputs_embeds", inputs_embeds, 3)
    if inputs.dim() != dims:
        wanted = "(batch, length)" if dims == 2 else "(batch, length, hidden_size)"
        raise ValueError(f"{name} of shape {tuple(inputs.shape)} should be of shape {wanted}.")
    batch, length = inputs.shape[:2]
    if isinstance(attention_mask, torch.Tensor):
        full = attention_mask.dim() == 4 and attention_mask.shape[-2:] == (length, length)
        if not full and attention_mask.shape != (batch, length):
            raise ValueError(
                f"attention_mask of shape {tuple(attention_mask.shape)} does not fit {name} of shape "
                f"{tuple(inputs.shape)}: it should be ({batch}, {length}), or ({batch}, 1, {length}, {length})."
            )
    return batch, length


def check_ids(name: str, ids: torch.Tensor | None, size: int, of: str) -> None:
    """Ids lie in 0 to `size - 1`; a lookup outside the table crashes a GPU for good.

    Raises:
        ValueError: naming the argument `name`, the first bad id and the table `of` that it does not fit.
    """
    if ids is None or ids.numel() == 0 or is_traced(ids):
        return
    low, high = ids.aminmax()
    if low < 0 or high >= size:
        bad = low if low < 0 else high
        raise ValueError(f"{name} holds {bad.item()}, which is outside {of}: ids go from 0 to {size - 1}.")
