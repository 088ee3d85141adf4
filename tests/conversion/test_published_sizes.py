"""Published sizes: official configurations become the named ones, with as many parameters. No weight is made."""

import pytest
import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING

from tests.official_models import BY_NAME, OfficialClass
from tfm_zoo import named_config
from tfm_zoo.converters.config_comparison import effective_values
from tfm_zoo.converters.config_conversion import completed, to_zoo_config
from tfm_zoo.converters.official_names import is_converted

#: name -> an official class, what its published `config.json` has beside the defaults, and its parameters
PUBLISHED = {
    "albert-base-v2": (
        "AlbertModel",
        {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        11_683_584,
    ),
    "modernbert-base": ("ModernBertForMaskedLM", {}, 149_655_232),
    "nomic-embed-text-v1.5": ("NomicBertModel", {}, 136_731_648),
    "gte-multilingual-base": ("GteModel", {}, 305_368_320),
    "jina-embeddings-v3": ("JinaEmbeddingsV3Model", {}, 559_364_096),
    "eurobert-210m": (
        "EuroBertModel",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 250000.0}},
        211_766_016,
    ),
    "qwen3-0.6b": (
        "Qwen3ForCausalLM",
        {
            "hidden_size": 1024,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "intermediate_size": 3072,
            "max_position_embeddings": 40960,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
            "tie_word_embeddings": True,
            "bos_token_id": 151643,
            "eos_token_id": 151645,
        },
        596_049_920,
    ),
    "electra-small": ("ElectraModel", {}, 13_483_008),
    "xlm-roberta-xl": ("XLMRobertaXLForMaskedLM", {}, 3_482_741_760),
    "nllb-200-distilled-600m": (
        "M2M100ForConditionalGeneration",
        {"vocab_size": 256206, "encoder_layerdrop": 0, "decoder_layerdrop": 0},
        615_073_792,
    ),
    "pegasus-large": (
        "PegasusForConditionalGeneration",
        {
            "vocab_size": 96103,
            "encoder_layers": 16,
            "decoder_layers": 16,
            "activation_function": "relu",
            "attention_dropout": 0.1,
            "activation_dropout": 0.1,
            "scale_embedding": True,
        },
        568_699_904,
    ),
    "blenderbot-400m-distill": (
        "BlenderbotForConditionalGeneration",
        {
            "d_model": 1280,
            "decoder_layers": 12,
            "encoder_ffn_dim": 5120,
            "decoder_ffn_dim": 5120,
            "scale_embedding": True,
        },
        364_802_560,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_named_configuration(name):
    model_class, fields, parameters = PUBLISHED[name]
    official_class = BY_NAME[model_class]
    architecture, head = official_class.architecture, official_class.head
    config = CONFIG_MAPPING[architecture.model_type](**fields)
    zoo_config = to_zoo_config(architecture, completed(architecture, config.to_dict()), head.zoo, {})
    named = named_config(name)
    for each in architecture.heads:
        assert effective_values(zoo_config, each) == effective_values(named, each)
    with torch.device("meta"):
        models = head.zoo(named), getattr(transformers, model_class)(config)
    assert [count(model, official_class) for model in models] == [parameters] * 2


def count(model: nn.Module, official_class: OfficialClass) -> int:
    """Its parameters, without sinusoids, which some official classes have among them."""
    model.tie_weights()
    return sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if is_converted(official_class.architecture, name)
    )
