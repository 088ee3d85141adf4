"""Attention of packed encoders on a CPU, in the way that is fastest here: sequences one by one, through torch's fused
kernel, or those of like lengths together, written out.

The way follows from a sequence's own length, and its numbers from nothing but itself: a text gets the same ones alone
and beside others, in any order, on any number of threads.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

#: Sequences that are computed together are read on to the next multiple, with the rest hidden. (torch computes the
#: exponentials of what is beyond a multiple of 16 one by one.)
STEP = 16
SCORES = 1 << 20  # numbers of scores that are made at a time, which bounds memory; they stay in the CPU's caches
LONGEST = 512  # longer sequences are computed one by one
MEASURED = (32, 128, 256)  # lengths
ALIGNED = 64  # bytes: the fused kernel rounds heads of other widths by where in memory they begin


class Plan(NamedTuple):
    """How the sequences of a batch, laid end to end, are computed.

    Args:
        groups: sequences that are computed together: the places of their tokens, `(sequences, length)`, beyond a
            sequence's end that of its last token, and what is added to scores, `(sequences, 1, length)`, -inf there.
        apart: the bounds of sequences that are computed one by one.
        order: `(tokens,)`, where each token's output stands among those of all groups and then of `apart`.
    """

    groups: list[tuple[torch.LongTensor, torch.Tensor | None]]
    apart: list[tuple[int, int]]
    order: torch.LongTensor


class CpuAttention:
    """What packing puts into the slot `choose_packed_kernel` of attention layers: those of a model share it."""

    def __init__(self):
        self.known: tuple[list[int], Plan | None] = ([], None)  # the lengths of the last batch, and its plan

    def __call__(self, module: nn.Module, layout, query: torch.Tensor) -> Callable | None:
        """The function that attends in this layout, or `None` where the implementation's own does."""
        if not takes(module, layout):
            return None
        lengths = [query.shape[2]] * len(query) if layout.queries is None else layout.queries.lengths
        return lambda *arguments, **options: (self.attend(lengths, *arguments, **options), None)

    def attend(self, lengths: list[int], module, query, key, value, attention_mask: None, scaling: float, **kwargs):
        """`(batch, heads, length, head_dim)` to `(batch, length, heads, head_dim)`."""
        batch, heads, length, width = query.shape
        rows = [states.transpose(1, 2).reshape(batch * length, heads * width) for states in (query, key, value)]
        known, plan = self.known  # read once: another thread may replace it
        if known != lengths or plan is None:
            plan = plan_of(lengths, heads, width, query.dtype)
            self.known = lengths, plan
        outputs = []
        for places, hidden in plan.groups:
            taken = (states.index_select(0, places.flatten()).view(*places.shape, heads, width) for states in rows)
            outputs.append(written_out(*(states.transpose(1, 2) for states in taken), hidden, scaling))
        for start, end in plan.apart:
            one = (states[start:end].view(1, -1, heads, width).transpose(1, 2).contiguous() for states in rows)
            outputs.append(F.scaled_dot_product_attention(*one, scale=scaling))
        found = torch.cat([each.transpose(1, 2).flatten(0, 1).flatten(1) for each in outputs])
        return found.index_select(0, plan.order).view(batch, length, heads, width)

    def __reduce__(self):
        return CpuAttention, ()


def takes(module: nn.Module, layout) -> bool:
    """Whether a layer's sequences see nothing but themselves, and all of that."""
    if module.layer_type != "full_attention" or module.is_causal or module.softcap is not None:
        return False
    if module.attend_biased is not None or module.num_key_value_groups > 1:
        return False
    if layout.mask is not None or layout.window is not None or layout.bias is not None:
        return False
    return layout.mode in ("whole", "apart")


