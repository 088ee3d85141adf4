"""Who attends to whom: the layout of a padded batch, and that of the tokens which are kept of it."""

from collections.abc import Callable
from functools import partial

import torch

from .batch import EVERYTHING, FAR, KeptTokens, Layout, Window
from .compat import (
    FUSED,
    create_bidirectional_mask,
    create_bidirectional_sliding_window_mask,
    create_causal_mask,
    create_sliding_window_causal_mask,
)
from .inputs import is_traced, marks_padding, reads_freely
from .kernels import takes_bounds

BLOCKS_FROM = 4  # attention runs in blocks for inputs at least this many windows long


def padding_mask(config, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs):
    """The mask of linear attention: which of the inputs `(batch, length, ...)` are real."""
    return None if attention_mask is None else attention_mask[:, -inputs_embeds.shape[1] :].to(inputs_embeds.device)


#: type of layer -> what makes a mask for it: transformers' functions, of encoders and of decoders
ENCODER_MASKS = {
    "full_attention": create_bidirectional_mask,
    "sliding_attention": create_bidirectional_sliding_window_mask,
    "linear_attention": padding_mask,
}
DECODER_MASKS = {
    "full_attention": create_causal_mask,
    "sliding_attention": create_sliding_window_causal_mask,
    "linear_attention": padding_mask,
}


def hides_only_padding(model, given: torch.Tensor) -> bool:
    """Whether an encoder, or a decoder's one new token, needs a mask for padding alone: no layer has a window, and the
    implementation takes a plain mask or none (flex attention's is one of blocks). In a graph nobody can tell."""
    is_plain = model.config._attn_implementation in ("eager", *FUSED)
    return is_plain and "sliding_attention" not in model.layer_types and not is_traced(given)


def empty_states(model, given: torch.Tensor) -> torch.Tensor:
    """`(batch, length, 0)`, with the dtype and device of the hidden states of these ids or embeddings, which is all
    that mask functions read."""
    dtype = given.dtype if given.is_floating_point() else model.embeddings.embed_tokens.weight.dtype
    return given.new_empty(*given.shape[:2], 0, dtype=dtype if dtype.is_floating_point else model.dtype)


def pair_mask(config, mask: object, states: torch.Tensor) -> object:
    """A mask of who attends to whom in the form that attention reads. A caller's may be of numbers to add, or true (or
    1) where a query sees a key; it may also be one that only the implementation knows."""
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4 or mask.is_floating_point():
        return mask
    sees, lowest = mask.bool(), torch.finfo(states.dtype).min
    return sees if config._attn_implementation in FUSED else added_to_scores(sees, states.dtype, lowest)


def shown_keys(mask: torch.Tensor, states: torch.Tensor) -> torch.BoolTensor | None:
    """A mask of padding `(batch, keys)` for queries that all see the same keys, `(batch, 1, 1, keys)`; `None` if it
    hides nothing, as far as one can tell."""
    sees = mask.to(states.device).bool()[:, None, None]
    return None if reads_freely(sees) and sees.all() else sees


def added_to_scores(sees: torch.BoolTensor, dtype: torch.dtype, unseen: float = -torch.inf) -> torch.Tensor:
    """Makes a mask of numbers from one that is true where a query sees a key. (sdpa would do it in every call.)"""
    return torch.zeros(sees.shape, dtype=dtype, device=sees.device).masked_fill_(~sees, unseen)


def find_layouts(
    model, states: torch.Tensor, mask: object, kept: KeptTokens | None, shows_weights: bool = False, **options
) -> dict[str, Layout]:
    """Who attends to whom, for each type of layer of the model, by the caller's mask; the arguments are those of
    [`padded_layout`] and of [`kept_layout`]. Where `kept` is `None`, all tokens are computed."""
    make = partial(padded_layout, model, states, **options)
    layer_types, mask = dict.fromkeys(model.layer_types), pair_mask(model.config, mask, states)
    if kept is None:
        return {each: make(each, mask) for each in layer_types}
    return {each: kept_layout(model, each, make, mask, states, kept, shows_weights) for each in layer_types}


