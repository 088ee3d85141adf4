"""Checks of a model's inputs, made before any work is done. Each raises a `ValueError` that names the argument."""

import torch
from transformers import Cache, EncoderDecoderCache

from .compat import CacheLayerMixin
from .unpadding import is_traced

IGNORED = -100  # the label of what is not labelled


def one_of(input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, prefix: str = "") -> torch.Tensor:
    """The one of the two that is given; `prefix` is that of their names."""
    if (input_ids is None) == (inputs_embeds is None):
        given = "neither" if input_ids is None else "both"
        raise ValueError(f"Exactly one of {prefix}input_ids and {prefix}inputs_embeds is needed; {given} given.")
    return input_ids if inputs_embeds is None else inputs_embeds


def check_inputs(
    config,
    input_ids: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    seen: int | None = 0,
    takes_cache: bool = False,
    prefix: str = "",
) -> tuple[int, int]:
    """Shapes fit each other; they are those documented at [`TfmBertModel`]. Returns (batch, length).

    Args:
        seen: positions that the mask counts before the inputs, those in a cache. `None`: not known.
        takes_cache: whether a mask in full may be for the keys of a static, a sliding or a paged cache, which are
            others than those of the positions seen.
        prefix: of the arguments' names.
    """
    inputs = one_of(input_ids, inputs_embeds, prefix)
    if inputs_embeds is None and inputs.dim() != 2:
        raise ValueError(f"{prefix}input_ids of shape {tuple(inputs.shape)} should be of shape (batch, length).")
    if inputs_embeds is not None and (inputs.dim() != 3 or inputs.shape[-1] != config.hidden_size):
        wanted = f"(batch, length, {config.hidden_size}), the last hidden_size"
        raise ValueError(f"{prefix}inputs_embeds of shape {tuple(inputs.shape)} should be of shape {wanted}.")
    batch, length = inputs.shape[:2]
    if batch == 0 or length == 0:
        raise ValueError(f"Inputs of shape {tuple(inputs.shape)} hold no token.")
    if isinstance(attention_mask, torch.Tensor) and seen is not None:
        shape, heads, whole = tuple(attention_mask.shape), config.num_attention_heads, seen + length
        sizes = ((1, batch), (1, heads), (1, length))  # what a mask in full may have in each dimension but the last
        full = len(shape) == 4 and all(size in allowed for size, allowed in zip(shape[:3], sizes, strict=True))
        full = full and (shape[3] == length or (takes_cache and shape[3] > length))
        if shape != (batch, whole) and not full:
            cached = f" and the {seen} positions in the cache" if seen else ""
            raise ValueError(
                f"{prefix}attention_mask of shape {shape} does not fit the inputs{cached}: it should be of shape "
                f"({batch}, {whole}), or ({batch}, 1, {length}, {whole})."
            )
        if full and "linear_attention" in map(config.kind_of, range(config.num_hidden_layers)):
            raise ValueError(
                f"{prefix}attention_mask of shape {shape} says who attends to whom, and linear attention compares no "
                f"two positions: it should be of shape ({batch}, {whole}), 0 at padding."
            )
    rows = [(batch, length), (1, length)]  # no set: while a graph is made, sizes may be symbols, without a hash
    for name, ids in (("token_type_ids", token_type_ids), ("position_ids", position_ids)):
        if ids is not None and tuple(ids.shape) not in rows:
            raise ValueError(
                f"{prefix}{name} of shape {tuple(ids.shape)} should be of shape ({batch}, {length}), as the inputs."
            )
    return batch, length


def check_is_cache(past_key_values: object) -> None:
    """It is one of transformers' caches, or `None`."""
    if past_key_values is not None and not isinstance(past_key_values, Cache):
        raise ValueError(
            f"past_key_values is a {type(past_key_values).__name__}; it should be a Cache of transformers, such as "
            "DynamicCache(config=model.config)."
        )


