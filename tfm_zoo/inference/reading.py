"""Which positions of the last hidden states a model with a head reads, beside the real tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, reduce
from inspect import signature
from typing import NamedTuple

import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from ..models.batch import IGNORED, KeptTokens
from ..models.decoder_entrance import needed_up_to
from ..models.heads import only_last


class Asked(NamedTuple):
    """A mask of padding `(batch, length)`, and where states are read beside it; `None`: nowhere. `is_causal`: whether
    only what stands before such a position is computed."""

    mask: torch.Tensor
    places: torch.Tensor | None
    is_causal: bool

    def kept(self, states: torch.Tensor) -> KeptTokens | None:
        """The tokens that somebody reads of states `(batch, length, width)`; `None`: all of them."""
        if states.dim() != 3 or states.shape[:2] != self.mask.shape:
            return None
        if self.is_causal:
            return KeptTokens.find(needed_up_to(self.places, self.mask), self.places)
        return KeptTokens.find(self.mask, self.places)


class Read(NamedTuple):
    """What the caller of a base model reads, beside the real tokens.

    Args:
        positions: `(batch, length)`, true where a state is read. `None`: nowhere that is known of.
        everything: whether all positions are read.
        first: whether the first position is read, as by a classifier of an encoder.
        of_target: whether all this is about what an encoder-decoder decodes.
        last: whether the last position is read, as by whoever generates. `None`: the call itself says so.
        is_all: whether what is read behind the last of the `positions` is nothing, whatever a mask says.
        asked: what the base model was asked for in this call; see [`Asked`].
    """

    positions: torch.Tensor | None = None
    everything: bool = False
    first: bool = True
    of_target: bool = False
    last: bool | None = None
    is_all: bool = False
    asked: list[Asked] | None = None

    def places(self, mask: torch.Tensor) -> torch.Tensor | None:
        """Where padding is read, `(batch, length)` as the mask; `None`: nowhere."""
        if self.everything:
            return torch.ones_like(mask, dtype=torch.bool)
        positions = self.positions
        places = None if positions is None or positions.shape != mask.shape else positions.to(mask.device)
        if not self.first:
            return places
        first = (torch.arange(mask.shape[1], device=mask.device) == 0).expand(mask.shape)
        return first if places is None else places | first


UNKNOWN = Read()
READ: ContextVar[Read] = ContextVar("read", default=UNKNOWN)


@contextmanager
def reading(read: Read) -> Iterator[None]:
    token = READ.set(read._replace(asked=[]))
    try:
        yield
    finally:
        READ.reset(token)


#: heads that read each position by itself
OF_TOKENS = ("ForMaskedLM", "ForTokenClassification", "ForCausalLM", "LMHeadModel", "ForQuestionAnswering")


def read_by(model: PreTrainedModel, family: str, options: dict) -> Read:
    """What an official model reads for a caller's arguments; `family`: the `model_type` of its twin."""
    name, config = type(model).__name__, model.config
    given, labels = options.get("input_ids"), options.get("labels")
    given = options.get("inputs_embeds") if given is None else given
    if options.get("start_positions") is not None or not isinstance(given, torch.Tensor):
        return Read(everything=True, of_target=takes_target(type(model)))  # the loss is a softmax over all positions
    if takes_target(type(model)):
        return read_of_target(name, config, options, labels)
    if isinstance(keep := options.get("logits_to_keep"), torch.Tensor):
        return Read(everything=True)
    shape, places = given.shape[:2], []
    is_masked = name == "ElectraForPreTraining" and options.get("attention_mask") is not None  # so are labels
    if isinstance(labels, torch.Tensor) and labels.shape == shape and not is_masked:
        marked = labels != IGNORED
        places += [marked, F.pad(marked[:, 1:], (0, 1))]  # a language model reads the position before a label
    if isinstance(shifted := options.get("shift_labels"), torch.Tensor) and shifted.shape == shape:
        places.append(shifted != IGNORED)
    if keep:
        places.append((torch.arange(shape[1], device=given.device) >= shape[1] - keep).expand(shape))
    padding = getattr(config, "pad_token_id", None)
    reads_last = family == "tfm_gpt" and name.endswith("ForSequenceClassification")
    if reads_last and given.dim() == 2 and padding is not None:
        places.append(only_last(given != padding))
    positions = reduce(torch.logical_or, places) if places else None
    generates = bool(options.get("use_cache")) or options.get("past_key_values") is not None
    return Read(positions, first=not name.endswith(OF_TOKENS), last=generates)


@cache
def takes_target(kind: type[PreTrainedModel]) -> bool:
    """Whether a class reads a source and a target."""
    return "decoder_input_ids" in signature(kind.forward).parameters


def read_of_target(name: str, config, options: dict, labels: torch.Tensor | None) -> Read:
    """What is read of the target. Where labels, or its source, become the decoder's input, they say what is real."""
    is_given = options.get("decoder_input_ids") is not None or options.get("decoder_inputs_embeds") is not None
    ids = options.get("input_ids")
    if name.endswith("ForSequenceClassification"):
        ends = None if ids is None or is_given else ids == config.eos_token_id
        return Read(ends, everything=ends is None, first=False, of_target=True, is_all=True)
    marked = None if labels is None else labels != IGNORED
    return Read(marked, first=False, of_target=True, is_all=not is_given and marked is not None)
