"""What transformers needs to know of every family: loading, saving, initialisation and attention all follow."""

import torch
from torch import nn
from transformers import PreTrainedModel

from .attention import TfmAttention
from .layers import TfmLayer
from .positions import TfmSinusoidalPositions
from .saving import SavesWhole


class TfmPreTrainedModel(SavesWhole, PreTrainedModel):
    """Base of the families' own base classes, which name their configuration."""

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["TfmEmbeddings", "TfmLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": TfmLayer, "attentions": TfmAttention}

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, TfmSinusoidalPositions):
            module.reset()