def padded_layout(
    model, states: torch.Tensor, layer_type: str, mask: object, documents=None, in_blocks: bool = True, **options
) -> Layout:
    """Who attends to whom in a padded batch, in the layers of one type.

    Args:
        states: [`empty_states`].
        mask: the caller's, as [`pair_mask`].
        documents: [`documents_of`] the batch.
        in_blocks: whether attention may run in blocks: where there are no earlier positions.
        options: what transformers' mask functions take besides.
    """
    config, masks = model.config, DECODER_MASKS if model.is_causal else ENCODER_MASKS
    if documents is not None:
        # (A graph cannot tell whether there are several.)
        if "flash" in (config._attn_implementation or "") and not (config.has_position_bias or is_traced(documents)):
            raise ValueError(
                "position_ids begin anew within a row: choose sdpa. Flash attention takes it only where no padding is "
                "computed (for skip_padding, hooks, outputs of layers, labels at it, or scaled rotary positions)."
            )
        options["and_mask_function"] = lambda row, head, query, key: documents[row, query] == documents[row, key]
    elif in_blocks and layer_type == "sliding_attention":
        window = find_window(config, states, mask, model.is_causal)
        if window is not None:
            return Layout(window=window)
    return Layout(masks[layer_type](config=config, inputs_embeds=states, attention_mask=mask, **options))


def find_window(
    config, states: torch.Tensor, attention_mask: torch.Tensor | None, is_causal: bool = False
) -> Window | None:
    """The window for attention in blocks. `None` where a mask is needed, or is as fast: without sdpa, with a bias of
    positions, with a mask of pairs, in a graph, and for short inputs. `is_causal`: it ends at the position itself,
    which it then counts."""
    size, length = config.sliding_window, states.shape[1]
    if config._attn_implementation not in FUSED or config.has_position_bias:
        return None
    if is_traced(states) or length < BLOCKS_FROM * size:
        return None
    if attention_mask is not None and not (marks_padding(attention_mask) and attention_mask.shape[1] == length):
        return None
    places = torch.arange(length, dtype=torch.int32, device=states.device).unsqueeze(0)
    if attention_mask is not None:
        places = places.where(attention_mask.to(states.device).bool(), FAR)
    return Window(places, size - 1, 0) if is_causal else Window(places, size, size)


def kept_layout(
    model, layer_type: str, make: Callable, mask: object, states: torch.Tensor, kept: KeptTokens, shows_weights=False
) -> Layout:
    """Who attends to whom among the tokens that are kept, in the layers of one type. `make` makes [`padded_layout`] of
    a type and a mask; `shows_weights`: the caller asks for attention weights, which are those of the padded batch."""
    implementation = model.config._attn_implementation or "eager"
    if layer_type != "linear_attention" and takes_bounds(model, states):
        return Layout(mode="by_bounds", queries=kept, keys=kept)
    # On a CPU, a call for each sequence costs little and needs no mask; on a GPU it would starve the device.
    can_split = layer_type == "linear_attention" or implementation in ("eager", *FUSED)
    if states.device.type != "cpu" or shows_weights or not can_split:
        return make(layer_type, mask)._replace(mode="restored", queries=kept, keys=kept)
    # No padding is left to be hidden, only what a window or, in eager attention, causality hides.
    is_limited = layer_type == "sliding_attention" or (implementation == "eager" and model.is_causal)
    return apart(make(layer_type, None) if is_limited else EVERYTHING, kept)


def apart(layout: Layout, kept: KeptTokens) -> Layout:
    """A layout of a padded batch, cut into one for each sequence of the tokens that are kept."""
    parts = [EVERYTHING] * len(kept.lengths)
    if layout.window is not None:  # distances are those in the padded batch
        parts = [Layout(window=layout.window._replace(places=each.unsqueeze(0))) for each in columns_of(kept)]
    elif layout.mask is not None:
        masks = layout.mask.expand(kept.shape[0], -1, -1, -1).split(1)
        rows = [int(indices[0]) // kept.shape[1] for indices in kept.indices.split(kept.lengths)]
        parts = [Layout(among(masks[row], places)) for row, places in zip(rows, columns_of(kept), strict=True)]
    return Layout(mode="apart", queries=kept, keys=kept, parts=parts)


def columns_of(kept: KeptTokens) -> tuple[torch.LongTensor, ...]:
    """The places of each sequence's tokens in the padded batch."""
    return (kept.indices % kept.shape[1]).split(kept.lengths)


def among(mask: torch.Tensor, places: torch.LongTensor) -> torch.Tensor:
    """The part of a mask `(1, heads, length, length)` in which some positions look at each other."""
    first, last = int(places[0]), int(places[-1]) + 1
    if last - first == len(places):
        return mask[:, :, first:last, first:last]
    return mask[:, :, places][..., places]
