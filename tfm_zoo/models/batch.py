"""The entrance: checks a caller's inputs once, counts positions, drops padding, and makes masks for the core."""

from sys import maxsize
from typing import NamedTuple

import torch
from torch import nn
from transformers import Cache

from .compat import create_bidirectional_mask, create_bidirectional_sliding_window_mask
from .kernels import FAR, Window
from .layout import Layout, Padding, attention_mode, find_padding, is_traced, marks_padding, together
from .linear_attention import padding_mask

ENCODER_MASKS = {
    "full_attention": create_bidirectional_mask,
    "sliding_attention": create_bidirectional_sliding_window_mask,
    "linear_attention": padding_mask,
}
#: packages whose hooks take hidden states of any shape
LIBRARIES = ("torch.", "transformers.", "accelerate.", "deepspeed.", "peft.")
BLOCKS_FROM = 4  # attention runs in blocks for inputs at least this many windows long
POSITIONS = "the positions (max_position_embeddings, for prompt and new tokens together)"


class Tokens(NamedTuple):
    """What is read at each position. (This and others are tuples, since device hooks move the tensors in a tuple.)

    Args:
        inputs: ids `(batch, length)`, or embeddings `(batch, length, hidden_size)`.
        token_type_ids: `(batch or 1, length)`, segments, or `None`.
        position_ids: `(batch or 1, length)`, from 0; -1 at padding if only real tokens are counted. `None`: not given.
    """

    inputs: torch.Tensor
    token_type_ids: torch.LongTensor | None = None
    position_ids: torch.LongTensor | None = None


class Batch(NamedTuple):
    """What the core reads.

    Args:
        tokens: of shape `(1, real tokens)` where `padding` was dropped.
        layouts: who attends to whom, for each kind of layer.
        padding: the padding that was dropped.
        cache: keys and values of earlier positions.
        returned_cache: the cache in the outputs.
        source: the fields of a `Source`, which the layers of an encoder-decoder's decoder read.
        key_positions: `(batch, keys)`, positions of all keys, cached ones too, if only real tokens are counted.
    """

    tokens: Tokens
    layouts: dict[str, Layout]
    padding: Padding | None = None
    cache: Cache | None = None
    returned_cache: Cache | None = None
    source: tuple = ()
    key_positions: torch.LongTensor | None = None

    def restore(self, outputs):
        """Restores padding in the hidden states of the core's outputs, as zeros."""
        if self.padding is not None:
            outputs.last_hidden_state = self.padding.restore(outputs.last_hidden_state)
            if outputs.hidden_states is not None:
                outputs.hidden_states = tuple(
                    None if states is None else self.padding.restore(states) for states in outputs.hidden_states
                )
        return outputs


def encoder_batch(model, tokens: Tokens, attention_mask, read_positions=None, reads_first=False, **kwargs) -> Batch:
    """Makes an encoder's batch from the inputs of [`TfmBertModel`]. `reads_first`: the caller reads the first position
    of each sequence, even if it is padding."""
    config, inputs = model.config, tokens.inputs
    if kwargs.get("past_key_values") is not None:
        raise ValueError("past_key_values: an encoder has no cache. PEFT's prefix tuning needs one; use prompt tuning.")
    check_inputs(model, tokens, attention_mask)
    if isinstance(attention_mask, torch.Tensor):
        attention_mask = attention_mask.to(inputs.device)
    check_ids(model, tokens)
    if tokens.position_ids is None:
        tokens = tokens._replace(position_ids=count_positions(model, inputs))
    # A caller who asks for hidden states gets copies with the padding restored, to which no gradient would flow.
    skips = config.skip_padding and not (torch.is_grad_enabled() and asks_for(config, kwargs, "output_hidden_states"))
    padding = unread_padding(model, attention_mask, read_positions, reads_first) if skips else None
    if padding is not None:
        tokens, padding = drop_padding(model, tokens, padding, asks_for(config, kwargs, "output_attentions"))
    masking = (empty_states(model, inputs), attention_mask, padding)
    layouts = {kind: encoder_layout(config, kind, *masking) for kind in dict.fromkeys(model.layer_types)}
    return Batch(tokens, layouts, padding)


def drop_padding(model, tokens: Tokens, padding: Padding, output_attentions: bool = False) -> tuple[Tokens, Padding]:
    """The tokens without the padding, and how attention runs without it."""
    padding = padding._replace(mode=attention_mode(model, padding, tokens.inputs.device, output_attentions))
    return Tokens(*(None if tensor is None else padding.drop(tensor) for tensor in tokens)), padding


