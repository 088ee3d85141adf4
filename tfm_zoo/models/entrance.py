"""The entrance of encoders, and what decoders share: first which tokens are computed, then who attends to whom.

Padding is dropped before the first block and restored after the last: projections, feed-forwards and norms run on the
tokens that are kept, laid end to end in one row. Only attention has to know where each sequence begins and ends.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from .batch import EVERYTHING, FAR, Batch, KeptTokens, Layout, Tokens, Window
from .compat import create_bidirectional_mask, create_bidirectional_sliding_window_mask
from .inputs import check_inputs, count_positions, is_traced, marks_padding
from .linear_attention import padding_mask

ENCODER_MASKS = {
    "full_attention": create_bidirectional_mask,
    "sliding_attention": create_bidirectional_sliding_window_mask,
    "linear_attention": padding_mask,
}
#: packages whose hooks take hidden states of any shape
LIBRARIES = ("torch.", "transformers.", "accelerate.", "deepspeed.", "peft.")
BLOCKS_FROM = 4  # attention runs in blocks for inputs at least this many windows long


def encoder_batch(model, tokens: Tokens, attention_mask, options: dict, read=None, reads_first=False) -> Batch:
    """Makes an encoder's batch from the inputs of [`TfmBertModel`]. `read` are its `read_positions`; `reads_first`: the
    caller reads the first position of each sequence, even if it is padding."""
    if options.get("past_key_values") is not None:
        raise ValueError("past_key_values: an encoder has no cache. PEFT's prefix tuning needs one; use prompt tuning.")
    check_inputs(model, tokens, attention_mask)
    given, mask = tokens.ids_or_embeddings, attention_mask
    if isinstance(mask, torch.Tensor):
        mask = mask.to(given.device)
    if tokens.position_ids is None:
        tokens = tokens._replace(position_ids=count_positions(model, given))
    kept, states = unread_padding(model, mask, read, reads_first, options), empty_states(model, given)
    kinds, make = dict.fromkeys(model.layer_types), partial(encoder_layout, model.config, states)
    if kept is None:
        return Batch(tokens, {kind: make(kind, mask) for kind in kinds})
    shows_weights = asks_for(model.config, options, "output_attentions")
    layouts = {kind: lay_out(model, kind, make, mask, states, kept, shows_weights) for kind in kinds}
    return Batch(Tokens(*(each if each is None else keep(each, kept) for each in tokens)), layouts, kept)


def restore_outputs(outputs, kept: KeptTokens | None):
    """The core's outputs with hidden states of the whole padded batch, zero where tokens were not kept."""
    if kept is not None:
        outputs.last_hidden_state, states = restore(outputs.last_hidden_state, kept), outputs.hidden_states
        if states is not None:
            outputs.hidden_states = tuple(None if each is None else restore(each, kept) for each in states)
    return outputs


def asks_for(config, options: dict, name: str) -> bool:
    """Whether the caller, or else the configuration, asks for an output."""
    return getattr(config, name, False) if options.get(name) is None else options[name]


def empty_states(model, given: torch.Tensor) -> torch.Tensor:
    """`(batch, length, 0)`, with the dtype and device of the hidden states of these ids or embeddings, which is all
    that mask functions read."""
    dtype = given.dtype if given.is_floating_point() else model.embeddings.embed_tokens.weight.dtype
    return given.new_empty(*given.shape[:2], 0, dtype=dtype if dtype.is_floating_point else model.dtype)


def unread_padding(model, attention_mask, read, reads_first: bool, options: dict) -> KeptTokens | None:
    """The real tokens of a batch; `None` if they are all, or if the caller or a hook reads hidden states of others."""
    # A caller who asks for hidden states gets copies with the padding restored, to which no gradient would flow.
    is_copied = torch.is_grad_enabled() and asks_for(model.config, options, "output_hidden_states")
    kept = find_kept(attention_mask) if model.config.skip_padding and not is_copied else None
    if kept is None or (reads_first and not attention_mask[:, 0].all()) or has_hooks(*model._modules.values()):
        return None
    is_read = read is not None and read.to(attention_mask.device)[attention_mask == 0].any()
    return None if is_read else kept


