"""Linear attention (Katharopoulos et al. 2020): its work grows with the length, and not with the square of it.

The weight of a position is the product of features of a query and of a key, `phi(x) = elu(x) + 1`, which are positive:

    output(i) = phi(q_i) @ sum_j phi(k_j) v_j^T / phi(q_i) @ sum_j phi(k_j)

over all positions `j`, or over those up to `i`. The sums do not depend on the query: they are computed once. A 1 is
appended to each value, so that one state of shape `(head_dim + 1, head_dim)` for each head holds both sums. To decode,
that state is all that has to be kept.
"""

from contextlib import nullcontext

import torch
from torch.nn import functional as F
from transformers.cache_utils import CacheLayerMixin

CHUNK = 64  # positions that a causal pass compares one by one; those before them enter through their sum


def linear_attention_forward(module, query, key, value, attention_mask, state: CacheLayerMixin | None = None, **kwargs):
    """A kernel, without weights to return or to drop out; the output is zero where a query sees nothing. Sums over many
    positions are computed in float32.

    Args:
        attention_mask: `(batch, length)`, 0 at padding.
        state: in a causal pass, the cache layer with the state of earlier positions; this pass adds its own to it.
    """
    device = query.device.type
    with torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext():
        queries = feature_map(query).unflatten(1, (key.shape[1], -1))  # (batch, key heads, group, length, head_dim)
        keys, values = feature_map(key), F.pad(value.float(), (0, 1), value=1.0)
        if attention_mask is not None:
            keys = keys * attention_mask[:, None, :, None]
        if module.is_causal:
            sums, after = causal_sums(queries, keys, values, None if state is None else state.keys)
            if state is not None:
                state.update(after, query.shape[2])
        else:
            sums = queries @ (keys.transpose(-1, -2) @ values).unsqueeze(2)
        numerator, denominator = sums[..., :-1], sums[..., -1:]
        output = numerator / denominator.masked_fill(denominator == 0, 1.0)
    return output.flatten(1, 2).transpose(1, 2).to(value.dtype), None


def feature_map(states: torch.Tensor) -> torch.Tensor:
    """`elu(x) + 1`, in float32. (`exp(x) - 1 + 1` would lose the digits of a small `exp(x)`.)"""
    states = states.float()
    return torch.where(states > 0, states + 1, states.clamp(max=0).exp())


def causal_sums(queries, keys, values, before: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums `(batch, heads, group, length, width)` over the positions up to each query's own, and the state after
    the last one. Positions come in chunks: a query is compared with each key of its own chunk, and with the sum over
    earlier chunks.

    Args:
        queries, keys: features `(batch, heads, group, length, head_dim)` and `(batch, heads, length, head_dim)`.
        values: `(batch, heads, length, width)`.
        before: the state `(batch, heads, width, head_dim)` of earlier positions.
    """
    length = queries.shape[-2]
    chunk = CHUNK if torch.compiler.is_exporting() else min(CHUNK, length)  # a graph is to serve any length
    filling = (0, 0, 0, -length % chunk)
    queries, keys, values = (F.pad(states, filling).unflatten(-2, (-1, chunk)) for states in (queries, keys, values))
    states = values.transpose(-1, -2) @ keys  # (batch, heads, chunks, width, head_dim)
    before = torch.zeros_like(states[:, :, 0]) if before is None else before
    states = torch.cat([before.unsqueeze(2), states], dim=2).cumsum(dim=2)
    within = (queries @ keys.unsqueeze(2).transpose(-1, -2)).tril() @ values.unsqueeze(2)
    sums = within + queries @ states[:, :, :-1].unsqueeze(2).transpose(-1, -2)
    return sums.flatten(3, 4)[..., :length, :], states[:, :, -1]
