"""The entrance of decoders, like [`encoder_batch`] with a cache; and which positions their heads read."""

import torch
from transformers import Cache, DynamicCache, EncoderDecoderCache

from .batch import CACHE, Batch, KeptTokens, Layout, Tokens, is_traced, marks_padding
from .cache import open_cache
from .entrance import empty_states, find_layouts, hides_only_padding, pair_mask, shown_keys
from .inputs import asks_for, check_inputs, default_positions, documents_of

SHOWN = ("output_hidden_states", "output_attentions", "output_router_logits")  # what each layer computes


def decoder_batch(
    model, tokens: Tokens, attention_mask, past_key_values, use_cache: bool | None, options: dict, read_positions=None
) -> Batch:
    """Makes the batch of a causal [`TfmStack`] from the inputs of [`TfmGPTModel`], and its further `options`. Raises a
    `ValueError` for inputs that do not fit each other, the cache or the model."""
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
        seen = cache.get_seq_length() if seen is None else seen  # that only the device knows
        tokens = tokens._replace(position_ids=default_positions(model, given, attention_mask, seen))

    kept = None
    if cache is None and not any(asks_for(config, options, name) for name in SHOWN):
        if documents is None and (attention_mask is None or marks_padding(attention_mask)):
            # Whoever evaluates inspects the model, and gets the official states at padding too.
            if read_positions is None and attention_mask is not None and model.training:
                read_positions = attention_mask.bool()
            if read_positions is not None:  # no earlier position sees those behind the last of them
                real = None if attention_mask is None else attention_mask.to(read_positions)
                kept = KeptTokens.find(needed_up_to(read_positions, real), read_positions)
        elif is_packed and model.takes_bounds(empty_states(model, given)):  # others tell documents apart by a mask
            real = torch.ones_like(documents) if attention_mask is None else attention_mask
            kept = KeptTokens.find(real, read_positions, documents)
    kept = model.skips(kept)

    layouts = decoder_layouts(model, given, attention_mask, cache, documents, kept)
    return Batch(tokens.only(kept), layouts, kept, cache, returns_cache, attention_mask)


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


def needed_up_to(read_positions: torch.BoolTensor, real: torch.BoolTensor | None = None) -> torch.BoolTensor:
    """The positions of each row up to the last one that is read, and of them the `real` ones, if they are given. Each
    is `(batch, length)`."""
    needed = read_positions.flip(1).cumsum(dim=1).flip(1) > 0
    whole = torch.ones_like(needed) if real is None else real
    return (needed & whole) | (whole & (whole.cumsum(dim=1) == 1))  # a row without any would have no output


def read_states(hidden_states: torch.Tensor, positions: torch.BoolTensor) -> torch.Tensor:
    """`(batch, hidden_size)`, the states at the one true position `(batch, length)` of each row."""
    index = positions.to(hidden_states.device).int().argmax(dim=1)
    return hidden_states[torch.arange(index.shape[0], device=index.device), index]  # `len` would fix it in a graph


def only_last(positions: torch.BoolTensor) -> torch.BoolTensor:
    """`(batch, length)`: true at the last true one of each row alone; at its first position without one."""
    places = torch.arange(positions.shape[1], device=positions.device)
    return places == (positions * places).argmax(dim=1, keepdim=True)