def plan_of(lengths: list[int], heads: int, width: int, dtype: torch.dtype) -> Plan:
    starts, apart, alike = [0], [], {}
    for index, length in enumerate(lengths):
        starts.append(starts[-1] + length)
        if length <= LONGEST and is_faster_together(heads, width, dtype):
            alike.setdefault(-(-length // STEP) * STEP, []).append(index)
        else:
            apart.append(index)
    return make_plan(starts, [*alike.items()], apart, dtype)


def make_plan(starts: list[int], alike: list[tuple[int, list[int]]], apart: list[int], dtype: torch.dtype) -> Plan:
    """The plan of sequences that begin at `starts`; its last number is the end. `alike`: the length of a group, and
    the numbers of its sequences; `apart`: those of the others."""
    order, done, groups = torch.empty(starts[-1], dtype=torch.long), 0, []
    for length, numbers in alike:
        first = torch.tensor([starts[number] for number in numbers])[:, None]
        last = torch.tensor([starts[number + 1] for number in numbers])[:, None] - 1
        places = first + torch.arange(length)
        is_real = places <= last
        order[places[is_real]] = done + is_real.flatten().nonzero().flatten()
        hidden = torch.zeros(is_real.shape, dtype=dtype).masked_fill_(~is_real, -torch.inf).unsqueeze(1)
        groups.append((places.minimum(last), None if is_real.all() else hidden))
        done += places.numel()
    bounds = [(starts[number], starts[number + 1]) for number in apart]
    for start, end in bounds:
        order[start:end] = torch.arange(done, done + end - start)
        done += end - start
    return Plan(groups, bounds, order)


def written_out(query, key, value, hidden: torch.Tensor | None, scaling: float) -> torch.Tensor:
    """`softmax(query @ key.T * scaling + hidden) @ value`, of shapes `(sequences, heads, length, head_dim)`; some heads
    at a time, in the same memory."""
    shape, length = query.shape, query.shape[2]
    query, key, value = (states.flatten(0, 1) for states in (query, key, value))
    key, output = key.transpose(1, 2), torch.empty_like(query)
    hidden = None if hidden is None else hidden.repeat_interleave(shape[1], dim=0)
    size = min(len(query), max(1, SCORES // length**2))
    memory = query.new_empty(size, length, length)
    for start in range(0, len(query), size):
        part = slice(start, start + size)
        scores = memory[: len(query[part])]
        torch.baddbmm(scores, query[part], key[part], beta=0, alpha=scaling, out=scores)
        scores = scores if hidden is None else scores.add_(hidden[part])
        torch.bmm(torch.softmax(scores, -1, out=scores), value[part], out=output[part])
    return output.view(shape)


@cache
def is_faster_together(heads: int, width: int, dtype: torch.dtype) -> bool:
    """Whether sequences of like lengths are computed faster together. It is measured once, by the time of a thread of
    its own, which changes little when the machine is busy: on two cores with AVX-512 and bfloat16 one by one takes 1.1
    to 1.4 times as long in bfloat16, and in float32 0.4 to 0.9 times.
    """
    if width * dtype.itemsize % ALIGNED:
        return True
    threads, total = torch.get_num_threads(), {True: 0.0, False: 0.0}
    torch.set_num_threads(1)
    try:
        for length in MEASURED:
            count = max(2, 256 // length)
            starts, numbers = [each * (length - 1) for each in range(count + 1)], [*range(count)]
            plans = {
                True: make_plan(starts, [(length, numbers)], [], dtype),
                False: make_plan(starts, [], numbers, dtype),
            }
            states = (
                torch.linspace(-1, 1, starts[-1] * heads * width).to(dtype).view(1, -1, heads, width).transpose(1, 2)
            )
            attention, times = CpuAttention(), {True: [], False: []}
            for _ in range(4):
                for way, plan in plans.items():
                    attention.known = starts, plan
                    start = time.thread_time()
                    attention.attend(starts, None, states, states, states, None, width**-0.5)
                    times[way].append(time.thread_time() - start)
            for way in total:
                total[way] += min(times[way]) / starts[-1]
        return total[True] < total[False]
    finally:
        torch.set_num_threads(threads)
