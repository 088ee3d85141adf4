"""`torch.nn.Transformer` in the zoo's encoder-decoder."""

from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedConfig

from ..models.modeling_tfm_encoder_decoder import TfmEncoderDecoderModel
from .architecture import Head
from .marian import READ_BY
from .rules import ConversionError
from .torch_modules import (
    CONSTANTS,
    DECODER_BLOCK,
    ENCODER_BLOCK,
    FIELDS,
    FREE,
    TorchArchitecture,
    encoder_values,
    is_batch_first,
    make_decoder,
    make_encoder,
    stack_values,
)


@dataclass(frozen=True, kw_only=True)
class TorchTransformerArchitecture(TorchArchitecture):
    def native_values(self, native: nn.Transformer) -> dict[str, Any]:
        for side, known in (("encoder", nn.TransformerEncoder), ("decoder", nn.TransformerDecoder)):
            if not isinstance(stack := getattr(native, side), known):
                raise ConversionError(f"An nn.Transformer whose {side} is {type(stack).__name__}() is not converted.")
        values, its = encoder_values(native.encoder), stack_values(native.decoder)
        differing = [f"{name}={values[name]!r} and {value!r}" for name, value in its.items() if values[name] != value]
        if differing:
            raise ConversionError(
                f"An nn.Transformer whose encoder and decoder have {', '.join(differing)} is not converted: the zoo's "
                "two have the same."
            )
        return values | {"num_decoder_layers": native.decoder.num_layers}

    def native_config(self, config: PreTrainedConfig, head: Head) -> nn.Transformer:
        sizes = (config.hidden_size, config.num_attention_heads)
        stacks = {"custom_encoder": make_encoder(config), "custom_decoder": make_decoder(config)}
        return nn.Transformer(*sizes, **stacks, batch_first=is_batch_first(config))


TORCH_TRANSFORMER = TorchTransformerArchitecture(
    model_type="Transformer",
    title="nn.Transformer",
    prefix="model",
    fields=FIELDS | {"num_layers": "num_hidden_layers", "num_decoder_layers": "decoder_layers"},
    constants=CONSTANTS | {"bos_token_id": None, "eos_token_id": None, "decoder_start_token_id": None},
    read_by=READ_BY,
    free=(
        *FREE,
        "decoder_vocab_size",
        "share_encoder_decoder_embeddings",
        "decoder_start_token_id",
        "start_with_last_token",
        "scale_embedding",
        "use_cache",
    ),
    body=(
        *(rule.under("encoder", "encoder") for rule in ENCODER_BLOCK),
        *(rule.under("decoder", "decoder") for rule in DECODER_BLOCK),
    ),
    heads=(Head("Transformer", TfmEncoderDecoderModel),),
    fresh=("model.encoder.embeddings.", "model.decoder.embeddings."),
)
