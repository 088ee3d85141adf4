"""The entrance of decoders: like [`encoder_batch`] for encoders, with a cache."""

import torch
from torch.nn import functional as F
from transformers import Cache, DynamicCache

from .batch import (
    Batch,
    Tokens,
    check_ids,
    check_inputs,
    check_positions,
    count_positions,
    drop_padding,
    empty_states,
    find_window,
    has_hooks,
    shows_layers,
)
from .cache import add_states, new_cache
from .compat import CacheLayerMixin, create_causal_mask, create_sliding_window_causal_mask
from .layers import is_checkpointing
from .layout import (
    EVERYTHING,
    Layout,
    Padding,
    as_attention_reads,
    find_padding,
    find_unread_end,
    is_traced,
    marks_padding,
    together,
    up_to_last,
)
from .linear_attention import padding_mask
from .positions import follows_length

DECODER_MASKS = {
    "full_attention": create_causal_mask,
    "sliding_attention": create_sliding_window_causal_mask,
    "linear_attention": padding_mask,
}


def decoder_batch(
    model,
    tokens: Tokens,
    attention_mask: torch.Tensor | dict[str, torch.Tensor] | None,
    past_key_values: Cache | None,
    use_cache: bool | None = None,
    read_positions: torch.Tensor | None = None,
    **kwargs,
) -> Batch:
    """Makes the batch of a causal [`TfmStack`] from the inputs of [`TfmGPTModel`].

    `read_positions`: `(batch, length)`, true where the caller reads the last hidden state. `None`: everywhere.

    Raises:
        ValueError: for inputs that do not fit each other, the cache or the model.
    """
    config, passed_positions = model.config, tokens.position_ids
    inputs = tokens.inputs
    past_key_values = unless_checkpointing(model, past_key_values)
    seen = count_cached(model, past_key_values, batch=inputs.shape[0])
    # (Even without a cache here: continuous batching keeps one of its own.)
    check_inputs(model, tokens, attention_mask, seen=seen, is_decoder=True)
    # As in transformers, sequences are packed into a row only if there is neither a mask nor a cache.
    packed = positions_if_packed(passed_positions) if attention_mask is None and past_key_values is None else None
    is_packed = packed is not None and not is_traced(packed)
    if is_packed and "linear_attention" in model.layer_types:
        raise ValueError(
            f"{model.argument_prefix}position_ids begin anew within a row: the state of linear attention would carry "
            "one sequence into the next. They should be rows of their own, padded."
        )
    check_ids(model, tokens)
    is_counted = config.position_ids_from_mask and marks_padding(attention_mask)
    key_positions = count_in_mask(attention_mask, inputs) if is_counted else None
    if passed_positions is None:
        positions = default_positions(model, inputs, attention_mask, past_key_values, seen, key_positions)
        tokens = tokens._replace(position_ids=positions)
    if config.position_ids_from_mask and isinstance(attention_mask, dict):
        key_positions = count_seen(attention_mask.get("full_attention"), inputs)
    use_cache = wants_cache(model, use_cache, is_packed)
    if use_cache and past_key_values is None:
        past_key_values = new_cache(config)

    padding = None
    if passed_positions is None and past_key_values is None and not shows_layers(config, kwargs):
        padding = unread_positions(model, attention_mask, read_positions)
    if padding is not None:
        tokens, padding = drop_padding(model, tokens, padding)
    layouts = decoder_layouts(model, inputs, attention_mask, past_key_values, packed, padding)
    returned_cache = past_key_values if use_cache else None
    return Batch(tokens, layouts, padding, past_key_values, returned_cache, key_positions=key_positions)


def default_positions(
    model,
    inputs: torch.Tensor,
    attention_mask: torch.Tensor | dict[str, torch.Tensor] | None,
    past_key_values: Cache | None,
    seen: int | None,
    key_positions: torch.LongTensor | None,
) -> torch.LongTensor:
    """Positions `(batch or 1, length)` of the inputs, after those in the cache.

    Args:
        seen: the number of positions in the cache. `None`: only the device knows.
        key_positions: `(batch, seen + length)`, those of all tokens, if they are counted in the mask.
    """
    length = inputs.shape[1]
    if key_positions is not None:
        return check_positions(model, key_positions[:, -length:])
    if model.config.position_ids_from_padding and past_key_values is not None and marks_padding(attention_mask):
        seen = attention_mask[:, :-length].bool().sum(dim=1, keepdim=True)
    elif seen is None:
        seen = past_key_values.get_seq_length()
    return count_positions(model, inputs, seen)


