"""Configurations of published models, by name."""

from copy import deepcopy
from difflib import get_close_matches
from typing import Any

from .converters.architecture import check_overrides
from .models.configuration_tfm import TfmConfig
from .models.configuration_tfm_bert import TfmBertConfig
from .models.configuration_tfm_encoder_decoder import TfmEncoderDecoderConfig
from .models.configuration_tfm_gpt import TfmGPTConfig

#: what differs from the paper's base model in BART's
BART = {
    "vocab_size": 50265,
    "hidden_act": "gelu",
    "scale_embedding": False,
    "embedding_norm": True,
    "position_embedding_type": "learned",
    "position_offset": 2,
    "final_logits_bias": True,
    "weight_init": "normal",
    "pad_token_id": 1,
    "bos_token_id": 0,
    "decoder_start_token_id": 2,
}

#: name -> the family's configuration class, and what differs from its defaults
NAMED_CONFIGS: dict[str, tuple[type[TfmConfig], dict[str, Any]]] = {
    "bert-base": (TfmBertConfig, {}),
    "bert-large": (
        TfmBertConfig,
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    "openai-gpt": (
        TfmGPTConfig,
        {
            "vocab_size": 40478,
            "max_position_embeddings": 512,
            "norm_position": "post",
            "scaled_residual_init": False,
            "token_types_as_tokens": True,
            "bos_token_id": None,
            "eos_token_id": None,
        },
    ),
    "gpt2": (TfmGPTConfig, {}),
    "gpt2-medium": (
        TfmGPTConfig,
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    "gpt2-large": (
        TfmGPTConfig,
        {"hidden_size": 1280, "num_hidden_layers": 36, "num_attention_heads": 20, "intermediate_size": 5120},
    ),
    "gpt2-xl": (
        TfmGPTConfig,
        {"hidden_size": 1600, "num_hidden_layers": 48, "num_attention_heads": 25, "intermediate_size": 6400},
    ),
    # LLaMA's architecture (Touvron et al. 2023), of SmolLM-135M's size
    "smollm-135m": (
        TfmGPTConfig,
        {
            "vocab_size": 49152,
            "hidden_size": 576,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "intermediate_size": 1536,
            "max_position_embeddings": 2048,
            "position_embedding_type": "rotary",
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "norm_type": "rmsnorm",
            "mlp_type": "gated",
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
            "train_padding_embedding": False,
            "scaled_residual_init": False,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
    ),
    # the two of "Attention Is All You Need" (Vaswani et al. 2017)
    "transformer-base": (TfmEncoderDecoderConfig, {}),
    "transformer-big": (
        TfmEncoderDecoderConfig,
        {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096, "hidden_dropout": 0.3},
    ),
    # Marian's, of OPUS-MT from English to German (Tiedemann and Thottingal 2020)
    "opus-mt": (
        TfmEncoderDecoderConfig,
        {
            "vocab_size": 58101,
            "hidden_act": "silu",
            "max_position_embeddings": 512,
            "sinusoid_type": "halves",
            "final_logits_bias": True,
            "weight_init": "normal",
            "pad_token_id": 58100,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "decoder_start_token_id": 58100,
        },
    ),
    "bart-base": (
        TfmEncoderDecoderConfig,
        BART | {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    ),
    "bart-large": (
        TfmEncoderDecoderConfig,
        BART
        | {
            "hidden_size": 1024,
            "num_hidden_layers": 12,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    ),
}


def named_config(name: str, **overrides: Any) -> TfmConfig:
    """The configuration of a published model, but for `overrides`.

    Args:
        name: a key of `NAMED_CONFIGS`, such as `"gpt2-medium"`.
        overrides: fields of the configuration.

    Raises:
        ValueError: for a name that is not there, or an override that is no field; the message lists the names.
    """
    if name not in NAMED_CONFIGS:
        near = get_close_matches(name.rpartition("/")[2].lower(), NAMED_CONFIGS, n=1)
        hint = f" Is it {near[0]!r} that is meant?" if near else ""
        raise ValueError(f"There is no configuration named {name!r}; there are: {', '.join(NAMED_CONFIGS)}.{hint}")
    config_class, fields = NAMED_CONFIGS[name]
    check_overrides(overrides, config_class)
    return config_class(**deepcopy(fields) | overrides)