def asks_for(config, options: dict, name: str) -> bool:
    """Whether the caller, or else the configuration, asks for an output."""
    return getattr(config, name, False) if options.get(name) is None else options[name]


def shows_layers(config, options: dict) -> bool:
    """Whether a caller, or else the configuration, asks for something that each layer computes."""
    return any(
        asks_for(config, options, name)
        for name in ("output_hidden_states", "output_attentions", "output_router_logits")
    )


def encoder_layout(config, layer_type: str, states: torch.Tensor, attention_mask, padding: Padding | None) -> Layout:
    """Who attends to whom in an encoder; `states` are [`empty_states`]."""
    if layer_type == "sliding_attention":
        if (window := find_window(config, states, attention_mask)) is not None:
            return Layout(window=window, padding=padding)
    elif padding is not None and padding.mode != "padded":
        return together(padding, padding, states.dtype) if padding.mode == "together" else Layout(padding=padding)
    mask = ENCODER_MASKS[layer_type](config=config, inputs_embeds=states, attention_mask=attention_mask)
    return Layout(mask=mask, padding=padding)


def find_window(
    config, states: torch.Tensor, attention_mask: torch.Tensor | None, is_causal: bool = False
) -> Window | None:
    """The window for attention in blocks. `None` where a mask is needed, or is as fast: without sdpa, with a bias of
    positions, in a graph, and for short inputs.

    Args:
        states: `(batch, length, ...)`.
        attention_mask: `(batch, length)`, 0 at padding; blocks cannot use any other.
        is_causal: whether the window ends at the position itself, which it then counts.
    """
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


def unread_padding(model, attention_mask, read_positions=None, reads_first: bool = False) -> Padding | None:
    """The padding of a batch; `None` if there is none, or if the caller or a hook reads hidden states at it."""
    padding = find_padding(attention_mask)
    if padding is None or (reads_first and not attention_mask[:, 0].all()) or has_hooks(*model._modules.values()):
        return None
    is_read = read_positions is not None and read_positions.to(attention_mask.device)[attention_mask == 0].any()
    return None if is_read else padding


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


def count_positions(model, inputs: torch.Tensor, seen: int | torch.Tensor = 0) -> torch.LongTensor:
    """Default positions `(batch or 1, length)`, from 0; raises a `ValueError` if there are more than the model has.

    All tokens are counted, after the `seen` ones in a cache; with `config.position_ids_from_padding` only real tokens,
    and padding has position -1. All `inputs_embeds` count as real tokens.
    """
    config, length = model.config, inputs.shape[1]
    if config.position_ids_from_padding and inputs.dim() == 2:
        real = inputs != config.pad_token_id
        return check_positions(model, (real.cumsum(dim=1) + seen) * real - 1)
    if not isinstance(seen, int):
        return check_positions(model, (torch.arange(length, device=inputs.device) + seen).view(-1, length))
    if model.num_positions is not None:
        check_range(f"{model.argument_prefix}position_ids", seen, seen + length - 1, model.num_positions, POSITIONS)
    return torch.arange(seen, seen + length, device=inputs.device).unsqueeze(0)


def empty_states(model, inputs: torch.Tensor) -> torch.Tensor:
    """`(batch, length, 0)`, with the dtype and device of the hidden states, which is all that mask functions read."""
    dtype = model.embeddings.embed_tokens.weight.dtype if inputs.dim() == 2 else inputs.dtype
    return inputs.new_empty(*inputs.shape[:2], 0, dtype=dtype if dtype.is_floating_point else model.dtype)


def one_of(input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, prefix: str = "") -> torch.Tensor:
    """The input that the caller passed; `prefix` precedes its name in errors."""
    if (input_ids is None) == (inputs_embeds is None):
        given = "neither is" if input_ids is None else "both are"
        raise ValueError(f"Exactly one of {prefix}input_ids and {prefix}inputs_embeds is needed; {given} given.")
    if input_ids is not None and input_ids.is_floating_point():
        raise ValueError(f"{prefix}input_ids of type {input_ids.dtype} should be integers.")
    return input_ids if inputs_embeds is None else inputs_embeds


