"""A batch: what the core reads, and which of its tokens are computed. The others are left out before the embeddings and
restored after the last block. Projections, feed-forwards and norms run on the kept tokens, laid end to end in one row.
Only attention has to know where each sequence begins and ends.

(A batch consists of tuples, since device hooks move the tensors that they find in one.)
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
FROM_5_24 = hasattr(ModelOutput, "past_key_values")  # in these releases a property, which stands for "cache"
CACHE = "cache" if FROM_5_24 else "past_key_values"  # the name of a cache in transformers
#: the option that holds a paged cache. (From 5.24 on a `Cache` has this name, too: `take_cache` removes it first.)
PAGED_CACHE = "cache"


class Tokens(NamedTuple):
    """What stands at each position."""

    ids_or_embeddings: torch.Tensor  # `(batch, length)`, or `(batch, length, embedding_size)`
    token_type_ids: torch.LongTensor | None = None  # `(batch or 1, length)`, the segment of each
    #: `(batch or 1, length)`, from 0; -1 at padding if only real tokens are counted. `None`: not given yet
    position_ids: torch.LongTensor | None = None
    task_type_ids: torch.LongTensor | None = None  # `(batch or 1, length)`, the task of each (ERNIE)

    def only(self, kept: "KeptTokens") -> "Tokens":
        """The kept tokens, in one row."""
        return Tokens(*(each if each is None else kept.keep(each) for each in self))


class KeptTokens(NamedTuple):
    """The tokens of a padded batch that are computed, laid end to end in one row. (Elsewhere such a batch is called
    unpadded, or varlen, and the bounds `cu_seqlens`.)"""

    indices: torch.LongTensor  # `(tokens,)`, the index of each in the flattened padded batch
    shape: tuple[int, int]  # (batch, length) of the padded batch
    lengths: list[int]  # number of tokens of each sequence: of each row, or of each document
    bounds: torch.IntTensor  # `(sequences + 1,)`, where each sequence begins, and where the last one ends

    @classmethod
    def find(cls, needed: torch.Tensor, read=None, documents=None, shows_all: bool = False) -> "KeptTokens | None":
        """The tokens that suffice, as far as a batch tells. (An entrance may compute all: it asks the stack, too, by
        `computes_only`.) It waits for the device: once, or with documents twice.

        `None`: all tokens have to be computed. That is so if all are needed (without documents), if one is read that is
        not needed, if a row needs no token (official classes define an output for it), and in a graph.

        Args:
            needed: `(batch, length)`, true (or 1) at the tokens that have to be computed.
            read: `(batch or 1, length)`, true where a caller reads a state. `None`: it reads no state outside `needed`.
            documents: [`documents_of`] the batch. Each is a sequence then; else each row is one.
            shows_all: if all tokens are needed, returns [`all_of`] them instead of `None`.
        """
        if is_traced(needed if documents is None else documents):  # (documents follow from positions, too)
            return None
        needed, (rows, length) = needed.bool(), needed.shape
        counts = needed.sum(dim=1)
        if read is not None:  # a state read outside `needed` makes all counts 0: one `.tolist()` brings both answers
            counts = counts.masked_fill((read.to(needed.device).bool() & ~needed).any(), 0)
        lengths = counts.tolist()
        if 0 in lengths or not rows:
            return None
        total = sum(lengths)
        if documents is not None:
            # (No two rows share a number.)
            numbers = torch.arange(rows, device=needed.device)[:, None] * (length + 1) + documents
            counts = numbers[needed].unique_consecutive(return_counts=True)[1]
            lengths = counts.tolist()
        elif total == rows * length:
            return cls.all_of(rows, length, needed.device) if shows_all else None
        flat = needed.flatten()  # (`nonzero` would wait for a device that is not a CPU)
        indices = flat.nonzero() if is_readable(flat) else flat.byte().argsort(descending=True, stable=True)[:total]
        return cls(indices.flatten(), (rows, length), lengths, bounds_of(counts))

    @classmethod
    def all_of(cls, rows: int, length: int, device: torch.device) -> "KeptTokens":
        """All tokens of a batch, each row a sequence."""
        bounds = torch.arange(0, rows * length + 1, length, dtype=torch.int32, device=device)
        return cls(torch.arange(rows * length, device=device), (rows, length), [length] * rows, bounds)

    def keep(self, states: torch.Tensor) -> torch.Tensor:
        """`(batch or 1, length, ...)` to `(1, tokens, ...)`."""
        states = states if len(states) == self.shape[0] else states.expand(*self.shape, *states.shape[2:])
        return states.flatten(0, 1).index_select(0, self.indices.to(states.device)).unsqueeze(0)

    def restore(self, states: torch.Tensor) -> torch.Tensor:
        """`(1, tokens, ...)` to `(batch, length, ...)`, zero where tokens were not kept."""
        padded = states.new_zeros(math.prod(self.shape), *states.shape[2:])
        return padded.index_copy_(0, self.indices.to(states.device), states.squeeze(0)).unflatten(0, self.shape)

    def parts_of(self, mask: torch.Tensor) -> list[torch.Tensor]:
        """For each sequence, how its tokens see each other in a mask `(batch or 1, heads, length, length)`."""
        masks, parts, bounds = mask.expand(self.shape[0], -1, -1, -1), [], self.bounds.long()
        firsts, lasts = self.indices[bounds[:-1]].tolist(), self.indices[bounds[1:] - 1].tolist()
        for first, last, indices in zip(firsts, lasts, self.indices.split(self.lengths), strict=True):
            row, start = divmod(first, self.shape[1])
            is_span = last - first + 1 == len(indices)
            places = slice(start, start + len(indices)) if is_span else indices % self.shape[1]
            parts.append(masks[row : row + 1, :, places][..., places])
        return parts


class Window(NamedTuple):
    """How far a token sees: `left` places before its own, and `right` places after it."""

    far = -(1 << 30)  # out of reach of every place
    places: torch.IntTensor  # `(batch or 1, length)`, `far` at padding
    left: int
    right: int


class Layout(NamedTuple):
    """Who attends to whom in the layers of one type, and how attention runs ([`choose_kernel`] matches the mode):

    "whole"       on the tokens as they are, by the mask, or in blocks by the window
    "restored"    on the padded batch, which is restored for this call
    "apart"       sequence by sequence, where queries and keys are the same tokens; the mask is of the padded batch
    "by_bounds"   once for all sequences, which lie end to end, by the bounds of `queries` and `keys`
    """

    #: as the attention implementation reads it; for linear attention `(batch, length)`, 0 at padding. `None`: each
    #: position sees all others, or (causal) all before it
    mask: torch.Tensor | None = None
    window: Window | None = None  # replaces the mask where attention runs in blocks
    mode: Literal["whole", "restored", "apart", "by_bounds"] = "whole"
    queries: KeptTokens | None = None  # where they stand end to end in one row. `None`: they are padded
    keys: KeptTokens | None = None  # the same of keys
    keys_are_padded: bool = False  # whether the keys that attention "by_bounds" gets are still `(batch, length)`
    #: of positions, `(batch, heads, queries, keys)`, which flex attention adds to scores; else the mask holds it
    bias: torch.Tensor | None = None
    masks: list[torch.Tensor] | None = None  # where attention runs "apart", the part of the mask of each sequence

    def with_parts(self) -> "Layout":
        """The layout with its `masks`, made before the layers run: a compiled layer cannot read `queries.indices`."""
        has_parts = self.mode == "apart" and self.mask is not None
        return self._replace(masks=self.queries.parts_of(self.mask)) if has_parts else self


#: no limits but causality, which kernels read from the layer (`is_causal`). (Eager attention reads it from a mask.)
EVERYTHING = Layout()


class Batch(NamedTuple):
    """What a stack reads."""

    tokens: Tokens  # of shape `(1, tokens)` where only some are kept
    layouts: dict[str, Layout]  # who attends to whom, for each type of layer
    kept: KeptTokens | None = None  # the tokens that are computed, end to end. `None`: all, as they were given
    cache: Cache | None = None  # keys and values of earlier positions (of a target, without those of its source)
    returns_cache: bool = False  # whether the cache is in the outputs
    attention_mask: object = None  # the caller's (encoder: `None` if it hides nothing), for ALiBi, DeBERTa, [`Source`]

    @property
    def shape(self) -> tuple[int, int]:
        """(batch, length) of the padded batch."""
        return self.tokens.ids_or_embeddings.shape[:2] if self.kept is None else self.kept.shape


def is_readable(states: torch.Tensor) -> bool:
    """Whether the host can read a tensor's values without waiting for its device."""
    return states.device.type == "cpu" and not is_traced(states)