def check_cache(config, past_key_values: Cache | None, batch: int) -> int | None:
    """A cache is of this model's making, and for as many sequences.

    Returns the positions it has seen; `None` where the device alone knows.
    """
    if past_key_values is None:
        return 0
    check_is_cache(past_key_values)
    if torch.compiler.is_compiling():
        return None
    layers, wanted = past_key_values.layers, (config.num_hidden_layers, config.num_key_value_heads, config.head_dim)
    held = what_is_held(layers[0]) if layers else None
    if held is not None:
        sequences, *sizes = held
        found = (len(layers), *sizes)
        # Tensor parallelism leaves some of the heads to other processes.
        fits = found[0] == wanted[0] and wanted[1] % found[1] == 0 and found[2] == wanted[2]
        if fits and sequences not in (0, batch):
            raise ValueError(f"past_key_values holds {sequences} sequences, and the inputs are {batch}.")
    else:
        found, fits = (len(layers), "?", "?"), len(layers) in (0, wanted[0])
    if not fits:
        raise ValueError(
            "past_key_values is the cache of another model: (layers, key-value heads, head_dim) are "
            f"({', '.join(map(str, found))}) in it, and {wanted} in this model."
        )
    seen = past_key_values.get_seq_length()
    return seen if isinstance(seen, int) else None


def what_is_held(layer: CacheLayerMixin) -> tuple[int, int, int] | None:
    """How many sequences a layer of a cache holds (0: room alone), of how many heads, and how wide; `None`: nothing."""
    states = getattr(layer, "recurrent_states", {}).get(0)
    if states is not None:  # (batch, heads, head_dim, head_dim + 1)
        return len(states) if layer.has_previous_state[0] else 0, states.shape[1], states.shape[2]
    keys = getattr(layer, "keys", None)
    if keys is not None and keys.dim() == 4:  # (batch, heads, length, head_dim)
        return len(keys) if keys.shape[2] else 0, keys.shape[1], keys.shape[3]
    return None


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
    labels: torch.Tensor | None,
    shape: tuple[int, ...],
    classes: int | None,
    of: str,
    name: str = "labels",
    inputs: str = "the inputs",
) -> None:
    """There is a label for each of what `shape` counts, and it is one of so many classes, or -100."""
    if labels is None:
        return
    if labels.shape[: len(shape)] != shape:
        raise ValueError(f"{name} of shape {tuple(labels.shape)} should be of shape {tuple(shape)}, as {inputs}.")
    if classes is not None:
        check_ids(name, labels, classes, of, ignored=IGNORED)


def check_label_ids(labels: torch.Tensor | None, shape: tuple[int, ...], num_labels: int) -> None:
    """Labels of whole sequences fit a classifier's `num_labels`, where they are classes and not values."""
    are_classes = labels is not None and labels.numel() == len(labels) and not labels.is_floating_point()
    check_labels(labels, shape, num_labels if are_classes and num_labels > 1 else None, "the classes (num_labels)")


def check_source(
    config,
    shape: tuple[int, int],
    attention_mask: torch.Tensor | None,
    target: tuple[int, int],
    past_key_values: Cache | None,
) -> None:
    """A source of `shape` (batch, source length) fits its mask, a target of (batch, length), and a cache that has its
    keys already."""
    if shape[0] != target[0]:
        raise ValueError(
            f"The source is a batch of {shape[0]} sequences, and the target (decoder_input_ids, or the labels that "
            f"they are made of) one of {target[0]}."
        )
    if isinstance(attention_mask, torch.Tensor):
        found = tuple(attention_mask.shape)
        sizes = ((1, shape[0]), (1, config.num_attention_heads), (1, target[1]), shape[1:])
        full = len(found) == 4 and all(size in allowed for size, allowed in zip(found, sizes, strict=True))
        if found != tuple(shape) and not full:
            raise ValueError(
                f"attention_mask of shape {found} does not fit the source: it should be of shape {tuple(shape)}."
            )
    if isinstance(past_key_values, EncoderDecoderCache) and past_key_values.is_updated.get(0):
        seen = past_key_values.cross_attention_cache.layers[0].keys.shape[2]
        if seen != shape[1]:
            raise ValueError(
                f"past_key_values holds the keys of a source of {seen} positions, and this one has {shape[1]}."
            )


def check_encoder_states(config, states: torch.Tensor | None) -> tuple[int, int]:
    """The states of an encoder are there, and of the width. Returns (batch, source length)."""
    if not isinstance(states, torch.Tensor):
        raise ValueError(f"encoder_hidden_states={states}: the decoder reads an encoder's last hidden state.")
    if states.dim() != 3 or states.shape[2] != config.hidden_size:
        wanted = f"(batch, source length, {config.hidden_size}), the last hidden_size"
        raise ValueError(f"The encoder's last hidden state of shape {tuple(states.shape)} should be of shape {wanted}.")
    return states.shape[:2]
