"""Linear attention (Katharopoulos et al. 2020): work that grows with the length, and a state of constant size to decode
with, in the place of a softmax over all positions.

The weight of a position is the product of a query's and a key's features, `elu(x) + 1`, which are positive:

    output(i) = phi(q_i) @ sum_j phi(k_j) v_j^T / phi(q_i) @ sum_j phi(k_j)

over all positions `j`, or those up to `i`. The sums do not depend on the query, and are made once. As a value of 1
beside each value makes the lower sum of the upper one, one state holds both, `(head_dim, head_dim + 1)` for a head.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.nn import functional as F

from .cache import TfmStateLayer

CHUNK = 64  # positions that a causal pass compares one by one; those before them it knows by their sum


def linear_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    state: TfmStateLayer | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """A function of transformers' attention interface. It has no weights to return, nor to drop out.

    Args:
        query: `(batch, heads, length, head_dim)`; `key` and `value` may have fewer heads.
        attention_mask: `(batch, length)`, 0 at padding; `None`: there is none.
        state: what was seen before, to which these positions are added; in a causal pass alone.

    Returns:
        The output `(batch, length, heads, head_dim)`, zero where nothing is seen; computed in float32, whatever the
        type of the inputs: the sums are of many positions.
    """
    with in_full_precision(query.device.type):
        queries = feature_map(query).unflatten(1, (key.shape[1], -1))  # (batch, key heads, group, length, head_dim)
        keys, values = feature_map(key), F.pad(value.float(), (0, 1), value=1.0)
        if attention_mask is not None:
            keys = keys * attention_mask[:, None, :, None]
        if module.is_causal:
            before = state.recurrent_states[0] if state is not None and state.has_previous_state[0] else None
            sums, after = causal_sums(queries, keys, values, before)
            if state is not None:
                state.update_recurrent_state(after, length=query.shape[2])
        else:
            sums = queries @ (keys.transpose(-1, -2) @ values).unsqueeze(2)
        upper, lower = sums[..., :-1], sums[..., -1:]
        output = upper / lower.masked_fill(lower == 0, 1.0)
    return output.flatten(1, 2).transpose(1, 2).to(value.dtype), None


def in_full_precision(device_type: str) -> AbstractContextManager:
    """No autocast, on a device that has it."""
    return torch.autocast(device_type, enabled=False) if torch.amp.is_autocast_available(device_type) else nullcontext()


def padding_mask(config, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs):
    """In the place of transformers' mask functions: which of the inputs `(batch, length, ...)` are real."""
    return None if attention_mask is None else attention_mask[:, -inputs_embeds.shape[1] :]


def feature_map(states: torch.Tensor) -> torch.Tensor:
    """`elu(x) + 1`, in float32. (In these words it would lose the digits that `exp(x) - 1` has not.)"""
    states = states.float()
    return torch.where(states > 0, states + 1, states.clamp(max=0).exp())


def causal_sums(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, before: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """What each query gets from the positions up to its own, and the state after the last.

    Positions are taken in chunks: within one, queries meet keys (as much work as `CHUNK` positions are, for each);
    of all chunks before it they meet the sum.

    Args:
        queries: features `(batch, heads, group, length, head_dim)`.
        keys: features `(batch, heads, length, head_dim)`.
        values: `(batch, heads, length, width)`.
        before: state `(batch, heads, head_dim, width)`; `None`: nothing.

    Returns:
        `(batch, heads, group, length, width)`, and a state.
    """
    length = queries.shape[-2]
    chunk = min(CHUNK, length)
    filling = (0, 0, 0, -length % chunk)
    queries, keys, values = (F.pad(states, filling).unflatten(-2, (-1, chunk)) for states in (queries, keys, values))
    states = keys.transpose(-1, -2) @ values  # (batch, heads, chunks, head_dim, width)
    before = torch.zeros_like(states[:, :, 0]) if before is None else before
    states = torch.cat([before.unsqueeze(2), states], dim=2).cumsum(dim=2)
    within = (queries @ keys.unsqueeze(2).transpose(-1, -2)).tril() @ values.unsqueeze(2)
    sums = within + queries @ states[:, :, :-1].unsqueeze(2)
    return sums.flatten(3, 4)[..., :length, :], states[:, :, -1]
