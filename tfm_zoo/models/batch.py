"""The entrance: checks a caller's inputs once, counts positions, drops padding, and makes masks for the core."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import Cache, EncoderDecoderCache

from .compat import create_bidirectional_mask, create_bidirectional_sliding_window_mask
from .kernels import FAR, Window
from .layout import Layout, Padding, attention_mode, find_padding, is_traced, marks_padding
from .linear_attention import padding_mask
from .positions import TfmSinusoidalPositions

MASKS = {
    "full_attention": create_bidirectional_mask,
    "sliding_attention": create_bidirectional_sliding_window_mask,
    "linear_attention": padding_mask,
}
BLOCKS_FROM = 4  # inputs of at least this many windows are attended to in blocks
POSITIONS = "the positions (max_position_embeddings, for prompt and new tokens together)"


class Batch(NamedTuple):
    """What the core reads. (A tuple, since device hooks move the tensors in a tuple.)

    Ids and embeddings have the shapes that the caller gave them or, where `padding` was dropped, `(1, real tokens)`.

    Args:
        layouts: who attends to whom, for each kind of layer.
        padding: what was dropped.
        cache: keys and values of earlier positions.
        encoder_cache: `cache` and the keys and values of the source.
        use_cache: whether the caller gets the cache.
    """

    input_ids: torch.LongTensor | None
    inputs_embeds: torch.Tensor | None
    token_type_ids: torch.LongTensor | None
    position_ids: torch.LongTensor
    layouts: dict[str, Layout]
    padding: Padding | None = None
    cache: Cache | None = None
    encoder_cache: EncoderDecoderCache | None = None
    use_cache: bool = False

    def restore(self, outputs):
        """Restores padding in the hidden states of the core's outputs, as zeros."""
        if self.padding is not None:
            outputs.last_hidden_state = self.padding.restore(outputs.last_hidden_state)
            if outputs.hidden_states is not None:
                outputs.hidden_states = tuple(
                    None if states is None else self.padding.restore(states) for states in outputs.hidden_states
                )
        return outputs


def encoder_batch(
    model,
    input_ids: torch.LongTensor | None,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.LongTensor | None,
    position_ids: torch.LongTensor | None,
    inputs_embeds: torch.Tensor | None,
    read_positions: torch.BoolTensor | None = None,
    reads_first: bool = False,
    **kwargs,
) -> Batch:
    """Makes an encoder's batch from the inputs of [`TfmBertModel`].

    `reads_first`: whether the caller reads the first position of each sequence, even if it is padding.
    """
    config, inputs = model.config, one_of(input_ids, inputs_embeds)
    shape = check_inputs(config, inputs, attention_mask, token_type_ids, position_ids)
    position_range = None
    if position_ids is None:
        position_ids, position_range = count_positions(config, inputs)
    check_ids(model, input_ids, token_type_ids, position_ids, position_range)
    if isinstance(attention_mask, torch.Tensor):
        attention_mask = attention_mask.to(inputs.device)

    padding = None
    # Restored hidden states are copies, which gradients do not pass through.
    if config.skip_padding and not (torch.is_grad_enabled() and asks_for(config, kwargs, "output_hidden_states")):
        padding = unread_padding(attention_mask, read_positions, reads_first)
    if padding is not None:
        mode = attention_mode(config, inputs.device, asks_for(config, kwargs, "output_attentions"))
        padding = padding._replace(mode=mode)
    states = empty_states(model, inputs, shape)
    layouts = {config.layer_type: encoder_layout(config, states, attention_mask, padding)}
    tensors = (input_ids, inputs_embeds, token_type_ids, position_ids)
    if padding is not None:
        tensors = tuple(None if tensor is None else padding.drop(tensor) for tensor in tensors)
    return Batch(*tensors, layouts, padding)


def asks_for(config, options: dict, name: str) -> bool:
    """Whether the caller, or else the configuration, asks for an output."""
    return getattr(config, name) if options.get(name) is None else options[name]


def encoder_layout(
    config, states: torch.Tensor, attention_mask: torch.Tensor | None, padding: Padding | None
) -> Layout:
    """Who attends to whom in an encoder; `states` has the shape, type and device of the padded hidden states."""
    if config.layer_type == "sliding_attention":
        if (window := find_window(config, states, attention_mask)) is not None:
            return Layout(window=window, padding=padding)
    elif padding is not None and padding.mode != "padded":
        return Layout(padding=padding)
    mask = MASKS[config.layer_type](config=config, inputs_embeds=states, attention_mask=attention_mask)
    return Layout(mask=mask, padding=padding)