def decoder_layouts(
    model,
    inputs: torch.Tensor,
    attention_mask: torch.Tensor | dict[str, torch.Tensor] | None,
    past_key_values: Cache | None,
    packed: torch.LongTensor | None,
    padding: Padding | None,
) -> dict[str, Layout]:
    """Who attends to whom, for each kind of layer; `packed` are [`positions_if_packed`]."""
    states = empty_states(model, inputs)
    if isinstance(attention_mask, dict):  # `generate` makes masks beforehand for a compiled step
        masks = attention_mask.items()
        return {kind: Layout(as_attention_reads(model.config, mask, states.dtype)) for kind, mask in masks}
    if inputs.shape[1] == 1 and sees_all(model, inputs, past_key_values, attention_mask):
        return dict.fromkeys(model.layer_types, EVERYTHING)  # a single token sees itself and all before it
    if padding is not None and padding.mode == "together":
        return dict.fromkeys(model.layer_types, together(padding, padding, states.dtype, is_causal=True))
    if padding is not None and padding.mode != "padded":
        attention_mask = None  # no padding is left to be hidden
    masking = (states, as_attention_reads(model.config, attention_mask, states.dtype), past_key_values, packed)
    layouts = {kind: decoder_layout(model.config, kind, *masking) for kind in dict.fromkeys(model.layer_types)}
    return layouts if padding is None else {kind: each._replace(padding=padding) for kind, each in layouts.items()}


def count_in_mask(attention_mask: torch.Tensor, inputs: torch.Tensor) -> torch.LongTensor:
    """Positions `(batch, seen + length)`, counted over the real tokens of a padding mask, and -1 at padding."""
    real = attention_mask.to(inputs.device).long()
    return real.cumsum(dim=1) * real - 1


def count_seen(mask: torch.Tensor | None, inputs: torch.Tensor) -> torch.LongTensor | None:
    """[`count_in_mask`] of the keys that the last query sees, by a mask `(batch, 1, queries, keys)`; `None` if the mask
    is no tensor."""
    if not isinstance(mask, torch.Tensor):
        return None
    last = mask[:, 0, -1]
    return count_in_mask(last if last.dtype == torch.bool else last == 0, inputs)


def unread_positions(model, attention_mask, read_positions: torch.Tensor | None) -> Padding | None:
    """The padding of a batch and, as no earlier position sees them, the positions of each row after the last one that
    is read. `None` if there are none, or if the caller or a hook reads hidden states of padding."""
    if read_positions is None or not model.config.skip_padding or is_traced(read_positions):
        return None
    if not (attention_mask is None or marks_padding(attention_mask)):
        return None
    if attention_mask is None:
        padding = find_unread_end(read_positions)
    else:
        real = attention_mask.to(read_positions)
        is_first = real & (real.cumsum(dim=1) == 1)  # a row without any position would have no output
        is_read = (read_positions & ~real).any()
        padding = None if is_read else find_padding(up_to_last(read_positions) & real | is_first)
    if padding is None or follows_length(model.rotary_emb, padding.shape[1]):
        return None
    return None if has_hooks(*model._modules.values()) else padding


def decoder_layout(
    config,
    layer_type: str,
    states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    past_key_values: Cache | None,
    packed: torch.LongTensor | None,
) -> Layout:
    """Who attends to whom in a decoder; `states` are [`empty_states`], `packed` are [`positions_if_packed`]."""
    # Attention runs in blocks only without earlier positions in a cache and without packed sequences.
    window = None
    if layer_type == "sliding_attention" and is_new(past_key_values) and packed is None:
        window = find_window(config, states, attention_mask, is_causal=True)
    if window is not None:
        return Layout(window=window)
    return Layout(
        DECODER_MASKS[layer_type](
            config=config,
            inputs_embeds=states,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_ids=packed,
        )
    )


def sees_all(model, inputs: torch.Tensor, past_key_values: Cache | None, attention_mask: torch.Tensor | None) -> bool:
    """Whether a single new token sees the whole cache, so that it needs no mask."""
    if model.config._attn_implementation not in ("eager", "sdpa") or "sliding_attention" in model.layer_types:
        return False
    if is_traced(inputs) or not (past_key_values is None or isinstance(past_key_values, DynamicCache)):
        return False
    return attention_mask is None or (marks_padding(attention_mask) and bool(attention_mask.all()))