def check_inputs(model, tokens: Tokens, attention_mask, seen: int | None = 0, is_decoder: bool = False) -> None:
    """Raises a `ValueError` where the shapes of a caller's inputs do not fit each other or the model.

    Args:
        seen: number of positions in a cache, which the mask covers too. `None`: only the device knows.
        is_decoder: a 4-D mask may then cover more keys: those of a static, sliding or paged cache.
    """
    prefix, shape = model.argument_prefix, tuple(tokens.inputs.shape)
    is_ids = not tokens.inputs.is_floating_point()
    if is_ids and len(shape) != 2:
        raise ValueError(f"{prefix}input_ids of shape {shape} should be of shape (batch, length).")
    if not is_ids and (len(shape) != 3 or shape[2] != model.input_width):
        expected = f"(batch, length, {model.input_width}): embeddings are {model.input_width} wide"
        raise ValueError(f"{prefix}inputs_embeds of shape {shape} should be of shape {expected}.")
    batch, length = shape[:2]
    if batch == 0 or length == 0:
        raise ValueError(f"Inputs of shape {shape} hold no token.")
    if isinstance(attention_mask, torch.Tensor) and seen is not None and attention_mask.shape != (batch, seen + length):
        check_full_mask(model, attention_mask, batch, length, seen, is_decoder)
    for name, ids in (("token_type_ids", tokens.token_type_ids), ("position_ids", tokens.position_ids)):
        # Not `in`: in a graph, sizes may be symbols, which have no hash.
        if ids is not None and ids.shape != (batch, length) and ids.shape != (1, length):
            raise ValueError(f"{prefix}{name} of shape {tuple(ids.shape)} should be of shape ({batch}, {length}).")


def check_full_mask(model, attention_mask: torch.Tensor, batch: int, length: int, seen: int, is_decoder: bool) -> None:
    """Raises a `ValueError` for a mask that is not `(batch or 1, heads or 1, length or 1, seen + length)`."""
    prefix, shape, whole = model.argument_prefix, tuple(attention_mask.shape), seen + length
    sizes = ((1, batch), (1, model.num_heads), (1, length))
    fits = len(shape) == 4 and all(size in allowed for size, allowed in zip(shape[:3], sizes, strict=True))
    if not fits or not (shape[3] == whole or (is_decoder and shape[3] > length)):
        cached = f" and the {seen} positions in the cache" if seen else ""
        raise ValueError(
            f"{prefix}attention_mask of shape {shape} does not fit the inputs{cached}: it should be of shape "
            f"({batch}, {whole}), or ({batch}, 1, {length}, {whole})."
        )
    if model.config.has_linear_attention:
        raise ValueError(
            f"{prefix}attention_mask of shape {shape} says who attends to whom, and linear attention compares no two "
            f"positions: it should be of shape ({batch}, {whole}), 0 at padding."
        )


def check_ids(model, tokens: Tokens) -> None:
    """Raises a `ValueError` for a token, a segment or a position that was passed and has no row in its table."""
    prefix, embeddings, segments = model.argument_prefix, model.embeddings, tokens.token_type_ids
    ids = tokens.inputs if tokens.inputs.dim() == 2 else None
    # The table may have been resized; an adapter around it has no size, and an engine's later processes have no table.
    rows = getattr(getattr(embeddings, "embed_tokens", None), "num_embeddings", model.vocab_size)
    vocabulary = f"the vocabulary ({prefix}vocab_size)"
    check_values(f"{prefix}input_ids", ids, rows, vocabulary)
    if segments is not None and embeddings.token_types_as_tokens:
        check_values("token_type_ids", segments, rows, vocabulary)
    elif segments is not None and embeddings.embed_token_types is not None:
        check_values("token_type_ids", segments, model.config.type_vocab_size, "the segments (type_vocab_size)")
    if tokens.position_ids is not None:
        check_positions(model, tokens.position_ids)


def check_positions(model, position_ids: torch.LongTensor) -> torch.LongTensor:
    """The same positions; raises a `ValueError` for one that the model does not have."""
    if model.num_positions is not None:
        at_padding = -1 if model.config.position_ids_from_padding or model.config.position_ids_from_mask else None
        check_values(f"{model.argument_prefix}position_ids", position_ids, model.num_positions, POSITIONS, at_padding)
    return position_ids


def check_values(name: str, ids: torch.Tensor | None, size: int, table: str, ignored: int | None = None) -> None:
    """Raises a `ValueError` for ids outside 0 to `size - 1` that are not `ignored`.

    Only on a CPU: elsewhere it would wait for the device, which refuses such ids itself.
    """
    if ids is None or ids.device.type != "cpu" or is_traced(ids) or not ids.numel():
        return
    ids = ids if ignored is None else ids.masked_fill(ids == ignored, 0)
    check_range(name, *(end.item() for end in ids.aminmax()), size, table)


def check_range(name: str, low: int, high: int, size: int, table: str) -> None:
    """Raises a `ValueError` unless the lowest and the highest id lie in 0 to `size - 1`."""
    if low < 0 or high >= size:
        last = "" if size == maxsize else f" to {size - 1}"
        raise ValueError(f"{name} holds {low if low < 0 else high}, which is outside {table}: ids go from 0{last}.")