def is_pad_mask(attention_mask: object) -> bool:
    """Whether a mask is one of padding, `(batch, length)`, and not one of who attends to whom."""
    return isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 2


def labelled(labels: torch.LongTensor | None) -> torch.BoolTensor | None:
    """`(batch, length)`, true where there is a label; `None` without labels."""
    return None if labels is None else labels != IGNORED


def count_in_mask(attention_mask: torch.Tensor) -> torch.LongTensor:
    """Positions, counted over the real tokens of a mask `(batch, seen + length)` of padding; -1 at padding."""
    real = attention_mask.long()
    return real.cumsum(dim=1) * real - 1


def is_traced(states: torch.Tensor) -> bool:
    """Whether a graph is being made, or a function transformed, in which the values of a tensor cannot be read."""
    is_stand_in = type(states) is not torch.Tensor or states.is_meta  # such as a fake tensor
    # (`is_functorch_wrapped_tensor` comes last: torch.compile cannot trace it.)
    if is_stand_in or torch.compiler.is_compiling() or torch.jit.is_tracing() or is_functorch_wrapped_tensor(states):
        return True
    return states.is_cuda and torch.cuda.is_current_stream_capturing()


def need_gradient(*states: torch.Tensor) -> bool:
    """Whether a gradient will be computed for some of these, which must not be overwritten until then."""
    return torch.is_grad_enabled() and any(each.requires_grad for each in states)


