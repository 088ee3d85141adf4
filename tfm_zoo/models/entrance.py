"""The entrance of encoders: a caller's arguments are checked, then it is decided which tokens are computed. And, for
encoders and decoders, who attends to whom. A mask is

    of padding    `(batch, keys)`, 1 at real tokens     a caller's; flash and linear attention read it
    of pairs      `(batch, 1, queries, keys)`           a caller's; true where a query sees a key, as sdpa reads it
    of numbers    of this shape, added to scores        what eager attention reads; sdpa reads it if positions have a
                                                        bias, and in evaluation for attention to a source
    of blocks     flex attention's own
"""

from functools import partial

import torch
from transformers import masking_utils

from .batch import EVERYTHING, Batch, KeptTokens, Layout, Tokens, Window, is_pad_mask, is_readable, is_traced
from .inputs import asks_for, check_inputs, default_positions, documents_of
from .kernels import OF_TORCH, PLAIN, added_to_scores, takes_bounds

MASKED = 0.15 * 0.8  # of the tokens that ESM-2 was trained with
BLOCKS_FROM = 4  # attention runs in blocks for inputs at least this many windows long


def linear_mask(config, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs):
    """The mask of padding for the inputs, without the cached positions before them."""
    return None if attention_mask is None else attention_mask[:, -inputs_embeds.shape[1] :].to(inputs_embeds.device)


#: type of layer -> what makes a mask for it: transformers' functions, of encoders and of decoders
MASKS = {
    "full_attention": (masking_utils.create_bidirectional_mask, masking_utils.create_causal_mask),
    "sliding_attention": (
        masking_utils.create_bidirectional_sliding_window_mask,
        masking_utils.create_sliding_window_causal_mask,
    ),
    "linear_attention": (linear_mask, linear_mask),
}


def encoder_batch(
    stack, tokens: Tokens, attention_mask, options: dict, read_positions=None, reads_first=False, takes_documents=True
) -> Batch:
    """Makes an encoder's batch from the inputs of [`TfmBertModel`], and its further `options`. `reads_first`: the first
    position of each row is read too, even if it is padding. `takes_documents`: a row may hold several."""
    if any(options.get(name) is not None for name in ("past_key_values", "cache")):
        raise ValueError("past_key_values: an encoder has no cache. PEFT's prefix tuning needs one; use prompt tuning.")
    given = tokens.ids_or_embeddings
    check_inputs(stack, tokens, attention_mask, options)
    mask = attention_mask.to(given.device) if isinstance(attention_mask, torch.Tensor) else attention_mask
    documents = None if tokens.position_ids is None else documents_of(stack, tokens, mask)
    if documents is not None and not (takes_documents or is_traced(documents)):
        raise ValueError("position_ids begin anew within a row: each source should be a row of its own, padded.")
    if tokens.position_ids is None:
        tokens = tokens._replace(position_ids=default_positions(stack, given))
    if stack.config.dropped_token_id is not None:
        tokens = without_mask_tokens(stack, tokens, mask, documents)
    if reads_first and is_pad_mask(mask):
        first = torch.arange(given.shape[1], device=given.device)[None] == 0
        read_positions = first if read_positions is None else read_positions.to(given.device).bool() | first
    mask, kept = known_padding(mask, documents, read_positions)
    if mask is None and documents is None and needs_no_mask_but_for_padding(stack, given):
        return Batch(tokens, dict.fromkeys(stack.layer_types, EVERYTHING))
    if kept is not None:
        # Restored hidden states are copies, which no gradient reaches (`retain_grad`).
        is_copied = torch.is_grad_enabled() and asks_for(stack.config, options, "output_hidden_states")
        # A bias of positions is made for whole rows: those that hold several documents stay whole.
        is_biased = documents is not None and stack.position_bias is not None
        kept = None if is_copied or is_biased or not stack.computes_only(kept) else kept
    shows_weights = kept is not None and asks_for(stack.config, options, "output_attentions")
    layouts = find_layouts(stack, empty_states(stack, given), mask, kept, shows_weights, documents=documents)
    return Batch(tokens if kept is None else tokens.only(kept), layouts, kept, attention_mask=mask)


