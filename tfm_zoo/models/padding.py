"""Padding: which tokens of a batch are kept, dropping the others before the first block, restoring them after the last.

Projections, feed-forwards and norms run on the tokens that are kept, laid end to end in one row. Only attention has to
know where each sequence begins and ends.
"""

import math
from collections.abc import Callable
from itertools import accumulate

import torch
from torch import nn

from .batch import KeptTokens, Tokens
from .compat import GLOBAL_HOOKS
from .inputs import is_traced, reads_freely

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


def find_kept(
    needed: torch.Tensor, reads_others: torch.Tensor | None = None, documents: torch.LongTensor | None = None
) -> KeptTokens | None:
    """The tokens of a batch that are computed: entrances and heads ask here. Counting waits for the device, once.

    `None`: all tokens are computed, with their padding. That is so in a graph, whose sizes follow from no value; where
    padding is read; and where a row has no real token, for which official classes define an output.

    Args:
        needed: `(batch, length)`, true (or 1) at the tokens that have to be computed.
        reads_others: `()`, whether the caller reads some of the others ([`reads_padding`]). `None`: none of them.
        documents: [`documents_of`] the batch. Each is a sequence then; else each row is one.
    """
    if is_traced(needed if documents is None else documents):
        return None
    needed, (rows, length) = needed.bool(), needed.shape
    counts = needed.sum(dim=1)
    lengths = (counts if reads_others is None else counts.masked_fill(reads_others, 0)).tolist()
    if 0 in lengths or not rows:
        return None
    total = sum(lengths)
    if documents is not None:
        number = torch.arange(rows, device=needed.device)[:, None] * (length + 1) + documents  # (0 is one, too)
        counts = number[needed].unique_consecutive(return_counts=True)[1]
        lengths = counts.tolist()
    elif total == rows * length:
        return every_token(rows, length, needed.device)
    flat = needed.flatten()
    if reads_freely(flat):
        bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        return KeptTokens(flat.nonzero().flatten(), (rows, length), lengths, bounds)
    indices = flat.byte().argsort(descending=True, stable=True)  # `nonzero` would wait for the device
    return KeptTokens(indices[:total], (rows, length), lengths, bounds_of(counts))


def leave_out(
    mask: torch.Tensor, read_positions: torch.Tensor | None, reads_first: bool, documents: torch.LongTensor | None
) -> tuple[torch.Tensor | None, KeptTokens | None]:
    """A mask of padding, `None` if it hides nothing, and the real tokens that it leaves ([`find_kept`])."""
    if documents is None and reads_freely(mask) and mask.all():
        return None, None
    others = reads_padding(mask, read_positions)
    if reads_first:
        first = (mask[:, 0] == 0).any()
        others = first if others is None else others | first
    kept = find_kept(mask, others, documents)
    return (None if kept is not None and sum(kept.lengths) == mask.numel() else mask), kept


def every_token(rows: int, length: int, device: torch.device) -> KeptTokens:
    """All tokens of a batch, each row a sequence."""
    bounds = torch.arange(0, rows * length + 1, length, dtype=torch.int32, device=device)
    return KeptTokens(torch.arange(rows * length, device=device), (rows, length), [length] * rows, bounds)


def reads_padding(real: torch.Tensor, read_positions: torch.Tensor | None) -> torch.BoolTensor | None:
    """`()`, whether some of the positions `(batch, length)` that a caller reads are padding; `None`: no padding
    is read."""
    return None if read_positions is None else (read_positions.to(real.device).bool() & (real == 0)).any()


def bounds_of(lengths: torch.LongTensor) -> torch.IntTensor:
    """Where sequences of these lengths `(n,)` begin if they are laid end to end, and the end, `(n + 1,)`."""
    return nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)


def unless_whole(kept: KeptTokens | None) -> KeptTokens | None:
    """The tokens that are kept, `None` if these are all: rows then stay rows, as hooks expect."""
    return None if kept is None or kept.is_whole else kept


def unless_padding_counts(model, kept: KeptTokens | None) -> KeptTokens | None:
    """The tokens that are kept. `None` if these are all, if padding is to be computed, if it counts in the places of
    tokens, or if a hook sees it."""
    if (kept := unless_whole(kept)) is None or not model.config.skip_padding:
        return None
    return None if model.counts_padding(kept) or has_hooks(*model._modules.values()) else kept


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
    """Whether a hook is one of `SHAPELESS`. (A method written in C has no `__module__`, or `None`.)"""
    package = (getattr(hook, "__module__", None) or "").partition(".")[0]
    return any(f"{package}.{part}" in NAMES for part in getattr(hook, "__qualname__", "").split("."))


def is_split(real: torch.BoolTensor) -> bool:
    """Whether padding stands between the tokens of a row; `real`: `(batch, length)`, false at padding."""
    begins = real[:, 1:] & ~real[:, :-1]
    return bool((begins.sum(dim=1) + real[:, 0] > 1).any())


def keep(states: torch.Tensor, kept: KeptTokens) -> torch.Tensor:
    """`(batch or 1, length, ...)` to `(1, tokens, ...)`."""
    flat = states.expand(*kept.shape, *states.shape[2:]).flatten(0, 1)
    return flat.index_select(0, kept.indices.to(flat.device)).unsqueeze(0)


def keep_tokens(tokens: Tokens, kept: KeptTokens | None) -> Tokens:
    """The tokens that are kept, in one row; all of them if that is `None`."""
    return tokens if kept is None else Tokens(*(each if each is None else keep(each, kept) for each in tokens))


def restore(states: torch.Tensor, kept: KeptTokens) -> torch.Tensor:
    """`(1, tokens, ...)` to `(batch, length, ...)`, zero where tokens were not kept."""
    padded = states.new_zeros(math.prod(kept.shape), *states.shape[2:])
    return padded.index_copy_(0, kept.indices.to(states.device), states[0]).unflatten(0, kept.shape)


def restore_outputs(outputs, kept: KeptTokens | None):
    """The core's outputs with hidden states of the whole padded batch, zero where tokens were not kept."""
    if kept is not None:
        outputs.last_hidden_state, states = restore(outputs.last_hidden_state, kept), outputs.hidden_states
        if states is not None:
            outputs.hidden_states = tuple(None if each is None else restore(each, kept) for each in states)
    return outputs