def bounds_of(lengths: torch.LongTensor) -> torch.IntTensor:
    """Where sequences of these lengths `(n,)` begin if they are laid end to end, and the end, `(n + 1,)`."""
    return nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)


#: hooks that torch calls for all modules
GLOBAL_HOOKS = [
    getattr(every_module, f"_global_{kind}_hooks") for kind in ("forward", "forward_pre", "backward", "backward_pre")
]
#: hooks that do the same for any shape: their package and a part of their name
SHAPELESS = {
    *("transformers.output_capturing_hook", "torch.ModuleTracker"),  # they record states, or which module runs
    *("tfm_zoo.watched", "files_of_the_hub.watched"),  # they digest what is computed (`proof/states.py`, by two names)
    # they ask for a gradient
    *("transformers.enable_input_require_grads", "peft.make_inputs_require_grad", "trl.make_inputs_require_grad"),
    *("torch.FSDPState", "torch._register_group_forward_hooks"),  # they gather parameters (FSDP2)
    *("deepspeed._register_deepspeed_module", "deepspeed.instrument_w_nvtx"),  # the same (ZeRO-3)
    *("torch.distribute_module", "transformers.distribute_module"),  # they divide the width (tensor parallelism)
}


def has_hooks(*parts: nn.Module | None) -> bool:
    """Whether a hook that is not one of `SHAPELESS` is on these modules, on parts of them or on all modules. Such a
    hook expects what official classes pass to it: padded batches with all positions."""
    queue, found = [*parts], [*GLOBAL_HOOKS]  # `modules()` would take five times as long
    for part in queue:  # which grows
        if part is None:
            continue
        queue += part._modules.values()
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks:
            found += (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    return not all(is_shapeless(hook) for hooks in found for hook in hooks.values())


def is_shapeless(hook: Callable) -> bool:
    """Whether a hook is one of `SHAPELESS`. (The `__module__` of a method written in C may be missing or `None`.)"""
    package = (getattr(hook, "__module__", None) or "").partition(".")[0]
    return any(f"{package}.{part}" in SHAPELESS for part in getattr(hook, "__qualname__", "").split("."))
