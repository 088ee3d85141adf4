"""A batch: what the core reads, as tuples without logic, and which of its tokens are computed. The others are left out
before the first block and restored after the last.

Projections, feed-forwards and norms run on the tokens that are kept, laid end to end in one row. Only attention has to
know where each sequence begins and ends. (Device hooks move the tensors that they find in a tuple.)
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn.modules import module as every_module
from transformers import Cache
from transformers.utils import ModelOutput

IGNORED = -100  # the label of a position without one
#: transformers 5.24 renamed it in `generate`, in outputs (which know the old name, too) and in masks
CACHE = "cache" if hasattr(ModelOutput, "past_key_values") else "past_key_values"
#: torch's attention, which by the second name runs over real tokens where `takes_bounds` says that it can
FUSED = ("sdpa", "varlen")
#: those that torch calls for all modules
GLOBAL_HOOKS = [
    getattr(every_module, f"_global_{kind}_hooks") for kind in ("forward", "forward_pre", "backward", "backward_pre")
]
#: why hooks do the same for any shape -> of each, its package and a part of its name
SHAPELESS = {
    "keeps states, whose padding is restored": "transformers.output_capturing_hook",
    "asks for a gradient": "transformers.enable_input_require_grads peft.make_inputs_require_grad",
    "asks for it, too": "trl.make_inputs_require_grad",
    "gathers parameters (FSDP2)": "torch.FSDPState torch._register_group_forward_hooks",
    "gathers parameters (ZeRO-3)": "deepspeed._register_deepspeed_module deepspeed.instrument_w_nvtx",
    "divides the width (tensor parallelism)": "torch.distribute_module transformers.distribute_module",
    "notes which module runs, to count what is computed": "torch.ModuleTracker",
    "digests what is computed, for a manifest": "tfm_zoo.watched files_of_the_hub.watched",
}
NAMES = {*" ".join(SHAPELESS.values()).split()}


class Tokens(NamedTuple):
    """What is read at each position.

    Args:
        ids_or_embeddings: `(batch, length)`, or `(batch, length, embedding_size)`.
        token_type_ids: `(batch or 1, length)`, segments, or `None`.
        position_ids: `(batch or 1, length)`, from 0; -1 at padding if only real tokens are counted. `None`: not given.
    """

    ids_or_embeddings: torch.Tensor
    token_type_ids: torch.LongTensor | None = None
    position_ids: torch.LongTensor | None = None

    def only(self, kept: "KeptTokens | None") -> "Tokens":
        """The tokens that are kept, in one row; all of them if that is `None`."""
        return self if kept is None else Tokens(*(each if each is None else kept.keep(each) for each in self))


class KeptTokens(NamedTuple):
    """The tokens of a padded batch that are computed, laid end to end in one row.

    Args:
        indices: `(tokens,)`, the index of each in the flattened padded batch.
        shape: (batch, length) of the padded batch.
        lengths: number of tokens of each sequence: of each row, or of each document.
        bounds: int32 `(sequences + 1,)`, where each begins in the row, and where the last one ends.
    """

    indices: torch.LongTensor
    shape: tuple[int, int]
    lengths: list[int]
    bounds: torch.IntTensor

    @classmethod
    def find(cls, needed: torch.Tensor, read=None, documents=None, or_all: bool = False) -> "KeptTokens | None":
        """The tokens of a batch that are computed: entrances and heads ask here. Counting waits for the device, once.

        `None`: all tokens are computed, and rows stay rows, as hooks expect. That is so without padding; in a graph,
        whose sizes follow from no value; where padding is read; and where a row has no real token, for which official
        classes define an output.

        Args:
            needed: `(batch, length)`, true (or 1) at the tokens that have to be computed.
            read: `(batch or 1, length)`, true where the caller reads a state. `None`: at some of the `needed` tokens.
            documents: [`documents_of`] the batch. Each is a sequence then; else each row is one.
            or_all: without padding, returns the tokens all the same.
        """
        if is_traced(needed if documents is None else documents):
            return None
        needed, (rows, length) = needed.bool(), needed.shape
        counts = needed.sum(dim=1)
        is_read = None if read is None else (read.to(needed.device).bool() & ~needed).any()
        lengths = (counts if is_read is None else counts.masked_fill(is_read, 0)).tolist()
        if 0 in lengths or not rows:
            return None
        total = sum(lengths)
        if documents is not None:
            number = torch.arange(rows, device=needed.device)[:, None] * (length + 1) + documents  # (0 is one, too)
            counts = number[needed].unique_consecutive(return_counts=True)[1]
            lengths = counts.tolist()
        elif total == rows * length:
            return cls.all_of(rows, length, needed.device) if or_all else None
        flat = needed.flatten()
        if reads_freely(flat):
            indices = flat.nonzero().flatten()
        else:  # `nonzero` would wait for the device
            indices = flat.byte().argsort(descending=True, stable=True)[:total]
        return cls(indices, (rows, length), lengths, bounds_of(counts))

    @classmethod
    def all_of(cls, rows: int, length: int, device: torch.device) -> "KeptTokens":
        """All tokens of a batch, each row a sequence."""
        bounds = torch.arange(0, rows * length + 1, length, dtype=torch.int32, device=device)
        return cls(torch.arange(rows * length, device=device), (rows, length), [length] * rows, bounds)

    @property
    def is_whole(self) -> bool:
        """Whether these are all tokens of the batch, and each row is a sequence."""
        rows, length = self.shape
        return len(self.lengths) == rows and sum(self.lengths) == rows * length

    def keep(self, states: torch.Tensor) -> torch.Tensor:
        """`(batch or 1, length, ...)` to `(1, tokens, ...)`."""
        flat = states.expand(*self.shape, *states.shape[2:]).flatten(0, 1)
        return flat.index_select(0, self.indices.to(flat.device)).unsqueeze(0)

    def restore(self, states: torch.Tensor) -> torch.Tensor:
        """`(1, tokens, ...)` to `(batch, length, ...)`, zero where tokens were not kept."""
        padded = states.new_zeros(math.prod(self.shape), *states.shape[2:])
        return padded.index_copy_(0, self.indices.to(states.device), states[0]).unflatten(0, self.shape)

    def cut(self, mask: torch.Tensor) -> list[torch.Tensor]:
        """The part of a mask `(batch or 1, heads, length, length)` in which the tokens of a sequence look at each
        other, for each sequence."""
        masks, parts = mask.expand(self.shape[0], -1, -1, -1), []
        for indices in self.indices.split(self.lengths):
            row, places = int(indices[0]) // self.shape[1], indices % self.shape[1]
            own, first, last = masks[row : row + 1], int(places[0]), int(places[-1]) + 1
            is_span = last - first == len(places)
            parts.append(own[..., first:last, first:last] if is_span else own[:, :, places][..., places])
        return parts


class Window(NamedTuple):
    """Who sees whom: a token sees `left` places before its own and `right` after it. `places` are int32
    `(batch or 1, length)`, `far` at padding."""

    far = -(1 << 30)  # out of reach of every place
    places: torch.IntTensor
    left: int
    right: int


class Layout(NamedTuple):
    """Who attends to whom in the layers of one type, and how attention runs ([`choose_kernel`] matches the mode):

        "whole"       on the tokens as they are, by the mask, or in blocks by the window
        "restored"    on the padded batch, which is restored for this call where `queries` or `keys` are kept tokens
        "apart"       sequence by sequence, by `parts`
        "by_bounds"   once for all sequences, which lie end to end, by the bounds of `queries` and `keys`

    Args:
        mask: made by transformers' mask functions for the attention implementation; for linear attention
            `(batch, length)`, 0 at padding. `None`: each position sees all others, or (causal) all before it.
        window: replaces the mask where attention runs in blocks.
        queries, keys: the kept tokens, if queries, or keys, stand end to end in one row. `None`: they are padded.
        parts: a layout for each sequence.
        bias: of positions, `(batch, heads, queries, keys)`, where it is not in the mask: flex attention has a mask of
            blocks, to which no number can be added, and adds the bias to each score.
    """

    mask: torch.Tensor | None = None
    window: Window | None = None
    mode: Literal["whole", "restored", "apart", "by_bounds"] = "whole"
    queries: KeptTokens | None = None
    keys: KeptTokens | None = None
    parts: list["Layout"] | None = None
    bias: torch.Tensor | None = None


EVERYTHING = Layout()  # no limits but causality


class Batch(NamedTuple):
    """What a stack reads.

    Args:
        tokens: of shape `(1, tokens)` where only some are `kept`.
        layouts: who attends to whom, for each type of layer.
        kept: the tokens that are computed. `None`: all.
        cache: keys and values of earlier positions.
        returns_cache: whether the cache is in the outputs.
        attention_mask: the caller's; in an encoder `None` if it hides nothing.
    """

    tokens: Tokens
    layouts: dict[str, Layout]
    kept: KeptTokens | None = None
    cache: Cache | None = None
    returns_cache: bool = False
    attention_mask: object = None


def reads_freely(states: torch.Tensor) -> bool:
    """Whether the host can read a tensor's values without waiting for its device."""
    return states.device.type == "cpu" and not is_traced(states)