def find_window(
    config, states: torch.Tensor, attention_mask: torch.Tensor | None, is_causal: bool = False
) -> Window | None:
    """The window for attention in blocks; `None` if a mask is needed or as fast: except with sdpa, in a graph, and for
    short inputs.

    Args:
        states: `(batch, length, ...)`.
        attention_mask: `(batch, length)`, 0 at padding; blocks cannot use any other.
        is_causal: whether the window ends at the position itself, which it then counts.
    """
    size, length = config.sliding_window, states.shape[1]
    if config._attn_implementation != "sdpa" or is_traced(states) or length < BLOCKS_FROM * size:
        return None
    if attention_mask is not None and not (marks_padding(attention_mask) and attention_mask.shape[1] == length):
        return None
    positions = torch.arange(length, dtype=torch.int32, device=states.device).unsqueeze(0)
    if attention_mask is not None:
        positions = positions.where(attention_mask.to(states.device).bool(), FAR)
    return Window(positions, size - 1, 0) if is_causal else Window(positions, size, size)


def unread_padding(
    attention_mask: torch.Tensor | None, read_positions: torch.BoolTensor | None, reads_first: bool
) -> Padding | None:
    """The padding of a batch; `None` if there is none, or if the caller reads hidden states at it."""
    padding = find_padding(attention_mask)
    if padding is None or (reads_first and not attention_mask[:, 0].all()):
        return None
    if read_positions is not None and read_positions.to(attention_mask.device)[attention_mask == 0].any():
        return None
    return padding


def count_positions(
    config, inputs: torch.Tensor, seen: int | torch.Tensor = 0
) -> tuple[torch.LongTensor, tuple[int, int] | None]:
    """Default positions `(batch or 1, length)`, with the first and the last if they are known without reading values.

    All tokens are counted, after the `seen` ones in a cache. With `config.position_ids_from_padding` real tokens count
    from `pad_token_id + 1`, and padding has position `pad_token_id`; embeddings are all taken for real tokens.
    """
    if config.position_ids_from_padding and inputs.dim() == 2:
        real = inputs != config.pad_token_id
        return (real.cumsum(dim=1) + seen) * real + config.pad_token_id, None
    length = inputs.shape[1]
    first = seen + config.pad_token_id + 1 if config.position_ids_from_padding else seen
    if isinstance(first, int):
        return torch.arange(first, first + length, device=inputs.device).unsqueeze(0), (first, first + length - 1)
    return (torch.arange(length, device=inputs.device) + first).unsqueeze(0), None


