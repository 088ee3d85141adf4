"""The base of all models: what transformers needs to know for loading, saving, initialisation and attention."""

import torch
from torch import nn
from transformers import PreTrainedModel

from .attention import TfmAttention
from .hub_saving import TfmHubMixin
from .layers import TfmLayer
from .positions import TfmSinusoidalPositions


class TfmPreTrainedModel(TfmHubMixin, PreTrainedModel):
    """Base of the families' base classes, which name their configuration."""

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["TfmEmbeddings", "TfmLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": TfmLayer, "attentions": TfmAttention}

    @property
    def _is_stateful(self) -> bool:
        """Whether the cache cannot be shortened, which assisted generation would need to reject candidates."""
        return self.config.has_linear_attention

    def init_parallel_plans(self) -> None:
        """Shards tables of tokens, too, as transformers does of its own models; plans of engines are of projections."""
        super().init_parallel_plans()
        if self.base_model is self:
            tables = [name for name, _ in self.named_modules() if name.endswith("embeddings.embed_tokens")]
            self._tp_plan = dict.fromkeys(tables, "embedding_rowwise") | self._tp_plan

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, TfmSinusoidalPositions):
            module.reset()
