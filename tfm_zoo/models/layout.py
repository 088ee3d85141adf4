"""Who attends to whom, and which positions are computed.

Padding is dropped before the first block and restored after the last: projections, feed-forwards and norms run on the
real tokens of the batch, laid end to end in one row. Only attention has to know where each sequence begins and ends.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch.nn import functional as F

from .compat import is_functorch_wrapped_tensor
from .kernels import Window, attend_in_blocks, dropped_attention_forward, grouped_attention_forward
from .linear_attention import linear_attention_forward


class Padding(NamedTuple):
    """Where the real tokens of a padded batch stand.

    Args:
        indices: `(real tokens,)`, the index of each in the flattened padded batch.
        shape: (batch, length) of the padded batch.
        lengths: number of real tokens of each sequence.
        mode: how attention runs: `"together"`, with a mask ([`together`]), or a key of `ATTEND`.
    """

    indices: torch.LongTensor
    shape: tuple[int, int]
    lengths: list[int]
    mode: str

    def drop(self, states: torch.Tensor) -> torch.Tensor:
        """`(batch or 1, length, ...)` to `(1, real tokens, ...)`."""
        flat = states.expand(*self.shape, *states.shape[2:]).flatten(0, 1)
        return flat.index_select(0, self.indices.to(flat.device)).unsqueeze(0)

    def restore(self, states: torch.Tensor) -> torch.Tensor:
        """`(1, real tokens, ...)` to `(batch, length, ...)`, zero at padding."""
        batch, length = self.shape
        padded = states.new_zeros(batch * length, *states.shape[2:])
        return padded.index_copy_(0, self.indices.to(states.device), states[0]).unflatten(0, (batch, length))

    def bounds(self, device: torch.device) -> torch.IntTensor:
        """`(batch + 1,)`, where each sequence begins in the row of real tokens, and where the last one ends."""
        return F.pad(torch.tensor(self.lengths, device=device).cumsum(0), (1, 0)).to(torch.int32)


class Layout(NamedTuple):
    """Who attends to whom in the layers of one kind.

    Args:
        mask: made by transformers' mask functions for the attention implementation; for linear attention
            `(batch, length)`, 0 at padding. `None`: each position sees all others, or (causal) all before it.
        window: replaces the mask where attention runs in blocks.
        padding: the padding that was dropped.
        bias: of positions, `(batch, heads, queries, keys)`, where it is not in the mask: flex attention has a mask of
            blocks, to which no number can be added, and adds the bias to each score.
        parts: a layout for each sequence, cut out once for all layers where the mask holds a bias and so is large.
    """

    mask: torch.Tensor | None = None
    window: Window | None = None
    padding: Padding | None = None
    bias: torch.Tensor | None = None
    parts: list["Layout"] | None = None

    def around(self, attend: Callable, name: str, module: torch.nn.Module, query: torch.Tensor) -> Callable:
        """The function that `module` calls: the implementation `attend` (`name`), or what this layout needs instead."""
        is_fused = name == "sdpa" and query.device.type == "cpu"
        has_dropout = is_fused and module.training and module.attention_dropout
        if module.layer_type == "linear_attention":
            attend = linear_attention_forward
        elif has_dropout and not is_traced(query):
            attend = dropped_attention_forward
        elif is_fused and not has_dropout and query.shape[2] == 1 and module.num_key_value_groups > 1:
            attend = grouped_attention_forward
        elif self.bias is not None:
            attend = partial(attend, position_bias=self.bias)
        if self.padding is None:
            return self.within_window(attend)
        # Linear attention reads no bounds of sequences: one call would sum over all of them.
        mode = "split" if attend is linear_attention_forward and self.padding.mode == "varlen" else self.padding.mode
        return partial(ATTEND[mode], self, attend)

    def within_window(self, attend: Callable) -> Callable:
        """`attend`, limited to the window if there is one."""
        return attend if self.window is None else partial(attend_in_blocks, attend, self.window)

    def of_each_sequence(self) -> list["Layout"]:
        """A layout for each sequence of a batch whose padding was dropped."""
        count = len(self.padding.lengths)
        if self.mask is None and self.window is None:
            return [Layout()] * count
        columns = (self.padding.indices % self.padding.shape[1]).split(self.padding.lengths)
        if self.window is not None:  # distances are those in the padded batch
            return [Layout(window=self.window._replace(positions=real.unsqueeze(0))) for real in columns]
        masks = self.mask.expand(count, -1, -1, -1).unsqueeze(1)
        return [Layout(among(mask, real)) for mask, real in zip(masks, columns, strict=True)]

    def with_bias(self, bias: torch.Tensor) -> "Layout":
        """The layout with a bias of positions `(1, heads, queries, keys)` in its mask."""
        mask = bias
        if self.mask is not None and self.mask.dtype == torch.bool:
            mask = bias.where(self.mask, torch.finfo(bias.dtype).min)
        elif self.mask is not None:
            mask = self.mask + bias
        layout = self._replace(mask=mask)
        is_split = self.padding is not None and self.padding.mode == "split"
        return layout._replace(parts=layout.of_each_sequence()) if is_split else layout


EVERYTHING = Layout()  # no limits but causality


def together(queries: Padding, keys: Padding, dtype: torch.dtype, is_causal: bool = False) -> Layout:
    """A layout for the real tokens of two batches, each in one row, in which a token sees those of its own sequence.

    `dtype` is that of the model.
    """
    sees = (queries.indices // queries.shape[1])[:, None] == keys.indices // keys.shape[1]
    mask = sees.tril() if is_causal else sees
    # Without an error, sdpa misreads a mask in single precision if its queries are in double precision.
    return Layout(added_to_scores(mask[None, None], torch.promote_types(dtype, torch.float)))


def added_to_scores(sees: torch.BoolTensor, dtype: torch.dtype, unseen: float = -torch.inf) -> torch.Tensor:
    """Makes a mask of numbers from one that is true where a query sees a key. (sdpa would do it in every call.)"""
    return torch.zeros(sees.shape, dtype=dtype, device=sees.device).masked_fill_(~sees, unseen)


def as_attention_reads(config, mask: object, dtype: torch.dtype) -> object:
    """A caller's mask; one of who attends to whom, which may be of numbers to add, or true (or 1) where a query sees a
    key, in the form that the attention implementation reads. `dtype` is that of the model."""
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4 or mask.is_floating_point():
        return mask
    sees = mask.bool()
    return sees if config._attn_implementation == "sdpa" else added_to_scores(sees, dtype, torch.finfo(dtype).min)


def are_few(config, queries: Padding, keys: Padding) -> bool:
    """Whether comparing all tokens of two batches takes no longer than calling a kernel for each sequence. (A call
    costs about as much as 131,072 products, as measured on two cores.)"""
    return len(queries.indices) * len(keys.indices) * config.hidden_size <= len(queries.lengths) << 17


def among(mask: torch.Tensor, positions: torch.LongTensor) -> torch.Tensor:
    """The part of a mask `(1, heads, length, length)` in which some positions look at each other."""
    first, last = int(positions[0]), int(positions[-1]) + 1
    if last - first == len(positions):
        return mask[:, :, first:last, first:last]
    return mask[:, :, positions][..., positions]


def attend_split(layout: Layout, attend: Callable, module, query, key, value, attention_mask, **kwargs):
    """Calls the kernel sequence by sequence."""
    outputs = []
    lengths = layout.padding.lengths
    heads = zip(*(states.split_with_sizes(lengths, dim=2) for states in (query, key, value)), strict=True)
    for sequence, part in zip(heads, layout.parts or layout.of_each_sequence(), strict=True):
        outputs.append(part.within_window(attend)(module, *sequence, part.mask, **kwargs)[0])
    return torch.cat(outputs, dim=1), None


def attend_varlen(layout: Layout, attend: Callable, module, query, key, value, attention_mask, **kwargs):
    """Calls the kernel, which takes the bounds of each sequence, once for all of them."""
    bounds, longest = layout.padding.bounds(query.device), max(layout.padding.lengths)
    kwargs |= {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": longest, "max_length_k": longest}
    return attend(module, query, key, value, None, **kwargs)


def attend_cross(layout: Layout, attend: Callable, module, query, key, value, attention_mask, **kwargs):
    """As `attend_varlen`, where the keys have padding and the queries have none."""
    padding, (rows, _, length, _) = layout.padding, query.shape
    query = query.transpose(1, 2).flatten(0, 1).unsqueeze(0).transpose(1, 2)  # (1, heads, rows * length, head_dim)
    key, value = (padding.drop(states.transpose(1, 2)).transpose(1, 2) for states in (key, value))
    bounds = torch.arange(rows + 1, device=query.device, dtype=torch.int32) * length
    kwargs |= {"cu_seq_lens_q": bounds, "cu_seq_lens_k": padding.bounds(query.device)}
    kwargs |= {"max_length_q": length, "max_length_k": max(padding.lengths)}
    output, weights = attend(module, query, key, value, None, **kwargs)
    return output[0].unflatten(0, (rows, length)), weights


def attend_padded(layout: Layout, attend: Callable, module, query, key, value, attention_mask, **kwargs):
    """Calls the kernel on the padded batch, restored for this call only."""
    heads = (layout.padding.restore(states.transpose(1, 2)).transpose(1, 2) for states in (query, key, value))
    output, weights = layout.within_window(attend)(module, *heads, attention_mask, **kwargs)
    return layout.padding.drop(output), weights


ATTEND = {"split": attend_split, "varlen": attend_varlen, "cross": attend_cross, "padded": attend_padded}


def find_padding(attention_mask: torch.Tensor | None, mode: str = "padded") -> Padding | None:
    """The padding that a mask `(batch, length)` marks with 0; `None` where it cannot or need not be dropped.

    It cannot in a graph, nor where a sequence has no real token (the official classes define an output for it).
    """
    if not marks_padding(attention_mask) or is_traced(attention_mask):
        return None
    real = attention_mask.bool()
    lengths = real.sum(dim=1).tolist()
    if min(lengths) == 0 or min(lengths) == real.shape[1]:
        return None
    return Padding(real.flatten().nonzero().flatten(), tuple(real.shape), lengths, mode)


def up_to_last(positions: torch.BoolTensor) -> torch.BoolTensor:
    """`(batch, length)`: true up to the last true one of each row."""
    return positions.flip(1).cumsum(dim=1).flip(1) > 0


def only_last(positions: torch.BoolTensor) -> torch.BoolTensor:
    """`(batch, length)`: true at the last true one of each row alone; at its first position if there is none."""
    places = torch.arange(positions.shape[1], device=positions.device)
    return places == (positions * places).argmax(dim=1, keepdim=True)


def find_unread_end(read_positions: torch.Tensor | None) -> Padding | None:
    """The positions of each row after the last one that is read, as padding; `None` if there are none.

    `read_positions`: `(batch, length)`, true where somebody reads a result. `None`: everywhere.
    """
    if read_positions is None or is_traced(read_positions):
        return None
    is_needed = up_to_last(read_positions)
    is_needed[:, 0] = True  # a row without any position would have no output
    return find_padding(is_needed)


def attention_mode(model, padding: Padding, device: torch.device, output_attentions: bool) -> str:
    """The best `mode` of a [`Padding`]."""
    config = model.config
    implementation = "linear" if config.attention_type == "linear" else config._attn_implementation or "eager"
    if "flash" in implementation:
        return "varlen"
    if device.type != "cpu" or implementation not in ("eager", "sdpa", "linear") or output_attentions:
        return "padded"
    # On a CPU, a call for each sequence costs little and needs no mask; on a GPU it would starve the device. A single
    # call costs less for few tokens, but rounds differently in each batch: it is for training alone.
    has_limits = model.position_bias is not None or set(model.layer_types) != {"full_attention"}
    return "together" if model.training and not has_limits and are_few(config, padding, padding) else "split"


def marks_padding(attention_mask: object) -> bool:
    """Whether a mask is one of padding, `(batch, length)`, and not one of who attends to whom."""
    return isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 2


def is_traced(states: torch.Tensor) -> bool:
    """Whether a graph is being made, or a function transformed, in which the values of a tensor cannot be read."""
    is_stand_in = type(states) is not torch.Tensor or states.is_meta  # such as a fake tensor
    if is_stand_in or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    if is_functorch_wrapped_tensor(states):  # asked last: torch.compile cannot trace it
        return True
    return states.is_cuda and torch.cuda.is_current_stream_capturing()
