"""Which positions of the last hidden states a model with a head reads, beside the real tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch.nn import functional as F

from ..models.inputs import IGNORED
from ..models.next_tokens import only_last


class Read(NamedTuple):
    """What the caller of a base model reads at padding.

    Args:
        positions: `(batch, length)`, true where a state is read. `None`: nothing but real tokens.
        everything: whether all positions are read.
        real: `(batch, length)` of the target of an encoder-decoder, true where it is not padding, if labels say so.
        first: whether the first position is read, as a classifier of an encoder does. `None`: it is not known.
    """

    positions: torch.Tensor | None = None
    everything: bool = False
    real: torch.Tensor | None = None
    first: bool = True


UNKNOWN = Read()
READ: ContextVar[Read] = ContextVar("read", default=UNKNOWN)


@contextmanager
def reading(read: Read) -> Iterator[None]:
    token = READ.set(read)
    try:
        yield
    finally:
        READ.reset(token)


#: heads of which each position is read by itself
OF_TOKENS = ("ForMaskedLM", "ForTokenClassification", "ForCausalLM", "LMHeadModel", "ForQuestionAnswering")


def read_by(name: str, config, options: dict) -> Read:
    """What an official class with this name reads for a caller's arguments."""
    given = options.get("input_ids") if options.get("input_ids") is not None else options.get("inputs_embeds")
    labels = options.get("labels")
    if options.get("start_positions") is not None or not isinstance(given, torch.Tensor):
        return Read(everything=True)  # the loss is a softmax over all positions
    if getattr(config, "is_encoder_decoder", False):
        if labels is not None and options.get("decoder_input_ids") is None and options.get("decoder_inputs_embeds") is None:
            return Read(real=labels != IGNORED, first=False)
        return Read(everything=labels is not None, first=False)
    first = not name.endswith(OF_TOKENS)
    keep = options.get("logits_to_keep")
    if isinstance(keep, torch.Tensor):
        return Read(everything=True)
    positions = None
    if isinstance(labels, torch.Tensor) and labels.shape == given.shape[:2]:
        marked = labels != IGNORED
        positions = marked | F.pad(marked[:, 1:], (0, 1))  # a language model reads the position before a label
    shifted = options.get("shift_labels")
    if isinstance(shifted, torch.Tensor):
        positions = (shifted != IGNORED) if positions is None else positions | (shifted != IGNORED)
    if keep:
        last = torch.arange(given.shape[1], device=given.device) >= given.shape[1] - keep
        positions = last.expand(given.shape[:2]) if positions is None else positions | last
    if name.endswith("ForSequenceClassification") and given.dim() == 2 and getattr(config, "pad_token_id", None) is not None:
        last = only_last(given != config.pad_token_id)
        positions = last if positions is None else positions | last
    return Read(positions, first=first)
