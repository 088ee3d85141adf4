"""Checks of a model's inputs, made before any work is done. Each raises a `ValueError` that names the argument."""

import torch

from .unpadding import is_traced

IGNORED = -100  # the label of what is not labelled


def one_of(input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
    """The one of the two that is given."""
    if (input_ids is None) == (inputs_embeds is None):
        given = "neither" if input_ids is None else "both"
        raise ValueError(f"Exactly one of input_ids and inputs_embeds is needed; {given} given.")
    return input_ids if inputs_embeds is None else inputs_embeds


def check_inputs(
    config,
    input_ids: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
) -> tuple[int, int]:
    """Shapes fit each other; they are those documented at [`TfmBertModel`]. Returns (batch, length)."""
    inputs = one_of(input_ids, inputs_embeds)
    if inputs_embeds is None and inputs.dim() != 2:
        raise ValueError(f"input_ids of shape {tuple(inputs.shape)} should be of shape (batch, length).")
    if inputs_embeds is not None and (inputs.dim() != 3 or inputs.shape[-1] != config.hidden_size):
        wanted = f"(batch, length, {config.hidden_size}), the last hidden_size"
        raise ValueError(f"inputs_embeds of shape {tuple(inputs.shape)} should be of shape {wanted}.")
    batch, length = inputs.shape[:2]
    rows = [(batch, length), (1, length)]  # no set: while a graph is made, sizes may be symbols, without a hash
    for name, ids in (("token_type_ids", token_type_ids), ("position_ids", position_ids)):
        if ids is not None and tuple(ids.shape) not in rows:
            raise ValueError(
                f"{name} of shape {tuple(ids.shape)} should be of shape ({batch}, {length}), as the inputs."
            )
    if isinstance(attention_mask, torch.Tensor):
        shape, heads = tuple(attention_mask.shape), config.num_attention_heads
        sizes = ((1, batch), (1, heads), (1, length), (length,))  # what a mask in full may have in each dimension
        full = len(shape) == 4 and all(size in allowed for size, allowed in zip(shape, sizes, strict=True))
        if shape != (batch, length) and not full:
            raise ValueError(
                f"attention_mask of shape {shape} does not fit the inputs: it should be of shape ({batch}, {length}), "
                f"or ({batch}, 1, {length}, {length})."
            )
    return batch, length


def check_ids(name: str, ids: torch.Tensor | None, size: int, of: str, ignored: int | None = None) -> None:
    """Ids lie in 0 to `size - 1`, or are `ignored`: a lookup outside the table `of` crashes a GPU for good."""
    if ids is None or is_traced(ids):
        return
    if ignored is not None:
        ids = ids[ids != ignored]
    if ids.numel() == 0:
        return
    check_range(name, *torch.stack(ids.aminmax()).tolist(), size, of)


def check_range(name: str, low: int, high: int, size: int, of: str) -> None:
    """Ids from `low` to `high` lie in 0 to `size - 1`."""
    if low < 0 or high >= size:
        bad = low if low < 0 else high
        raise ValueError(f"{name} holds {bad}, which is outside {of}: ids go from 0 to {size - 1}.")


def check_labels(
    labels: torch.Tensor | None, shape: tuple[int, ...], classes: int | None, of: str, name: str = "labels"
) -> None:
    """There is a label for each of what `shape` counts, and it is one of so many classes, or -100."""
    if labels is None:
        return
    if labels.shape[: len(shape)] != shape:
        raise ValueError(f"{name} of shape {tuple(labels.shape)} should be of shape {tuple(shape)}, as the inputs.")
    if classes is not None:
        check_ids(name, labels, classes, of, ignored=IGNORED)
