"""Padding: which tokens of a batch are kept, dropping the others before the first block, restoring them after the last.

Projections, feed-forwards and norms run on the tokens that are kept, laid end to end in one row. Only attention has to
know where each sequence begins and ends.
"""

from collections.abc import Callable
from itertools import accumulate

import torch
from torch import nn

from .batch import KeptTokens, Tokens
from .compat import GLOBAL_HOOKS
from .inputs import asks_for, is_traced, marks_padding, reads_freely
from .positions import follows_length

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


def read_padding(
    attention_mask: object, read_positions: torch.Tensor | None = None, reads_first: bool = False
) -> tuple[object, list[int] | None]:
    """A caller's mask, `None` if it is of padding and hides nothing; and the number of real tokens of each row, `None`
    in a graph, for another kind of mask, and where a CPU sees no padding. Counting waits for the device, in training
    once a batch. If padding is read, at `read_positions` or (`reads_first`) at the start, all are given as 0."""
    if not marks_padding(attention_mask) or is_traced(attention_mask):
        return attention_mask, None
    if reads_freely(attention_mask) and attention_mask.all():
        return None, None
    is_padding, counts = attention_mask == 0, attention_mask.bool().sum(dim=1)
    if read_positions is not None:
        counts = counts.masked_fill((read_positions.to(is_padding.device).bool() & is_padding).any(), 0)
    lengths = (counts.masked_fill(is_padding[:, 0].any(), 0) if reads_first else counts).tolist()
    return (None if min(lengths) == attention_mask.shape[1] else attention_mask), lengths


def find_kept(attention_mask: torch.Tensor | None, read_positions: torch.Tensor | None = None) -> KeptTokens | None:
    """[`kept_of`] a mask whose padding has not been counted yet; `read_positions` are those of [`read_padding`]."""
    return kept_of(attention_mask, read_padding(attention_mask, read_positions)[1])


def kept_of(
    attention_mask: torch.Tensor | None, lengths: list[int] | None, documents: torch.LongTensor | None = None
) -> KeptTokens | None:
    """The real tokens by a mask `(batch, length)`, 0 at padding, of whose rows [`read_padding`] gives the `lengths`;
    each of [`documents_of`] the batch is a sequence. `None`: all tokens are computed, as in a graph, and where a length
    is 0: padding is read, or a row has no real token (official classes define an output for it)."""
    if lengths is None:
        return None
    real = attention_mask.bool()
    if min(lengths) == 0 or (min(lengths) == real.shape[1] and documents is None):
        return None
    flat, total, counts = real.flatten(), sum(lengths), None
    if documents is not None:
        rows = torch.arange(len(real), device=real.device)[:, None] * (real.shape[1] + 1)  # (0 is a number, too)
        counts = (rows + documents)[real].unique_consecutive(return_counts=True)[1]
        lengths = counts.tolist()
    if reads_freely(flat):
        bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        return KeptTokens(flat.nonzero().flatten(), tuple(real.shape), lengths, bounds)
    indices = flat.byte().argsort(descending=True, stable=True)  # `nonzero` would wait for the device
    return KeptTokens(indices[:total], tuple(real.shape), lengths, bounds_of(real.sum(1) if counts is None else counts))


def bounds_of(lengths: torch.LongTensor) -> torch.IntTensor:
    """Where sequences of these lengths `(n,)` begin if they are laid end to end, and the end, `(n + 1,)`."""
    return nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)


def tokens_to_keep(
    model, attention_mask: torch.Tensor | None, lengths: list[int] | None, options: dict, documents: torch.Tensor | None
) -> KeptTokens | None:
    """The real tokens of a batch, of which each row has `lengths`, as [`read_padding`] counts them; `None` if they are
    all, or if the caller or a hook reads hidden states of others."""
    if attention_mask is None and documents is None:
        return None
    # A caller who asks for hidden states gets copies with the padding restored, to which no gradient would flow.
    is_copied = torch.is_grad_enabled() and asks_for(model.config, options, "output_hidden_states")
    if not model.config.skip_padding or is_copied or (documents is not None and model.position_bias is not None):
        return None
    if documents is not None and attention_mask is None and not is_traced(documents):
        attention_mask, lengths = torch.ones_like(documents), [documents.shape[1]] * len(documents)
    return unless_padding_counts(model, kept_of(attention_mask, lengths, documents))


def unless_padding_counts(model, kept: KeptTokens | None) -> KeptTokens | None:
    """The tokens that are kept; `None` if a hook sees the others, or if rotary frequencies follow the rows' length."""
    if kept is None or follows_length(model.rotary_emb, kept.shape[1]) or has_hooks(*model._modules.values()):
        return None
    return kept


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
    batch, length = kept.shape
    padded = states.new_zeros(batch * length, *states.shape[2:])
    return padded.index_copy_(0, kept.indices.to(states.device), states[0]).unflatten(0, (batch, length))


def restore_outputs(outputs, kept: KeptTokens | None):
    """The core's outputs with hidden states of the whole padded batch, zero where tokens were not kept."""
    if kept is not None:
        outputs.last_hidden_state, states = restore(outputs.last_hidden_state, kept), outputs.hidden_states
        if states is not None:
            outputs.hidden_states = tuple(None if each is None else restore(each, kept) for each in states)
    return outputs