def known_padding(mask: object, documents, read_positions) -> tuple[object, KeptTokens | None]:
    """Returns the mask, `None` if nothing is padding; and the real tokens, to lay them end to end. `None`: the batch
    stays as it is, as it also does where nothing is padding and no row holds documents. A CPU first asks whether all is
    real, which is faster than a count. Another device is waited for once, for lengths."""
    if documents is None and not is_pad_mask(mask):
        return mask, None
    if documents is None and is_readable(mask) and mask.all():
        return None, None
    real = torch.ones_like(documents) if mask is None else mask
    kept = KeptTokens.find(real, read_positions, documents, shows_all=True)
    if kept is None:  # padding is computed, or a graph does not know whether there is any
        return mask, None
    if sum(kept.lengths) < real.numel():  # padding is left out
        return mask, kept
    return None, (None if documents is None else kept)  # nothing is padding


def needs_no_mask_but_for_padding(stack, given: torch.Tensor) -> bool:
    """Whether attention needs no mask where nothing is padding, in an encoder and for a decoder's one new token. A mask
    is made for layers with a window, in a graph, and for implementations other than eager and torch's."""
    is_plain = stack.config._attn_implementation in PLAIN
    return is_plain and "sliding_attention" not in stack.layer_types and not is_traced(given)


def empty_states(stack, given: torch.Tensor) -> torch.Tensor:
    """`(batch, length, 0)`, with the dtype and device of hidden states, which is all that mask functions read."""
    dtype = given.dtype if given.is_floating_point() else stack.embeddings.embed_tokens.weight.dtype
    dtype = dtype if dtype.is_floating_point else stack.dtype  # (a packed table holds integers)
    return given.new_empty(*given.shape[:2], 0, dtype=dtype)


def as_attention_reads(config, mask: object, like: torch.Tensor) -> object:
    """A mask that is true (or 1) where a query sees a key, in the form that attention reads. Other masks stay as they
    are: of padding, of numbers to add, or one that only the implementation knows."""
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4 or mask.is_floating_point():
        return mask
    sees, lowest = mask.bool(), torch.finfo(like.dtype).min
    return sees if config._attn_implementation in OF_TORCH else added_to_scores(sees, like.dtype, lowest)


def shown_keys(mask: torch.Tensor, like: torch.Tensor) -> torch.BoolTensor | None:
    """A mask of padding `(batch, keys)` for any query, `(batch, 1, 1, keys)`; `None` if it is known to hide nothing."""
    sees = mask.to(like.device).bool()[:, None, None]
    return None if is_readable(sees) and sees.all() else sees


def find_layouts(
    stack, like: torch.Tensor, mask: object, kept: KeptTokens | None, shows_weights: bool = False, **options
) -> dict[str, Layout]:
    """Who attends to whom, for each type of layer, by the caller's mask: among all tokens, or only among those `kept`.
    `shows_weights`: attention weights are asked for, those of the padded batch. `like` are [`empty_states`]; the
    `options` are those of [`padded_layout`]."""
    mask = as_attention_reads(stack.config, mask, like)
    make = partial(padded_layout, stack, like, **options)
    if kept is None:
        return {each: make(each, mask) for each in dict.fromkeys(stack.layer_types)}
    implementation, layouts = stack.config._attn_implementation, {}
    for each in dict.fromkeys(stack.layer_types):
        is_linear = each == "linear_attention"
        # On a CPU, a call for each sequence costs little and needs no mask; on a GPU it would starve the device.
        can_split = like.device.type == "cpu" and (is_linear or implementation in PLAIN)
        if not is_linear and takes_bounds(stack, like):
            layout, mode = EVERYTHING, "by_bounds"  # (a window, too, is read from the layer)
        elif shows_weights or not can_split:
            layout, mode = make(each, mask), "restored"
        else:  # no padding is left to hide, only what a window or, in eager attention, causality hides
            is_limited = each == "sliding_attention" or (implementation == "eager" and stack.is_causal)
            layout, mode = make(each, None) if is_limited else EVERYTHING, "apart"
        layouts[each] = layout._replace(mode=mode, queries=kept, keys=kept).with_parts()
    return layouts


