"""The entrance of decoders, like [`encoder_batch`] with a cache."""

import torch
from transformers import Cache, DynamicCache, EncoderDecoderCache

from .batch import CACHE, EVERYTHING, PAGED_CACHE, Batch, KeptTokens, Layout, Tokens, is_pad_mask, is_traced
from .cache import open_cache
from .entrance import as_attention_reads, empty_states, find_layouts, needs_no_mask_but_for_padding, shown_keys
from .inputs import asks_for, check_inputs, default_positions, documents_of
from .kernels import takes_bounds

#: outputs of each layer: whoever asks for them sees all tokens, those at padding too, as in official classes
SHOWN = ("output_hidden_states", "output_attentions", "output_router_logits")


def decoder_batch(
    stack, tokens: Tokens, attention_mask, past_key_values, use_cache: bool | None, options: dict, read_positions=None
) -> Batch:
    """Makes the batch of a causal [`TfmStack`] from the inputs of [`TfmGPTModel`], and its further `options`."""
    config, given = stack.config, tokens.ids_or_embeddings
    if isinstance(past_key_values, EncoderDecoderCache):
        past_key_values = past_key_values.self_attention_cache
    cache, seen, returns_cache = open_cache(stack, past_key_values, use_cache, rows=given.shape[0])
    was_given = cache is not None and cache is past_key_values

    check_inputs(stack, tokens, attention_mask, options, seen)
    kept = documents = None
    # (A paged cache keeps documents apart itself. In a graph, a caller's cache is taken to go on with one document.)
    if tokens.position_ids is not None and options.get(PAGED_CACHE) is None and not (was_given and is_traced(given)):
        documents = documents_of(stack, tokens, attention_mask)
    if documents is not None and not is_traced(documents):
        if was_given or use_cache:
            raise ValueError(
                f"{stack.argument_prefix}position_ids begin anew within a row, and a cache does not keep apart what is "
                "packed into a row: pass use_cache=False and no cache, or give each sequence a row of its own."
            )
        cache, returns_cache = None, False
    if tokens.position_ids is None:
        seen = cache.get_seq_length() if seen is None else seen  # (a tensor where only the device knows it)
        tokens = tokens._replace(position_ids=default_positions(stack, given, attention_mask, seen))

    if cache is None and not any(asks_for(config, options, name) for name in SHOWN):
        kept = find_kept(stack, given, attention_mask, read_positions, documents)
    layouts = decoder_layouts(stack, given, attention_mask, cache, documents, kept)
    tokens = tokens if kept is None else tokens.only(kept)
    return Batch(tokens, layouts, kept, cache, returns_cache, attention_mask)


def find_kept(stack, given: torch.Tensor, mask: object, read_positions, documents) -> KeptTokens | None:
    """The tokens that a decoder without a cache computes. `None`: all of them."""
    kept = None
    if documents is None and (mask is None or is_pad_mask(mask)):
        # In evaluation, states at padding are the official ones: somebody may look at them.
        if read_positions is None and mask is not None and stack.training:
            read_positions = mask.bool()
        if read_positions is not None:
            real = None if mask is None else mask.to(read_positions)
            needed = needed_up_to(read_positions, real)
            kept = KeptTokens.find(needed, read=read_positions)  # (if padding has a label, all tokens are computed)
    elif documents is not None and not is_traced(documents) and takes_bounds(stack, empty_states(stack, given)):
        # (Other kernels tell documents apart by a mask.)
        kept = KeptTokens.find(torch.ones_like(documents) if mask is None else mask, read_positions, documents)
    return kept if kept is not None and stack.computes_only(kept) else None


def decoder_layouts(
    stack, given: torch.Tensor, attention_mask: object, cache: Cache | None, documents, kept: KeptTokens | None
) -> dict[str, Layout]:
    """Who attends to whom, for each type of layer."""
    types = stack.layer_types
    has_empty_keys = not (cache is None or isinstance(cache, DynamicCache))  # a static cache: a mask has to hide them
    is_step = given.shape[1] == 1 and not has_empty_keys and needs_no_mask_but_for_padding(stack, given)
    if is_step and attention_mask is None:  # a single token sees itself and all before it
        return dict.fromkeys(types, EVERYTHING)
    like = empty_states(stack, given)
    if is_step and is_pad_mask(attention_mask) and "linear_attention" not in types:
        return dict.fromkeys(types, Layout(as_attention_reads(stack.config, shown_keys(attention_mask, like), like)))
    if isinstance(attention_mask, dict):  # `generate` makes masks beforehand for a compiled step
        if missing := {*types} - {*attention_mask}:
            raise ValueError(f"{stack.argument_prefix}attention_mask has no mask for layers of {', '.join(missing)}.")
        return {each: Layout(as_attention_reads(stack.config, mask, like)) for each, mask in attention_mask.items()}
    has_window = "sliding_attention" in types and not is_traced(given)  # (a graph does not know how long a cache is)
    if has_window and cache is not None and isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 4:
        keys = cache.get_mask_sizes(given.shape[1], types.index("sliding_attention"))[0]
        if attention_mask.shape[3] != keys:
            raise ValueError(
                f"{stack.argument_prefix}attention_mask covers {attention_mask.shape[3]} keys, and the cache holds "
                f"{keys} for layers with a window: it should be a dict, with a mask for each type of layer."
            )
    in_blocks = has_window and (cache is None or (isinstance(cache, DynamicCache) and cache.get_seq_length() == 0))
    mask_options = {CACHE: cache}  # (no `shows_weights`: where outputs of layers are asked for, nothing is left out)
    return find_layouts(stack, like, attention_mask, kept, documents=documents, in_blocks=in_blocks, **mask_options)


def needed_up_to(read_positions: torch.BoolTensor, real: torch.BoolTensor | None = None) -> torch.BoolTensor:
    """`(batch, length)`, true at `real` positions up to the last one read in their row: they see nothing behind it."""
    needed = read_positions.flip(1).cumsum(dim=1).flip(1) > 0
    real = torch.ones_like(needed) if real is None else real
    return real & (needed | (real.cumsum(dim=1) == 1))  # and the first real one: no row may be empty