def empty_states(model, inputs: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    """`(batch, length, 0)`, with the type and device of the hidden states, as mask functions need it."""
    dtype = model.embeddings.embed_tokens.weight.dtype if inputs.dim() == 2 else inputs.dtype
    return inputs.new_empty(*shape, 0, dtype=dtype if dtype.is_floating_point else model.dtype)


def one_of(input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, prefix: str = "") -> torch.Tensor:
    """The input that the caller passed; `prefix` precedes its name in errors."""
    if (input_ids is None) == (inputs_embeds is None):
        number = "neither" if input_ids is None else "both"
        raise ValueError(f"Exactly one of {prefix}input_ids and {prefix}inputs_embeds is needed; {number} given.")
    return input_ids if inputs_embeds is None else inputs_embeds


def check_inputs(config, inputs, attention_mask, token_type_ids, position_ids, seen=0, has_cache=False, prefix=""):
    """Returns (batch, length) of the inputs; raises a `ValueError` where shapes do not fit each other.

    Args:
        seen: number of positions in a cache, which the mask covers too. `None`: only the device knows.
        has_cache: whether a 4-D mask may cover more keys: those of a static, sliding or paged cache.
    """
    shape, is_ids = tuple(inputs.shape), not inputs.is_floating_point()
    if is_ids and len(shape) != 2:
        raise ValueError(f"{prefix}input_ids of shape {shape} should be of shape (batch, length).")
    if not is_ids and (len(shape) != 3 or shape[2] != config.hidden_size):
        expected = f"(batch, length, {config.hidden_size}), the last hidden_size"
        raise ValueError(f"{prefix}inputs_embeds of shape {shape} should be of shape {expected}.")
    batch, length = shape[:2]
    if batch == 0 or length == 0:
        raise ValueError(f"Inputs of shape {shape} hold no token.")
    if isinstance(attention_mask, torch.Tensor) and seen is not None and attention_mask.shape != (batch, seen + length):
        check_full_mask(config, attention_mask, batch, length, seen, has_cache, prefix)
    for name, ids in (("token_type_ids", token_type_ids), ("position_ids", position_ids)):
        # Not `in`: in a graph, sizes may be symbols, which have no hash.
        if ids is not None and ids.shape != (batch, length) and ids.shape != (1, length):
            expected = f"({batch}, {length}), as the inputs"
            raise ValueError(f"{prefix}{name} of shape {tuple(ids.shape)} should be of shape {expected}.")
    return batch, length


def check_full_mask(
    config, attention_mask: torch.Tensor, batch: int, length: int, seen: int, has_cache: bool, prefix: str
) -> None:
    """Raises a `ValueError` for a mask that is not `(batch or 1, heads or 1, length or 1, seen + length)`."""
    shape, whole = tuple(attention_mask.shape), seen + length
    sizes = ((1, batch), (1, config.num_attention_heads), (1, length))
    fits = len(shape) == 4 and all(size in allowed for size, allowed in zip(shape[:3], sizes, strict=True))
    if not fits or not (shape[3] == length or (has_cache and shape[3] > length)):
        cached = f" and the {seen} positions in the cache" if seen else ""
        raise ValueError(
            f"{prefix}attention_mask of shape {shape} does not fit the inputs{cached}: it should be of shape "
            f"({batch}, {whole}), or ({batch}, 1, {length}, {whole})."
        )
    if config.has_linear_attention:
        raise ValueError(
            f"{prefix}attention_mask of shape {shape} says who attends to whom, and linear attention compares no two "
            f"positions: it should be of shape ({batch}, {whole}), 0 at padding."
        )


def check_ids(model, input_ids, token_type_ids, position_ids, position_range: tuple[int, int] | None) -> None:
    """Raises a `ValueError` for an id without a row in its table; `position_range` as from [`count_positions`]."""
    tables, config, prefix = model.embeddings, model.config, model.argument_prefix
    # The table may have been resized; wrapped in an adapter, it has no `num_embeddings`.
    rows, vocabulary = getattr(tables.embed_tokens, "num_embeddings", model.vocab_size), f"{prefix}vocab_size"
    check_values(f"{prefix}input_ids", input_ids, rows, f"the vocabulary ({vocabulary})")
    if tables.token_types_as_tokens:
        check_values("token_type_ids", token_type_ids, rows, f"the vocabulary ({vocabulary})")
    elif tables.embed_token_types is not None:
        check_values("token_type_ids", token_type_ids, config.type_vocab_size, "the segments (type_vocab_size)")
    if tables.embed_positions is not None:
        is_learned = not isinstance(tables.embed_positions, TfmSinusoidalPositions)
        rows = config.max_position_embeddings if is_learned else sys.maxsize
        check = check_values if position_range is None else check_range
        check(f"{prefix}position_ids", position_ids if position_range is None else position_range, rows, POSITIONS)


def check_values(name: str, ids: torch.Tensor | None, size: int, table: str, ignored: int | None = None) -> None:
    """Raises a `ValueError` for ids outside 0 to `size - 1` that are not `ignored`.

    Only on a CPU: elsewhere it would wait for the device, which refuses such ids itself.
    """
    if ids is None or ids.device.type != "cpu" or is_traced(ids):
        return
    if ignored is not None:
        ids = ids[ids != ignored]
    if ids.numel():
        check_range(name, [value.item() for value in ids.aminmax()], size, table)


def check_range(name: str, ends: Sequence[int], size: int, table: str) -> None:
    """Raises a `ValueError` unless the lowest and the highest id, `ends`, lie in 0 to `size - 1`."""
    low, high = ends
    if low < 0 or high >= size:
        raise ValueError(
            f"{name} holds {low if low < 0 else high}, which is outside {table}: ids go from 0 to {size - 1}."
        )