def padded_layout(
    stack, like: torch.Tensor, layer_type: str, mask: object, documents=None, in_blocks: bool = True, **mask_options
) -> Layout:
    """Who attends to whom in a padded batch, in the layers of one type, by a mask that [`as_attention_reads`] gave.
    `in_blocks`: attention may run in blocks, since no positions come before. `mask_options`: what transformers' mask
    functions take besides, such as a decoder's cache."""
    config, make = stack.config, MASKS[layer_type][stack.is_causal]
    if documents is not None:
        # (In a graph nothing is raised: documents are always numbered there, even a single one.)
        if "flash" in config._attn_implementation and not is_traced(documents):
            raise ValueError(
                "position_ids begin anew within a row: choose sdpa. Flash attention takes it only where padding is left"
                " out: not with hooks, outputs of layers, labels there, scaled rotary positions or skip_padding=False."
            )
        mask_options["and_mask_function"] = lambda row, head, query, key: documents[row, query] == documents[row, key]
    elif in_blocks and layer_type == "sliding_attention":
        window = find_window(config, like, mask, stack.is_causal)
        if window is not None:
            return Layout(window=window)
    return Layout(make(config=config, inputs_embeds=like, attention_mask=mask, **mask_options))


def find_window(config, like: torch.Tensor, attention_mask: torch.Tensor | None, is_causal: bool) -> Window | None:
    """The window for attention in blocks. `None` where a mask is needed, or is as fast: without sdpa, with a bias of
    positions, with a mask of pairs, in a graph, and for short inputs."""
    size, length = config.sliding_window, like.shape[1]  # (the size of a causal window counts the position itself)
    if config._attn_implementation not in OF_TORCH or config.has_position_bias or is_traced(like):
        return None
    if length < BLOCKS_FROM * size:
        return None
    if attention_mask is not None and not (is_pad_mask(attention_mask) and attention_mask.shape[1] == length):
        return None
    places = torch.arange(length, dtype=torch.int32, device=like.device).unsqueeze(0)
    if attention_mask is not None:
        places = places.where(attention_mask.to(like.device).bool(), Window.far)
    return Window(places, size - 1, 0) if is_causal else Window(places, size, size)


def without_mask_tokens(stack, tokens: Tokens, mask: torch.Tensor | None, documents=None) -> Tokens:
    """Tokens with embeddings instead of ids: zero at mask tokens, others larger the more of these a sequence has, as if
    dropout had left out what is masked (ESM-2, Lin et al. 2023). Raises a `ValueError` for a packed row with some."""
    ids = tokens.ids_or_embeddings
    if ids.dim() == 3:
        return tokens
    is_mask, lengths = ids == stack.config.dropped_token_id, ids.shape[1]
    if documents is not None and not is_traced(ids) and is_mask.any():
        causes = "position_ids begin anew within a row, whose masks (dropped_token_id) would scale all its sequences"
        raise ValueError(f"{causes}. Give each sequence a row of its own, padded.")
    lengths = mask.sum(dim=1) if is_pad_mask(mask) else lengths
    scale = (1 - MASKED) / (1 - is_mask.sum(dim=1).float() / lengths)
    embeddings = stack.embeddings.embed_tokens(ids).masked_fill(is_mask.unsqueeze(-1), 0.0)
    return tokens._replace(ids_or_embeddings=(embeddings * scale[:, None, None]).to(embeddings.dtype))
