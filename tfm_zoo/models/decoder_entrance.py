"""The entrance of decoders: like [`encoder_batch`] for encoders, with a cache."""

import torch
from transformers import Cache, DynamicCache, EncoderDecoderCache

from .batch import Batch, KeptTokens, Layout, Tokens
from .cache import open_cache
from .compat import CACHE
from .inputs import (
    asks_for,
    check_inputs,
    count_in_mask,
    count_positions,
    counted,
    documents_of,
    is_traced,
    marks_padding,
)
from .kernels import takes_bounds
from .masks import empty_states, find_layouts, hides_only_padding, pair_mask, shown_keys
from .padding import find_kept, keep_tokens, reads_padding, unless_padding_counts

SHOWN = ("output_hidden_states", "output_attentions", "output_router_logits")  # what each layer computes


def decoder_batch(
    model, tokens: Tokens, attention_mask, past_key_values, use_cache: bool | None, options: dict, read_positions=None
) -> Batch:
    """Makes the batch of a causal [`TfmStack`] from the inputs of [`TfmGPTModel`], and its further `options`.

    Raises:
        ValueError: for inputs that do not fit each other, the cache or the model.
    """
    config, given = model.config, tokens.ids_or_embeddings
    if isinstance(past_key_values, EncoderDecoderCache):
        past_key_values = past_key_values.self_attention_cache
    cache, seen, returns_cache = open_cache(model, past_key_values, use_cache, batch=given.shape[0])
    is_callers = cache is not None and cache is past_key_values

    # (`is_decoder` without a cache here, too: continuous batching keeps one of its own.)
    check_inputs(model, tokens, attention_mask, seen=seen, is_decoder=True)
    # (A paged cache keeps documents apart itself. A graph cannot tell them; with a caller's cache they are refused.)
    is_apart = options.get(CACHE) is not None or (is_callers and is_traced(given))
    documents = None if is_apart or tokens.position_ids is None else documents_of(model, tokens, attention_mask)
    is_packed = documents is not None and not is_traced(documents)
    if is_packed and (is_callers or use_cache):
        raise ValueError(
            f"{model.argument_prefix}position_ids begin anew within a row, and a cache does not keep apart what is "
            "packed into a row: pass use_cache=False and no cache, or give each sequence a row of its own."
        )
    if is_packed:
        cache, returns_cache = None, False
    if tokens.position_ids is None:
        tokens = tokens._replace(position_ids=default_positions(model, given, attention_mask, cache, seen))

    kept = None
    if cache is None and not any(asks_for(config, options, name) for name in SHOWN):
        if documents is None:
            kept = kept_up_to_read(model, attention_mask, read_positions)
        elif is_packed and takes_bounds(model, empty_states(model, given)):  # others tell documents apart by a mask
            real = torch.ones_like(documents) if attention_mask is None else attention_mask
            kept = find_kept(real, reads_padding(real, read_positions), documents)
    kept = unless_padding_counts(model, kept)
    tokens = keep_tokens(tokens, kept)

    layouts = decoder_layouts(model, given, attention_mask, cache, documents, kept)
    return Batch(tokens, layouts, kept, cache, returns_cache, attention_mask)


def default_positions(
    model, given: torch.Tensor, attention_mask: object, cache: Cache | None, seen: int | None
) -> torch.LongTensor:
    """Positions `(batch or 1, length)` of the inputs, after the `seen` ones in the cache (`None`: only the device knows
    how many)."""
    length, has_mask = given.shape[1], marks_padding(attention_mask)
    if has_mask and model.config.position_ids_from_mask:
        return counted(model, count_in_mask(attention_mask.to(given.device))[:, -length:])
    if has_mask and model.config.position_ids_from_padding and seen != 0:
        seen = attention_mask[:, :-length].bool().sum(dim=1, keepdim=True)
    elif seen is None:
        seen = cache.get_seq_length()
    return count_positions(model, given, seen)


def decoder_layouts(
    model, given: torch.Tensor, attention_mask: object, cache: Cache | None, documents, kept: KeptTokens | None
) -> dict[str, Layout]:
    """Who attends to whom, for each type of layer; `documents` are [`documents_of`] the batch."""
    states, types = empty_states(model, given), model.layer_types
    is_growing = cache is None or isinstance(cache, DynamicCache)
    is_step = given.shape[1] == 1 and is_growing and hides_only_padding(model, given)
    if is_step and (attention_mask is None or (marks_padding(attention_mask) and "linear_attention" not in types)):
        # A single token sees itself and all real tokens before it.
        sees = None if attention_mask is None else shown_keys(attention_mask, states)
        return dict.fromkeys(types, Layout(pair_mask(model.config, sees, states)))
    if isinstance(attention_mask, dict):  # `generate` makes masks beforehand for a compiled step
        if missing := {*types} - {*attention_mask}:
            raise ValueError(f"{model.argument_prefix}attention_mask has no mask for layers of {', '.join(missing)}.")
        return {each: Layout(pair_mask(model.config, mask, states)) for each, mask in attention_mask.items()}
    # (Asked only where a window could be: in a graph, nobody knows how long a cache is.)
    has_window = "sliding_attention" in types and not is_traced(given)
    is_new = cache is None or (has_window and isinstance(cache, DynamicCache) and cache.get_seq_length() == 0)
    if has_window and cache is not None and isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 4:
        keys = cache.get_mask_sizes(given.shape[1], model.layer_types.index("sliding_attention"))[0]
        if attention_mask.shape[3] != keys:
            raise ValueError(
                f"{model.argument_prefix}attention_mask covers {attention_mask.shape[3]} keys, and the cache holds "
                f"{keys} for layers with a window: it should be a dict, with a mask for each type of layer."
            )
    options = {CACHE: cache, "documents": documents, "in_blocks": has_window and is_new}
    return find_layouts(model, states, attention_mask, kept, **options)


def kept_up_to_read(model, attention_mask, read_positions: torch.Tensor | None) -> KeptTokens | None:
    """The real tokens of a batch up to the last one that is read of each row, since no earlier position sees others
    ([`find_kept`])."""
    if not (attention_mask is None or marks_padding(attention_mask)):
        return None
    # Whoever evaluates inspects the model, and gets the official states at padding too.
    if read_positions is None and attention_mask is not None and model.training:
        read_positions = attention_mask.bool()
    if read_positions is None:
        return None
    real = None if attention_mask is None else attention_mask.to(read_positions)
    return find_kept(*needed_up_to(read_positions, real))


def needed_up_to(
    read_positions: torch.BoolTensor, real: torch.BoolTensor | None = None
) -> tuple[torch.BoolTensor, torch.BoolTensor | None]:
    """The positions of each row up to the last one that is read, and of them the `real` ones, if they are given; and
    whether others are read. Each is `(batch, length)`; they are what [`find_kept`] takes."""
    needed = read_positions.flip(1).cumsum(dim=1).flip(1) > 0
    whole = torch.ones_like(needed) if real is None else real
    needed = (needed & whole) | (whole & (whole.cumsum(dim=1) == 1))  # a row without any would have no output
    return needed, None if real is None else reads_padding(real, read_positions)
