"""A caller's arguments of a [`TfmStack`]: checks, default positions, and packed documents."""

from collections.abc import Mapping
from sys import maxsize

import torch
from torch.nn import functional as F
from transformers.utils import logging

from .batch import IGNORED, Tokens, count_in_mask, is_pad_mask, is_readable, is_traced
from .kernels import PLAIN

logger = logging.get_logger(__name__)
POSITIONS = "the positions (max_position_embeddings, for prompt and new tokens together)"
#: how the names of attention implementations begin that keep documents apart as told here (vLLM does so itself)
SEPARATED = (*PLAIN, "flex_attention", "flash", "kernels-community/")


def one_of(input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, prefix: str = "") -> torch.Tensor:
    """The ids or the embeddings, whichever the caller gives; `prefix` precedes their names in errors."""
    if (input_ids is None) == (inputs_embeds is None):
        given = "neither is" if input_ids is None else "both are"
        raise ValueError(f"Exactly one of {prefix}input_ids and {prefix}inputs_embeds is needed; {given} given.")
    check_tensor(f"{prefix}input_ids", input_ids)
    check_tensor(f"{prefix}inputs_embeds", inputs_embeds)
    if input_ids is not None and input_ids.is_floating_point():
        raise ValueError(f"{prefix}input_ids of type {input_ids.dtype} should be integers.")
    return input_ids if inputs_embeds is None else inputs_embeds


def given_in(inputs: dict, prefix: str = "") -> torch.Tensor:
    """The ids or the embeddings in a base model's inputs, whichever the caller gives."""
    return one_of(inputs[f"{prefix}input_ids"], inputs[f"{prefix}inputs_embeds"], prefix)


def check_tensor(name: str, value: object) -> None:
    """Raises a `ValueError` for lists and arrays. (A mask may be an object that only a kernel knows.)"""
    if isinstance(value, list | tuple | str | Mapping) or type(value).__module__ == "numpy":
        raise ValueError(
            f"{name} is a {type(value).__name__}, and should be a tensor: torch.tensor makes one of numbers, and a "
            "tokenizer returns them with return_tensors='pt', for model(**inputs)."
        )


def check_inputs(stack, tokens: Tokens, attention_mask: object, options: dict, seen: int | None = 0) -> None:
    """Raises a `ValueError` where a caller's inputs do not fit each other or the model. Warns once if the `options` ask
    for attention weights, and the implementation returns only outputs. The mask also covers the `seen` positions in a
    cache (`None`: only the device knows how many). In a decoder, a mask of pairs may cover the room of a static cache,
    and a dict may have one for each type of layer."""
    given, prefix, implementation = tokens.ids_or_embeddings, stack.argument_prefix, stack.config._attn_implementation
    if implementation != "eager" and asks_for(stack.config, options, "output_attentions") and not is_traced(given):
        logger.warning_once(  # (not in a graph, which holds no text)
            f"output_attentions=True: attention by {implementation!r} returns no weights. Load the model with "
            "attn_implementation='eager', or call model.set_attn_implementation('eager')."
        )
    by_type = stack.is_causal and isinstance(attention_mask, dict)
    check_tensor(f"{prefix}attention_mask", None if by_type else attention_mask)
    shape, are_ids = tuple(given.shape), not given.is_floating_point()
    if are_ids and len(shape) != 2:
        raise ValueError(f"{prefix}input_ids of shape {shape} should be of shape (batch, length).")
    if not are_ids and (len(shape) != 3 or shape[2] != stack.input_width):
        expected = f"(batch, length, {stack.input_width}): embeddings are {stack.input_width} wide"
        raise ValueError(f"{prefix}inputs_embeds of shape {shape} should be of shape {expected}.")
    batch, length = shape[:2]
    if length == 0:
        raise ValueError(f"Inputs of shape {shape} hold no token.")
    if isinstance(attention_mask, torch.Tensor) and seen is not None and attention_mask.shape != (batch, seen + length):
        check_other_mask(stack, attention_mask, batch, length, seen)
    segments, tasks = tokens.token_type_ids, tokens.task_type_ids
    for name, each in (("token_type_ids", segments), ("position_ids", tokens.position_ids), ("task_type_ids", tasks)):
        check_tensor(f"{prefix}{name}", each)
        # (Not `in`: in a graph, sizes may be symbols, which have no hash.)
        if each is not None and each.shape != (batch, length) and each.shape != (1, length):
            raise ValueError(f"{prefix}{name} of shape {tuple(each.shape)} should be of shape ({batch}, {length}).")
    embeddings = stack.embeddings
    # The table may have been resized. An adapter around it has no size. In vLLM, only the first process has a table.
    num_ids = getattr(getattr(embeddings, "embed_tokens", None), "num_embeddings", stack.vocab_size)
    vocabulary = f"the vocabulary ({prefix}vocab_size)"
    check_values(f"{prefix}input_ids", given if are_ids else None, num_ids, vocabulary)
    if segments is not None and embeddings.token_types_as_tokens:
        check_values("token_type_ids", segments, num_ids, vocabulary)
    elif segments is not None and embeddings.embed_token_types is not None:
        check_values("token_type_ids", segments, stack.config.type_vocab_size, "the segments (type_vocab_size)")
    if stack.config.task_type_vocab_size:
        check_values("task_type_ids", tasks, stack.config.task_type_vocab_size, "the tasks (task_type_vocab_size)")
    if stack.num_positions is not None:
        at_padding = -1 if stack.config.position_ids_from_padding or stack.config.position_ids_from_mask else None
        check_values(f"{prefix}position_ids", tokens.position_ids, stack.num_positions, POSITIONS, at_padding)


