"""Padding: which tokens of a batch are kept, dropping the others before the first block, restoring them after the last.

Projections, feed-forwards and norms run on the tokens that are kept, laid end to end in one row. Only attention has to
know where each sequence begins and ends.
"""

import torch
from torch import nn

from .batch import KeptTokens
from .inputs import is_traced, marks_padding

#: packages whose hooks take hidden states of any shape
LIBRARIES = ("torch.", "transformers.", "accelerate.", "deepspeed.", "peft.")


def find_kept(attention_mask: torch.Tensor | None) -> KeptTokens | None:
    """The real tokens by a mask `(batch, length)`, 0 at padding. `None` if all tokens are kept, as they are in a graph,
    and where a sequence has no real token (the official classes define an output for it)."""
    if not marks_padding(attention_mask) or is_traced(attention_mask):
        return None
    real = attention_mask.bool()
    lengths = real.sum(dim=1).tolist()
    if min(lengths) == 0 or min(lengths) == real.shape[1]:
        return None
    return KeptTokens(real.flatten().nonzero().flatten(), tuple(real.shape), lengths)


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
            modules = (getattr(hook, "__module__", None) or "" for some in hooks for hook in some.values())
            if not all(module.startswith(LIBRARIES) for module in modules):
                return True
    return False


def keep(states: torch.Tensor, kept: KeptTokens) -> torch.Tensor:
    """`(batch or 1, length, ...)` to `(1, tokens, ...)`."""
    flat = states.expand(*kept.shape, *states.shape[2:]).flatten(0, 1)
    return flat.index_select(0, kept.indices.to(flat.device)).unsqueeze(0)


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
