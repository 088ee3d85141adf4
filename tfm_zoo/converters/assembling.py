"""Models, the zoo's and official ones, from a configuration and tensors, which they take over without copies."""

from collections.abc import Iterable
from functools import reduce

import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel

from ..utils.quiet import silenced_loading
from . import torch_modules
from .architecture import Architecture, Head
from .checkpoint import FLOATS, LazyTensor
from .config_rules import Fields
from .errors import ConversionError


def skeleton_of(model_class: type[PreTrainedModel], config: PreTrainedConfig) -> PreTrainedModel:
    """A model whose parameters have names and shapes, but no memory."""
    with torch.device("meta"):
        return model_class(config)


def official_skeleton(architecture: Architecture, head: Head, fields: Fields) -> nn.Module:
    """A skeleton of an official class, whose configuration has these fields."""
    if architecture.library == "torch":
        return torch_modules.make_module(head.official, fields)
    config = CONFIG_MAPPING[architecture.official_type](**fields)
    try:
        return skeleton_of(getattr(transformers, head.official), config)
    except IndexError as error:  # M2M100 asks for a position of its padding
        raise ConversionError(f"{head.official} cannot be made with this configuration: {error}.") from error


def assemble(
    skeleton: nn.Module, weights: dict[str, torch.Tensor], dtype: torch.dtype, attention: str | None
) -> nn.Module:
    """A model like `skeleton` that holds these tensors, themselves if they are of this type, and else cast to it. Its
    class initialises those that are missing.

    A model of transformers is filled by `from_pretrained` itself: ties, buffers that no checkpoint holds and evaluation
    mode come out as they do for any model.
    """
    if not isinstance(skeleton, PreTrainedModel):
        skeleton.load_state_dict(weights, assign=True)
        return skeleton.eval()
    options = {"dtype": dtype} | ({"attn_implementation": attention} if supports(skeleton, attention) else {})
    with silenced_loading():  # the converter itself lists what is initialised
        return type(skeleton).from_pretrained(None, config=skeleton.config, state_dict=weights, **options)


def common_dtype(tensors: Iterable[LazyTensor]) -> torch.dtype:
    """The narrowest type that holds each of these tensors, if it is a floating one."""
    floating = [tensor.meta.dtype for tensor in tensors if tensor.meta.dtype.is_floating_point]
    return reduce(torch.promote_types, floating or [torch.get_default_dtype()])


def as_dtype(dtype: torch.dtype | str) -> torch.dtype:
    """The floating type with this name, one of `FLOATS`."""
    torch_dtype = getattr(torch, str(dtype).removeprefix("torch."), None)
    if torch_dtype not in FLOATS.values():
        raise ConversionError(f"dtype={dtype!r} should be one of {', '.join(map(str, FLOATS.values()))}.")
    return torch_dtype


def attention_of(model: nn.Module | None) -> str | None:
    """The attention implementation of a transformers model; `None` for a class that has only one."""
    return model.config._attn_implementation if getattr(model, "_supports_sdpa", False) else None


def supports(model: PreTrainedModel, attention: str | None) -> bool:
    """Whether a model of transformers has this attention implementation; false for `None`."""
    optional = {"sdpa": model._supports_sdpa, "flex_attention": model._supports_flex_attn}
    return attention is not None and optional.get(attention, True)
