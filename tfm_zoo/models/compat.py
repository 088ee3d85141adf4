"""What differs between releases of torch."""

from transformers.utils.import_utils import is_torch_greater_or_equal

varlen_attn = None
if is_torch_greater_or_equal("2.11"):  # the first whose kernel takes a scale and windows
    from torch.nn.attention.varlen import varlen_attn  # noqa: F401

#: torch 2.11 shares key-value heads among query heads unasked
ASKS_FOR_GROUPS = is_torch_greater_or_equal("2.12")
