"""What differs between releases of torch."""

from inspect import signature

from transformers.utils.import_utils import is_torch_greater_or_equal

varlen_attn = None
if is_torch_greater_or_equal("2.11"):  # the first whose kernel takes a scale and windows
    from torch.nn.attention.varlen import varlen_attn

#: torch 2.11 shares key-value heads among query heads unasked
ASKS_FOR_GROUPS = varlen_attn is not None and "enable_gqa" in signature(varlen_attn).parameters