def fits_pairs(mask: torch.Tensor, rows: int, heads: int, queries: int) -> bool:
    """Whether a mask is one of pairs for so many rows, heads and queries, or for all of them alike."""
    sizes = zip(mask.shape, (rows, heads, queries), strict=False)
    return mask.dim() == 4 and all(size in (1, count) for size, count in sizes)


def check_other_mask(stack, attention_mask: torch.Tensor, batch: int, length: int, seen: int) -> None:
    """Raises a `ValueError` for a mask that is not `(batch or 1, heads or 1, length or 1, seen + length)`. In a
    decoder, a static cache has room for more keys, and one with a window may hold fewer."""
    prefix, shape, whole = stack.argument_prefix, tuple(attention_mask.shape), seen + length
    fits = fits_pairs(attention_mask, batch, stack.num_heads, length)
    least = length + 1 if "sliding_attention" in stack.layer_types else whole  # (one key in the cache, or more)
    if not fits or not (shape[3] == whole or (stack.is_causal and shape[3] >= least)):
        cached = f" and the {seen} positions in the cache" if seen else ""
        raise ValueError(
            f"{prefix}attention_mask of shape {shape} does not fit the inputs{cached}: it should be of shape "
            f"({batch}, {whole}), or ({batch}, 1, {length}, {whole})."
        )
    if stack.config.has_linear_attention:
        raise ValueError(
            f"{prefix}attention_mask of shape {shape} says who attends to whom, and linear attention compares no two "
            f"positions: it should be of shape ({batch}, {whole}), 0 at padding."
        )


def check_values(name: str, ids: torch.Tensor | None, size: int, table: str, ignored: int | None = None) -> None:
    """Raises a `ValueError` for ids outside 0 to `size - 1` that are not `ignored`; only on a CPU: another device would
    be waited for, and refuses such ids itself."""
    if ids is None or not is_readable(ids) or not ids.numel():
        return
    ids = ids if ignored is None else ids.masked_fill(ids == ignored, 0)
    low, high = map(torch.Tensor.item, ids.aminmax())
    if low < 0 or high >= size:
        last = "" if size == maxsize else f" to {size - 1}"
        raise ValueError(f"{name} holds {low if low < 0 else high}, which is outside {table}: ids go from 0{last}.")


def check_labels(
    labels, shape: tuple, classes=None, table="the classes (num_labels)", name="labels", inputs="the inputs"
) -> None:
    """Raises a `ValueError` unless labels are of `shape`, each -100 or less than `classes` (`None`: any value). Labels
    `(batch,)` may have further dimensions, of 1 or without `classes`. Other arguments are words of the message."""
    check_tensor(name, labels)
    if labels is None:
        return
    may_be_longer = len(shape) == 1 and (classes is None or labels.numel() == shape[0])
    if labels.shape != shape and not (may_be_longer and labels.shape[:1] == shape):
        raise ValueError(f"{name} of shape {tuple(labels.shape)} should be of shape {tuple(shape)}, as {inputs}.")
    if classes is not None:
        check_values(name, labels, classes, table, ignored=IGNORED)


