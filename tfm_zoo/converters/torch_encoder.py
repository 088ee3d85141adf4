"""`torch.nn.TransformerEncoder` in the zoo's encoder."""

from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedConfig

from ..models.modeling_tfm_bert import TfmBertModel
from .architecture import Head
from .bert import READ_BY
from .torch_modules import CONSTANTS, ENCODER_BLOCK, FIELDS, FREE, TorchArchitecture, encoder_values, make_encoder


@dataclass(frozen=True, kw_only=True)
class TorchEncoderArchitecture(TorchArchitecture):
    def native_values(self, native: nn.TransformerEncoder) -> dict[str, Any]:
        return encoder_values(native)

    def native_config(self, config: PreTrainedConfig, head: Head) -> nn.TransformerEncoder:
        return make_encoder(config)


TORCH_ENCODER = TorchEncoderArchitecture(
    model_type="TransformerEncoder",
    title="nn.TransformerEncoder",
    prefix="encoder",
    fields=FIELDS | {"num_layers": "num_hidden_layers"},
    constants=CONSTANTS | {"type_vocab_size": 0, "embedding_norm": False, "add_pooling_layer": False},
    read_by=READ_BY,
    free=FREE,
    body=ENCODER_BLOCK,
    heads=(Head("TransformerEncoder", TfmBertModel),),
    fresh=("model.pooler.", "model.embeddings."),
)