def find_kept(attention_mask: torch.Tensor | None) -> KeptTokens | None:
    """The real tokens by a mask `(batch, length)`, 0 at padding. `None` if all tokens are kept, as they are in a graph,
    and where a sequence has no real token (the official classes define an output for it)."""
    if not marks_padding(attention_mask) or is_traced(attention_mask):
        return None
    real = attention_mask.bool()
    lengths = real.sum(dim=1).tolist()
    if min(lengths) == 0 or min(lengths) == real.shape[1]:
        return None
    return KeptTokens(real.flatten().nonzero().flatten(), tuple(real.shape), lengths)


def has_hooks(*parts: nn.Module | None) -> bool:
    """Whether these modules, or parts of them, carry hooks other than those of `LIBRARIES`. Such a hook expects what
    the official classes pass it: padded batches with all positions."""
    queue = [*parts]  # `modules()` would take five times as long
    for part in queue:  # the loop also visits what is appended
        if part is None:
            continue
        queue += part._modules.values()
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks:
            hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
            # A method written in C has no `__module__`, or `None`.
            modules = (getattr(hook, "__module__", None) or "" for kind in hooks for hook in kind.values())
            if not all(module.startswith(LIBRARIES) for module in modules):
                return True
    return False


def keep(states: torch.Tensor, kept: KeptTokens) -> torch.Tensor:
    """`(batch or 1, length, ...)` to `(1, tokens, ...)`."""
    flat = states.expand(*kept.shape, *states.shape[2:]).flatten(0, 1)
    return flat.index_select(0, kept.indices.to(flat.device)).unsqueeze(0)


def restore(states: torch.Tensor, kept: KeptTokens) -> torch.Tensor:
    """`(1, tokens, ...)` to `(batch, length, ...)`, zero where tokens were not kept."""
    batch, length = kept.shape
    padded = states.new_zeros(batch * length, *states.shape[2:])
    return padded.index_copy_(0, kept.indices.to(states.device), states[0]).unflatten(0, (batch, length))


def lay_out(
    model,
    kind: str,
    make: Callable[[str, torch.Tensor | None], Layout],
    mask: torch.Tensor | None,
    states: torch.Tensor,
    kept: KeptTokens,
    shows_weights: bool = False,
) -> Layout:
    """Who attends to whom among the tokens that are kept, in the layers of one kind. `make` makes the layout of all, of
    a kind and a mask; `shows_weights`: the caller asks for attention weights, which are those of the padded batch."""
    config, implementation = model.config, model.config._attn_implementation or "eager"
    if kind != "linear_attention" and "flash" in implementation:
        return Layout(queries=kept, keys=kept)  # a kernel for sequences laid end to end
    # On a CPU, a call for each sequence costs little and needs no mask; on a GPU it would starve the device.
    can_split = kind == "linear_attention" or implementation in ("eager", "sdpa")
    if states.device.type != "cpu" or shows_weights or not can_split:
        return make(kind, mask)._replace(queries=kept, keys=kept)
    # No padding is left to be hidden. Eager attention does not know what is causal; others see all that they should.
    is_limited = kind == "sliding_attention" or (implementation == "eager" and model.is_causal)
    layout = apart(make(kind, None) if is_limited else EVERYTHING, kept)
    # A single call costs less for few tokens, but rounds differently in each batch: it is for training alone.
    has_limits = model.position_bias is not None or set(model.layer_types) != {"full_attention"}
    if model.training and not has_limits and are_few(config, kept, kept):
        return layout._replace(mask=together(kept, kept, states.dtype, is_causal=model.is_causal))
    return layout


