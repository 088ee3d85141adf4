"""What differs between releases of torch."""

from transformers.utils.import_utils import is_torch_greater_or_equal

varlen_attn = None
if is_torch_greater_or_equal("2.12"):  # the first whose kernel takes a scale, windows and grouped heads
    from torch.nn.attention.varlen import varlen_attn  # noqa: F401
