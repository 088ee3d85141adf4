"""Kernels for sequences laid end to end, written out, and a device for torch's that is none: for machines without."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from types import SimpleNamespace
from unittest.mock import patch

import torch
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import flash_attention_mask

from tfm_zoo.models import kernels
from tfm_zoo.models.kernels import ASKS_FOR_GROUPS

listed = torch.Tensor.tolist  # a test that counts its calls does not mean those of the kernel


class Kernel:
    """Instead of `torch.nn.attention.varlen.varlen_attn`, with what torch takes of its arguments: it asks of
    them what the kernel does, and notes each call."""

    def __init__(self) -> None:
        self.calls: list[SimpleNamespace] = []

    def __call__(
        self, query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None, window_size=(-1, -1), enable_gqa=False
    ) -> torch.Tensor:
        assert query.dim() == key.dim() == 3 and key.shape == value.shape  # (tokens, heads, head_dim)
        assert query.dtype == key.dtype == value.dtype
        is_grouped = query.shape[1] != key.shape[1]
        assert enable_gqa or not (is_grouped and ASKS_FOR_GROUPS)
        bounds = [listed(each) for each in (cu_seq_q, cu_seq_k)]
        for each, ends, heads, longest in zip((cu_seq_q, cu_seq_k), bounds, (query, key), (max_q, max_k), strict=True):
            assert each.dtype == torch.int32 and each.is_contiguous() and each.device == heads.device
            assert ends[0] == 0 and ends[-1] == len(heads) and max(b - a for a, b in pairwise(ends)) <= longest
        self.calls.append(SimpleNamespace(bounds=bounds, dtype=query.dtype))
        outputs = []
        for (first, last), (start, end) in zip(*(pairwise(ends) for ends in bounds), strict=True):
            heads = (states.transpose(0, 1) for states in (query[first:last], key[start:end], value[start:end]))
            places = torch.arange(last - first)[:, None] + (end - start) - (last - first)  # the last see the last
            distances = places - torch.arange(end - start)
            before, after = (window if window >= 0 else end for window in window_size)
            sees = (distances <= before) & (distances >= -after)
            attended = F.scaled_dot_product_attention(*heads, attn_mask=sees, scale=scale, enable_gqa=is_grouped)
            outputs.append(attended.transpose(0, 1))
        return torch.cat(outputs)


def flash_attention(module, query, key, value, attention_mask, scaling, **kwargs):
    """As flash attention, by the kernel above: it is told the bounds of sequences, or reads rows of one length."""
    assert attention_mask is None
    rows = len(query)
    if "cu_seq_lens_q" not in kwargs:
        for side, length in (("q", query.shape[2]), ("k", key.shape[2])):
            bounds = torch.arange(0, rows * length + 1, length, dtype=torch.int32)
            kwargs |= {f"cu_seq_lens_{side}": bounds, f"max_length_{side}": length}
    query, key, value = (states.transpose(0, 1).flatten(1, 2).unsqueeze(0) for states in (query, key, value))
    output, _ = kernels.varlen_attention_forward(module, query, key, value, None, scaling, **kwargs)
    return output.unflatten(1, (rows, -1)).squeeze(0), None


FLASH = "flash_in_torch"
AttentionInterface.register(FLASH, flash_attention)
AttentionMaskInterface.register(FLASH, flash_attention_mask)


def use(attention: str, model) -> None:
    """Sets the implementation of attention. (For flash attention, transformers would look for a kernel on the Hub.)"""
    if attention == FLASH:
        model.config._attn_implementation = FLASH
    else:
        model.set_attn_implementation(attention)


@contextmanager
def device(dtype: torch.dtype = torch.bfloat16, capability: tuple[int, int] = (8, 0)) -> Iterator[Kernel]:
    """Models run as on a CUDA device of this capability, as far as the choice of the kernel goes; their states count as
    of this dtype. The rules are the zoo's own."""

    def asked(model, states: torch.Tensor) -> bool:
        return takes_bounds(model, SimpleNamespace(is_cuda=True, device=states.device, dtype=dtype))

    takes_bounds, kernel = kernels.takes_bounds, Kernel()
    places = [
        *(patch(f"tfm_zoo.models.{file}.takes_bounds", asked) for file in ("entrance", "decoder_entrance", "source")),
        patch.object(kernels, "varlen_attn", kernel),
        patch.object(kernels, "has_flash", lambda: True),
        patch("torch.cuda.get_device_capability", lambda *_: capability),
    ]
    with ExitStack() as stack:
        for place in places:
            stack.enter_context(place)
        yield kernel