def together(queries: KeptTokens, keys: KeptTokens, dtype: torch.dtype, is_causal: bool = False) -> torch.Tensor:
    """A mask `(1, 1, queries, keys)` for the tokens of two batches, each in one row, in which a token sees those of its
    own sequence. `dtype` is that of the model."""
    sees = (queries.indices // queries.shape[1])[:, None] == keys.indices // keys.shape[1]
    sees = sees.tril() if is_causal else sees
    # Without an error, sdpa misreads a mask in single precision if its queries are in double precision.
    return added_to_scores(sees[None, None], torch.promote_types(dtype, torch.float))


def are_few(config, queries: KeptTokens, keys: KeptTokens) -> bool:
    """Whether comparing all tokens of two batches takes no longer than calling a kernel for each sequence. (A call
    costs about as much as 131,072 products, as measured on two cores.)"""
    return len(queries.indices) * len(keys.indices) * config.hidden_size <= len(queries.lengths) << 17


def apart(layout: Layout, kept: KeptTokens) -> Layout:
    """A layout of a padded batch, cut into one for each sequence of the tokens that are kept."""
    parts, columns = [EVERYTHING] * len(kept.lengths), columns_of(kept)
    if layout.window is not None:  # distances are those in the padded batch
        parts = [Layout(window=layout.window._replace(positions=places.unsqueeze(0))) for places in columns]
    elif layout.mask is not None:
        masks = layout.mask.expand(len(parts), -1, -1, -1).split(1)
        parts = [Layout(among(mask, places)) for mask, places in zip(masks, columns, strict=True)]
    return Layout(queries=kept, keys=kept, parts=parts)


def columns_of(kept: KeptTokens) -> tuple[torch.LongTensor, ...]:
    """The places of each sequence's tokens in the padded batch."""
    return (kept.indices % kept.shape[1]).split(kept.lengths)


def among(mask: torch.Tensor, places: torch.LongTensor) -> torch.Tensor:
    """The part of a mask `(1, heads, length, length)` in which some positions look at each other."""
    first, last = int(places[0]), int(places[-1]) + 1
    if last - first == len(places):
        return mask[:, :, first:last, first:last]
    return mask[:, :, places][..., places]


def encoder_layout(config, states: torch.Tensor, kind: str, mask: torch.Tensor | None) -> Layout:
    """Who attends to whom in an encoder; `states` are [`empty_states`]."""
    mask = mask if mask is None or marks_padding(mask) else pairs_as_read(config, mask, states)
    window = find_window(config, states, mask) if kind == "sliding_attention" else None
    if window is not None:
        return Layout(window=window)
    return Layout(ENCODER_MASKS[kind](config=config, inputs_embeds=states, attention_mask=mask))


def find_window(
    config, states: torch.Tensor, attention_mask: torch.Tensor | None, is_causal: bool = False
) -> Window | None:
    """The window for attention in blocks. `None` where a mask is needed, or is as fast: without sdpa, with a bias of
    positions, with a mask of pairs, in a graph, and for short inputs. `is_causal`: it ends at the position itself,
    which it then counts."""
    size, length = config.sliding_window, states.shape[1]
    if config._attn_implementation != "sdpa" or config.has_position_bias:
        return None
    if is_traced(states) or length < BLOCKS_FROM * size:
        return None
    if attention_mask is not None and not (marks_padding(attention_mask) and attention_mask.shape[1] == length):
        return None
    positions = torch.arange(length, dtype=torch.int32, device=states.device).unsqueeze(0)
    if attention_mask is not None:
        positions = positions.where(attention_mask.to(states.device).bool(), FAR)
    return Window(positions, size - 1, 0) if is_causal else Window(positions, size, size)


def added_to_scores(sees: torch.BoolTensor, dtype: torch.dtype, unseen: float = -torch.inf) -> torch.Tensor:
    """Makes a mask of numbers from one that is true where a query sees a key. (sdpa would do it in every call.)"""
    return torch.zeros(sees.shape, dtype=dtype, device=sees.device).masked_fill_(~sees, unseen)


def pairs_as_read(config, mask: object, states: torch.Tensor) -> object:
    """A mask of who attends to whom in the form that attention reads. A caller's may be of numbers to add, or true (or
    1) where a query sees a key; it may also be one that only the implementation knows."""
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4 or mask.is_floating_point():
        return mask
    sees, lowest = mask.bool(), torch.finfo(states.dtype).min
    return sees if config._attn_implementation == "sdpa" else added_to_scores(sees, states.dtype, lowest)