def wants_cache(model, use_cache: bool | None, is_packed: bool = False) -> bool:
    """Whether to fill and return a cache; `use_cache` is the caller's choice, or `None`."""
    if is_checkpointing(model):
        return False
    if use_cache is None:
        # Training does not decode, and a cache would hold all keys and values a second time.
        return not model.training and not is_packed and model.config.use_cache
    return use_cache


def unless_checkpointing(model, past_key_values: Cache | None) -> Cache | None:
    """The cache; with gradient checkpointing `None` for an empty one, and a `ValueError` for any other."""
    if past_key_values is None or not is_checkpointing(model):
        return past_key_values
    check_is_cache(past_key_values)
    if past_key_values.get_seq_length():
        raise ValueError(
            f"past_key_values holds {past_key_values.get_seq_length()} positions, which blocks that gradient "
            "checkpointing runs twice cannot read: call gradient_checkpointing_disable(), or pass no cache."
        )
    return None


def is_new(past_key_values: Cache | None) -> bool:
    """Whether attention reads only the positions of this pass: there is no cache, or an empty one that grows."""
    return past_key_values is None or (
        isinstance(past_key_values, DynamicCache) and past_key_values.get_seq_length() == 0
    )


def begins(position_ids: torch.LongTensor) -> torch.BoolTensor:
    """`(batch, length)`: where a new sequence begins within a row, into which several may be packed: where positions do
    not rise. One that jumps forward goes on with its sequence."""
    return F.pad(position_ids[:, 1:] <= position_ids[:, :-1], (1, 0))


def positions_if_packed(position_ids: torch.LongTensor | None) -> torch.LongTensor | None:
    """The positions of each token within its own sequence, if several are packed into a row (a graph, in which nobody
    can tell, counts them too); or else `None`."""
    if position_ids is None or position_ids.shape[1] < 2:
        return None
    is_first = begins(position_ids)
    if not is_traced(position_ids) and not is_first.any():
        return None
    places = torch.arange(position_ids.shape[1], device=position_ids.device)
    return places - (places * is_first).cummax(dim=1).values


def count_cached(model, past_key_values: Cache | None, batch: int) -> int | None:
    """Checks a cache, and returns the number of positions in it; `None` if only the device knows that.

    Raises:
        ValueError: for a cache of another model or another number of sequences.
    """
    if past_key_values is None:
        return 0
    check_is_cache(past_key_values)
    if "linear_attention" in model.layer_types:
        add_states(past_key_values, model.config)
    if torch.compiler.is_compiling():
        return None
    layers, expected = past_key_values.layers, (model.depth, *model.cache_sizes)
    sizes = sizes_of(layers[0]) if layers else None
    if sizes is None:
        stored, fits = (len(layers), "?", "?"), len(layers) in (0, expected[0])
    else:
        sequences, heads, head_dim = sizes
        stored = (len(layers), heads, head_dim)
        # PEFT's prefix has as many layers as the encoder; a decoder with fewer layers reads the first of them.
        has_depth = stored[0] == expected[0] or stored[0] == model.config.num_hidden_layers > expected[0]
        # Tensor parallelism leaves some of the heads to other processes.
        fits = has_depth and expected[1] % heads == 0 and head_dim == expected[2]
        if fits and sequences not in (0, batch):
            raise ValueError(f"past_key_values holds {sequences} sequences, and the inputs are {batch}.")
    if not fits:
        raise ValueError(
            "past_key_values is the cache of another model: (layers, key-value heads, head_dim) are "
            f"({', '.join(map(str, stored))}) in it, and {expected} in this model."
        )
    seen = past_key_values.get_seq_length()
    return seen if isinstance(seen, int) else None


def check_is_cache(past_key_values: object) -> None:
    """Raises a `ValueError` for what is neither `None` nor one of transformers' caches."""
    if past_key_values is not None and not isinstance(past_key_values, Cache):
        raise ValueError(
            f"past_key_values is a {type(past_key_values).__name__}; it should be a Cache of transformers, such as "
            "DynamicCache(config=model.config)."
        )


def sizes_of(layer: CacheLayerMixin) -> tuple[int, int, int] | None:
    """Sequences (0: none yet), heads and head size in a layer of a cache; `None` for a layer without tensors."""
    state = getattr(layer, "recurrent_states", {}).get(0)
    if state is not None:  # (batch, heads, head_dim, head_dim + 1)
        return len(state) if layer.has_previous_state[0] else 0, state.shape[1], state.shape[2]
    keys = getattr(layer, "keys", None)
    if keys is not None and keys.dim() == 4:  # (batch, heads, length, head_dim)
        return len(keys) if keys.shape[2] else 0, keys.shape[1], keys.shape[3]
    return None