def default_positions(stack, given: torch.Tensor, mask=None, seen: int | torch.Tensor = 0) -> torch.LongTensor:
    """Positions `(batch or 1, length)` that a caller left out: from 0, after the `seen` ones in a cache. If the
    configuration counts real tokens only, by their ids or (a decoder's) by the mask, padding has position -1. Raises a
    `ValueError` if there are more than the model has."""
    config, length, has_past = stack.config, given.shape[1], not isinstance(seen, int) or seen > 0
    if config.position_ids_from_padding and has_past and is_pad_mask(mask):  # (a target: in a GPT the field is false)
        seen = mask[:, :-length].to(given.device).bool().sum(dim=1, keepdim=True)
    if config.position_ids_from_mask and is_pad_mask(mask):
        positions = count_in_mask(mask.to(given.device))[:, -length:]
    elif config.position_ids_from_padding and given.dim() == 2:
        real = given != config.pad_token_id
        positions = (real.cumsum(dim=1) + seen) * real - 1
    else:
        positions = torch.arange(length, device=given.device)[None] + seen
        if isinstance(seen, int):
            check_room(stack, seen + length)
            return positions
    if is_readable(positions) and positions.numel():
        check_room(stack, int(positions.max()) + 1)
    return positions


def check_room(stack, count: int) -> None:
    """Raises a `ValueError` if the model has fewer positions than `count`."""
    most = stack.num_positions
    if most is not None and count > most:
        raise ValueError(
            f"{stack.argument_prefix}inputs of {count} tokens do not fit into the model, which has {most} positions "
            f"(max_position_embeddings): a tokenizer cuts texts with truncation=True, max_length={most}."
        )


def documents_of(stack, tokens: Tokens, attention_mask: object) -> torch.LongTensor | None:
    """The number of each token's document, `(batch, length)`, if a caller's positions say that rows hold several.
    `None` if they do not, if a mask of pairs says who attends to whom, and in a serving engine, which knows it."""
    shape, implementation = tokens.ids_or_embeddings.shape[:2], stack.config._attn_implementation
    is_of_pairs = attention_mask is not None and not is_pad_mask(attention_mask)
    if shape[1] < 2 or is_of_pairs or not implementation.startswith(SEPARATED):
        return None
    position_ids = tokens.position_ids.expand(shape)
    if attention_mask is None:
        return numbered(stack, position_ids)
    # Padding may stand anywhere. Real tokens move to the front of their row, and -1 fills what they leave. (One more
    # column takes what is padding, and is cut off.)
    real = attention_mask[:, -shape[1] :].to(position_ids.device) != 0
    counts, filling = real.cumsum(dim=1), F.pad(torch.full_like(position_ids, -1), (0, 1))
    moved = filling.scatter(1, (counts - 1).where(real, shape[1]), position_ids)[:, :-1]
    documents = numbered(stack, moved)
    # Back to their places; padding gets the number of the real token before it, or 0.
    return None if documents is None else F.pad(documents, (1, 0)).gather(1, counts)


def numbered(stack, position_ids: torch.LongTensor) -> torch.LongTensor | None:
    """Numbers the documents in rows of positions, -1 at their ends. A document begins where positions return to 0; in a
    decoder wherever they do not rise. `None` if no row holds several; a graph cannot tell, and numbers them always.
    Raises a `ValueError` for a model with a part that would carry one document into the next."""
    begins, steps = position_ids == 0, position_ids.diff(dim=1, prepend=position_ids[:, :1])
    if stack.is_causal:
        begins = begins | (steps <= 0)
    else:
        # If a row only counts up and begins anew at 0, a document may begin it with any number: 5 6 7 0 1 -> 1 1 1 2 2.
        counts_up = (begins | (steps == 1) | (position_ids < 0))[:, 1:].all(dim=1, keepdim=True)
        begins = torch.cat((begins[:, :1] | counts_up, begins[:, 1:]), dim=1)
    documents = (begins & (position_ids >= 0)).cumsum(dim=1)
    # (Where all positions of a row are 0, they say nothing.)
    is_packed_row = (documents[:, -1:] > 1) & (position_ids > 0).any(dim=1, keepdim=True)
    if not is_traced(documents):
        if not is_packed_row.any():
            return None
        if parts := [part for name, part in stack.of_whole_rows.items() if getattr(stack.config, name)]:
            raise ValueError(
                f"{stack.argument_prefix}position_ids begin anew within a row: {parts[0]} would carry one sequence "
                "into the next. Give each sequence a row of its own, padded."
            )
    return documents * is_packed_row


def asks_for(config, options: dict, name: str) -> bool:
    """Whether the caller, or else the configuration, asks for an output."""
    return getattr(config, name, False) if options.get(name) is None else options[name]
