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
    "gemma-3-270m": (
        "Gemma3ForCausalLM",
        {
            "vocab_size": 262144,
            "hidden_size": 640,
            "intermediate_size": 2048,
            "num_hidden_layers": 18,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "max_position_embeddings": 32768,
            "sliding_window": 512,
        },
        268_098_176,
    ),
    "pythia-160m": (
        "GPTNeoXForCausalLM",
        {
            "vocab_size": 50304,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "eos_token_id": 0,
        },
        162_322_944,
    ),
    "opt-125m": ("OPTForCausalLM", {}, 125_239_296),
    "opt-350m": (
        "OPTForCausalLM",
        {"hidden_size": 1024, "num_hidden_layers": 24, "ffn_dim": 4096, "num_attention_heads": 16}
        | {"word_embed_proj_dim": 512, "do_layer_norm_before": False},
        331_196_416,
    ),
    "electra-small": ("ElectraModel", {}, 13_483_008),
    "xlm-roberta-xl": ("XLMRobertaXLForMaskedLM", {}, 3_482_741_760),
    "mpnet-base": ("MPNetModel", {"max_position_embeddings": 514, "layer_norm_eps": 1e-5}, 109_486_464),
    "t5-small": ("T5ForConditionalGeneration", {"decoder_start_token_id": 0}, 60_506_624),
    "flan-t5-base": (
        "T5ForConditionalGeneration",
        {
            **{"d_model": 768, "num_layers": 12, "num_heads": 12, "feed_forward_proj": "gated-gelu"},
            **{"tie_word_embeddings": False, "decoder_start_token_id": 0},
        },
        247_577_856,
    ),
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


#: other published decoders: an official class, what their `config.json` has beside the defaults, and their parameters
COUNTS = {
    "gemma-2b": (
        "GemmaForCausalLM",
        {"hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18, "num_attention_heads": 8}
        | {"num_key_value_heads": 1},
        2_506_172_416,
    ),
    "gemma-2-2b": ("Gemma2ForCausalLM", {}, 2_614_341_888),
    "OLMo-2-1B": (
        "Olmo2ForCausalLM",
        {"vocab_size": 100352, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
        | {"num_attention_heads": 16},
        1_484_916_736,
    ),
    "Olmo-3-7B": ("Olmo3ForCausalLM", {"vocab_size": 100278}, 7_298_011_136),
    "SmolLM3-3B": ("SmolLM3ForCausalLM", {}, 3_075_098_624),
    "granite-3.3-2b": (
        "GraniteForCausalLM",
        {"vocab_size": 49159, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 40}
        | {"num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": True},
        2_533_539_840,
    ),
    "phi-2": (
        "PhiForCausalLM",
        {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32},
        2_779_683_840,
    ),
    "Phi-3-mini": ("Phi3ForCausalLM", {}, 3_821_079_552),
    "starcoderbase-1b": (
        "GPTBigCodeForCausalLM",
        {"vocab_size": 49152, "n_embd": 2048, "n_head": 16, "n_layer": 24, "n_positions": 8192},
        1_137_207_296,
    ),
    "starcoder2-3b": ("Starcoder2ForCausalLM", {}, 3_030_371_328),
    "gpt-j-6b": ("GPTJForCausalLM", {}, 6_050_882_784),
    "Mixtral-8x7B": ("MixtralForCausalLM", {}, 46_702_792_704),
    "Qwen3-30B-A3B": (
        "Qwen3MoeForCausalLM",
        {"num_hidden_layers": 48, "head_dim": 128, "moe_intermediate_size": 768, "norm_topk_prob": True},
        30_532_122_624,
    ),
    "falcon-rw-1b": (
        "FalconForCausalLM",
        {"vocab_size": 50304, "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "bias": True}
        | {"alibi": True, "multi_query": False, "parallel_attn": False},
        1_311_625_216,
    ),
    "falcon-7b": ("FalconForCausalLM", {}, 6_921_720_704),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameters(name):
    model_class, fields, parameters = COUNTS[name]
    official_class = BY_NAME[model_class]
    architecture, head = official_class.architecture, official_class.head
    config = completed(architecture, CONFIG_MAPPING[architecture.model_type](**fields).to_dict())
    with torch.device("meta"):
        model = head.zoo(to_zoo_config(architecture, config, head.zoo, {}))
    assert count(model, official_class) == parameters


@pytest.mark.parametrize("name", PUBLISHED)
def test_named_configuration(name):
    model_class, fields, parameters = PUBLISHED[name]
    official_class = BY_NAME[model_class]
    architecture, head = official_class.architecture, official_class.head
    config = CONFIG_MAPPING[architecture.model_type](**fields)
    # Its checkpoint has a projection of its own, as others of its kind, but official configurations cannot say so.
    untied = {"tie_word_embeddings": False} if name == "flan-t5-base" else {}
    zoo_config = to_zoo_config(architecture, completed(architecture, config.to_dict()), head.zoo, untied)
    named = named_config(name)
    for each in architecture.heads:
        assert effective_values(zoo_config, each) == effective_values(named, each)
    with torch.device("meta"):
        models = head.zoo(named), getattr(transformers, model_class)(config)
    if untied:
        models[1].config.tie_word_embeddings, models[1]._tied_weights_keys = False, None
        models[1].lm_head.weight = nn.Parameter(torch.empty_like(models[1].lm_head.weight))
    assert [count(model, official_class) for model in models] == [parameters] * 2


def count(model: nn.Module, official_class: OfficialClass) -> int:
    """Its parameters, without sinusoids, which some official classes have among them."""
    model.tie_weights()
    return sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if is_converted(official_class.architecture, name)
    )
