"""Models of transformers from a configuration and a dict of tensors, without ever holding a weight twice."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled

from .checkpoint import LazyTensor
from .rules import ConversionError


def skeleton_of(model_class: type[PreTrainedModel], config: PreTrainedConfig) -> PreTrainedModel:
    """A model whose parameters have names and shapes, but no memory."""
    with torch.device("meta"):
        return model_class(config)


def assemble(
    skeleton: PreTrainedModel, weights: dict[str, torch.Tensor], dtype: torch.dtype, attention: str | None
) -> PreTrainedModel:
    """A model like `skeleton` of these very tensors; what they lack is initialised as the class does it.

    This is how `from_pretrained` itself fills a model: ties, buffers that no checkpoint holds and evaluation mode
    come out as they do there.
    """
    chosen = {"attn_implementation": attention} if supports(skeleton, attention) else {}
    with quietly():
        return type(skeleton).from_pretrained(None, config=skeleton.config, state_dict=weights, dtype=dtype, **chosen)


def common_dtype(tensors: Iterable[LazyTensor]) -> torch.dtype:
    """The narrowest type that holds every floating tensor of a checkpoint."""
    floating = [tensor.meta.dtype for tensor in tensors if tensor.meta.dtype.is_floating_point]
    return reduce(torch.promote_types, floating or [torch.get_default_dtype()])


def as_dtype(dtype: torch.dtype | str) -> torch.dtype:
    found = dtype if isinstance(dtype, torch.dtype) else getattr(torch, dtype.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ConversionError(f"dtype={dtype!r} is not a floating type of torch, such as 'float32' or 'bfloat16'.")
    return found


def attention_of(model: nn.Module | None) -> str | None:
    """The attention implementation of a transformers model, but for a class that has no choice of them."""
    if not getattr(model, "_supports_sdpa", False):
        return None
    return model.config._attn_implementation


def supports(model: PreTrainedModel, attention: str | None) -> bool:
    """Whether an attention implementation was asked for that a model of transformers has."""
    has = {"sdpa": model._supports_sdpa, "flex_attention": model._supports_flex_attn}
    return attention is not None and has.get(attention, True)


#: of transformers, on parameters that a checkpoint does not hold, and on those among them that are tied
REPORTS = ("LOAD REPORT", "This checkpoint seem corrupted")


@contextmanager
def quietly() -> Iterator[None]:
    """Keeps transformers from showing a progress bar, and from reporting which parameters are initialised anew: whoever
    converts says so already."""
    loader, bars = logging.getLogger("transformers.modeling_utils"), is_progress_bar_enabled()

    def is_no_report(record: logging.LogRecord) -> bool:
        return not any(report in record.getMessage() for report in REPORTS)

    loader.addFilter(is_no_report)
    disable_progress_bar()
    try:
        yield
    finally:
        loader.removeFilter(is_no_report)
        if bars:
            enable_progress_bar()