def marks_padding(attention_mask: object) -> bool:
    """Whether a mask is one of padding, `(batch, length)`, and not one of who attends to whom."""
    return isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 2


def count_in_mask(attention_mask: torch.Tensor) -> torch.LongTensor:
    """Positions, counted over the real tokens of a mask `(batch, seen + length)` of padding; -1 at padding."""
    real = attention_mask.long()
    return real.cumsum(dim=1) * real - 1


def is_traced(states: torch.Tensor) -> bool:
    """Whether a graph is being made, or a function transformed, in which the values of a tensor cannot be read."""
    is_stand_in = type(states) is not torch.Tensor or states.is_meta  # such as a fake tensor
    if is_stand_in or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    if is_functorch_wrapped_tensor(states):  # asked last: torch.compile cannot trace it
        return True
    return states.is_cuda and torch.cuda.is_current_stream_capturing()


def bounds_of(lengths: torch.LongTensor) -> torch.IntTensor:
    """Where sequences of these lengths `(n,)` begin if they are laid end to end, and the end, `(n + 1,)`."""
    return nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)


def has_hooks(*parts: nn.Module | None) -> bool:
    """Whether these modules, parts of them or all modules carry hooks that are not `SHAPELESS`. Such a hook expects
    what the official classes pass it: padded batches with all positions."""
    queue, found = [*parts], [hooks for hooks in GLOBAL_HOOKS if hooks]  # `modules()` would take five times as long
    for part in queue:  # the loop also visits what is appended
        if part is None:
            continue
        queue += part._modules.values()
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks:
            found += (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    return not all(is_shapeless(hook) for hooks in found for hook in hooks.values())


def is_shapeless(hook: Callable) -> bool:
    """Whether a hook is one of `SHAPELESS`. (The `__module__` of a method written in C may be missing or `None`.)"""
    package = (getattr(hook, "__module__", None) or "").partition(".")[0]
    return any(f"{package}.{part}" in NAMES for part in getattr(hook, "__qualname__", "").split("."))
