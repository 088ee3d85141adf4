"""Imports from undocumented modules of transformers and torch, which move between releases; and the name "varlen"."""

# ruff: noqa: F401

from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn.modules import module as every_module
from transformers.activations import ACT2FN
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, LinearAttentionLayer
from transformers.integrations import use_experts_implementation
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    create_bidirectional_mask,
    create_bidirectional_sliding_window_mask,
    create_causal_mask,
    create_masks_for_generate,
    create_sliding_window_causal_mask,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs
from transformers.utils.generic import can_return_tuple
from transformers.utils.import_utils import is_torch_greater_or_equal
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

#: 5.24 renamed it in `generate`, in outputs (which know the old name, too) and in masks
CACHE = "cache" if hasattr(ModelOutput, "past_key_values") else "past_key_values"
#: those that torch calls for all modules
KINDS = ("forward", "forward_pre", "backward", "backward_pre")
GLOBAL_HOOKS = [getattr(every_module, f"_global_{kind}_hooks") for kind in KINDS]
varlen_attn = None
if is_torch_greater_or_equal("2.12"):  # the first whose kernel takes a scale, windows and grouped heads
    from torch.nn.attention.varlen import varlen_attn
#: torch's attention, which by the second name runs over real tokens where `takes_bounds` says that it can
FUSED = ("sdpa", "varlen")
ALL_ATTENTION_FUNCTIONS.register("varlen", ALL_ATTENTION_FUNCTIONS["sdpa"])
ALL_MASK_ATTENTION_FUNCTIONS.register("varlen", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
