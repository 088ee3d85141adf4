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

    @property
    def _is_stateful(self) -> bool:
        """Whether what was read cannot be taken back, as the candidates of assisted generation would have to be."""
        return "linear_attention" in getattr(self.config.get_text_config(decoder=True), "layer_types", ())

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, TfmSinusoidalPositions):
            module.reset()

    def fingerprint_inputs(self) -> dict[str, torch.LongTensor]:
        """What the manifest of a checkpoint feeds the model: two sequences, the second padded at its end."""
        return self.ids_and_mask(self.config.vocab_size)

    def ids_and_mask(self, vocab_size: int, length: int = 12) -> dict[str, torch.LongTensor]:
        """Ids from all over a vocabulary, each sequence ended as the model's sequences are, and their mask."""
        config = self.config
        # RoBERTa's positions begin after the padding's.
        taken = config.pad_token_id + 1 if config.position_ids_from_padding else 0
        length = max(2, min(length, config.max_position_embeddings - taken))
        ends = [config.eos_token_id] if isinstance(config.eos_token_id, int) else config.eos_token_id or []
        special = {*ends, config.pad_token_id, config.bos_token_id}
        ordinary = [token for token in range(vocab_size) if token not in special] or [0]
        ids = torch.tensor([ordinary[place * len(ordinary) // (2 * length)] for place in range(2 * length)])
        ids, mask = ids.view(2, length), torch.ones(2, length, dtype=torch.long)
        mask[1, length // 2 :] = 0
        ids = ids.masked_fill(mask == 0, config.pad_token_id or 0)
        if ends and ends[0] < vocab_size:
            ids[[0, 1], mask.sum(dim=1) - 1] = ends[0]
        return {"input_ids": ids, "attention_mask": mask}
