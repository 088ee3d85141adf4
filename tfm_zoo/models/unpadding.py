"""Compute no padding: drop padded positions before the first block, restore them after the last.

Everything that works on one position at a time (projections, feed-forwards, norms) then runs on the real tokens of
the whole batch, laid end to end in one row. Attention alone needs to know where each sequence begins and ends.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch.nn import functional as F


class Padding(NamedTuple):
    """Where the real tokens of a padded batch stand. (A tuple, so that device hooks move the tensors in it.)

    Args:
        indices: `(real tokens,)`, each one's place in the flattened padded batch.
        shape: (batch, length) of the padded batch.
        lengths: number of real tokens of each sequence, a list of `batch` integers.
        mode: how attention runs: "varlen", by a kernel that takes sequence lengths; "split", sequence by sequence;
            "repad", on the padded batch, restored around the attention call alone; "cross", where it is keys and values
            that have padding, and the queries none, by a kernel that takes sequence lengths.
    """

    indices: torch.LongTensor
    shape: tuple[int, int]
    lengths: list[int]
    mode: str

    def drop(self, states: torch.Tensor) -> torch.Tensor:
        """`(batch, length, ...)` to `(1, real tokens, ...)`."""
        flat = states.expand(*self.shape, *states.shape[2:]).flatten(0, 1)
        return flat.index_select(0, self.indices.to(flat.device)).unsqueeze(0)

    def restore(self, states: torch.Tensor) -> torch.Tensor:
        """`(1, real tokens, ...)` to `(batch, length, ...)`, zero at padding."""
        batch, length = self.shape
        padded = states.new_zeros(batch * length, *states.shape[2:])
        return padded.index_copy(0, self.indices.to(states.device), states[0]).unflatten(0, (batch, length))

    def around(self, attention: Callable) -> Callable:
        """A function of transformers' attention interface, made to take heads `(1, heads, real tokens, head_dim)`."""
        return partial(getattr(self, f"attend_{self.mode}"), attention)

    def attend_varlen(self, attention, module, query, key, value, attention_mask, **kwargs):
        ends = torch.tensor(self.lengths, device=query.device).cumsum(0)
        bounds = F.pad(ends, (1, 0)).to(torch.int32)
        longest = max(self.lengths)
        kwargs |= {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": longest, "max_length_k": longest}
        return attention(module, query, key, value, None, **kwargs)

    def attend_cross(self, attention, module, query, key, value, attention_mask, **kwargs):
        rows, _, length, _ = query.shape
        query = query.transpose(1, 2).flatten(0, 1).unsqueeze(0).transpose(1, 2)  # (1, heads, rows * length, head_dim)
        key, value = (self.drop(states.transpose(1, 2)).transpose(1, 2) for states in (key, value))
        ends = torch.tensor(self.lengths, device=query.device).cumsum(0)
        queries = torch.arange(rows + 1, device=query.device, dtype=torch.int32) * length
        keys = F.pad(ends, (1, 0)).to(torch.int32)
        kwargs |= {"cu_seq_lens_q": queries, "cu_seq_lens_k": keys}
        kwargs |= {"max_length_q": length, "max_length_k": max(self.lengths)}
        output, weights = attention(module, query, key, value, None, **kwargs)
        return output[0].unflatten(0, (rows, length)), weights

    def attend_split(self, attention, module, query, key, value, attention_mask, **kwargs):
        heads = (states.split(self.lengths, dim=2) for states in (query, key, value))
        sequences = zip(*heads, self.split_mask(attention_mask), strict=True)
        return torch.cat([attention(module, *sequence, **kwargs)[0] for sequence in sequences], dim=1), None

    def split_mask(self, attention_mask: torch.Tensor | tuple | None) -> list:
        """Each sequence's real rows and columns of a `(batch, 1 or heads, length, length)` mask; or its window."""
        if attention_mask is None:
            return [None] * len(self.lengths)
        places = (self.indices % self.shape[1]).split(self.lengths)
        if not isinstance(attention_mask, torch.Tensor):
            return [attention_mask._replace(places=real.unsqueeze(0)) for real in places]
        return [mask[None, :, real][..., real] for mask, real in zip(attention_mask, places, strict=True)]

    def attend_repad(self, attention, module, query, key, value, attention_mask, **kwargs):
        padded = (self.restore(states.transpose(1, 2)).transpose(1, 2) for states in (query, key, value))
        output, weights = attention(module, *padded, attention_mask, **kwargs)
        return self.drop(output), weights


def find_padding(attention_mask: torch.Tensor | None, mode: str = "repad") -> Padding | None:
    """The real tokens of a batch, or `None` where dropping padding cannot help or cannot work.

    That is: no mask or one that is not `(batch, length)`, no padding, a sequence without a single real token (the
    native classes define what it gets), and a graph that is being traced, compiled or exported.

    Args:
        attention_mask: `(batch, length)`, 0 at padding.
        mode: see [`attention_mode`].
    """
    if not marks_padding(attention_mask) or is_traced(attention_mask):
        return None
    real = attention_mask.bool()
    lengths = real.sum(dim=1).tolist()
    if min(lengths) == 0 or min(lengths) == real.shape[1]:
        return None
    return Padding(real.flatten().nonzero().flatten(), tuple(real.shape), lengths, mode)


def marks_padding(attention_mask: object) -> bool:
    """Whether a mask says which positions are padding, `(batch, length)`, and not which attends to which."""
    return isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 2


def attention_mode(config, device: torch.device, output_attentions: bool) -> str:
    """How attention is to run on a batch without its padding; see [`Padding`]."""
    implementation = "linear" if config.attention_type == "linear" else config._attn_implementation or "eager"
    if "flash" in implementation:
        return "varlen"
    # On a CPU, a call per sequence costs nothing and needs no mask; on a GPU it would starve the device.
    if device.type == "cpu" and implementation in ("eager", "sdpa", "linear") and not output_attentions:
        return "split"
    return "repad"


def is_traced(states: torch.Tensor) -> bool:
    """Whether the values of a tensor cannot be read now, since a graph is being made of what is done with it."""
    if states.is_meta or type(states) is not torch.Tensor:  # a fake tensor, or another stand-in
        return True
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    return states.is_cuda and torch.cuda.is_current_stream_capturing()
