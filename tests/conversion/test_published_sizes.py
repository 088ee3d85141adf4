"""Published sizes: official configurations become the named ones, with as many parameters. No weight is made."""

import pytest
import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING

from tests.official_models import BY_NAME
from tests.published_sizes import PUBLISHED
from tfm_zoo import named_config
from tfm_zoo.converters.config_comparison import effective_values
from tfm_zoo.converters.config_conversion import completed, to_zoo_config
from tfm_zoo.converters.official_names import is_converted

#: published models that have a named configuration: an official class, and its parameters
NAMED = {
    "albert-base-v2": ("AlbertModel", 11_683_584),
    "modernbert-base": ("ModernBertForMaskedLM", 149_655_232),
    "nomic-embed-text-v1.5": ("NomicBertModel", 136_731_648),
    "gte-multilingual-base": ("GteModel", 305_368_320),
    "jina-embeddings-v3": ("JinaEmbeddingsV3Model", 559_364_096),
    "eurobert-210m": ("EuroBertModel", 211_766_016),
    "embeddinggemma-300m": ("embedding_gemma-Gemma3TextModel", 302_863_104),
    "deberta-v3-base": ("DebertaV2Model", 183_831_552),
    "clip-vit-base-patch32-text": ("CLIPTextModelWithProjection", 63_428_096),
    "qwen3-0.6b": ("Qwen3ForCausalLM", 596_049_920),
    "gemma-3-270m": ("Gemma3ForCausalLM", 268_098_176),
    "pythia-160m": ("GPTNeoXForCausalLM", 162_322_944),
    "opt-125m": ("OPTForCausalLM", 125_239_296),
    "opt-350m": ("OPTForCausalLM", 331_196_416),
    "electra-small": ("ElectraModel", 13_483_008),
    "xlm-roberta-xl": ("XLMRobertaXLForMaskedLM", 3_482_741_760),
    "mpnet-base": ("MPNetModel", 109_486_464),
    "t5-small": ("T5ForConditionalGeneration", 60_506_624),
    "flan-t5-base": ("T5ForConditionalGeneration", 247_577_856),
    "nllb-200-distilled-600m": ("M2M100ForConditionalGeneration", 615_073_792),
    "pegasus-large": ("PegasusForConditionalGeneration", 568_699_904),
    "blenderbot-400m-distill": ("BlenderbotForConditionalGeneration", 364_802_560),
}
#: official class -> other published models
OTHERS = {
    "DebertaV2Model": "mdeberta-v3-base deberta-v2-xlarge",
    "DebertaModel": "deberta-base",
    "SiglipTextModel": "siglip-base-patch16-224-text",
    "MegatronBertForMaskedLM": "megatron-bert-345m",
    "RobertaPreLayerNormForMaskedLM": "efficient-mlm-m0.40",
    "Data2VecTextForMaskedLM": "data2vec-text-base",
    "ErnieForMaskedLM": "ernie-3.0-base-zh",
    "BertGenerationEncoder": "bert-for-seq-generation",
    "RoFormerForMaskedLM": "roformer-chinese-base",
    "PLBartForConditionalGeneration": "plbart-base",
    "MvpForConditionalGeneration": "mvp",
    "EsmForMaskedLM": "esm2-8m",
    "GemmaForCausalLM": "gemma-2b",
    "Gemma2ForCausalLM": "gemma-2-2b",
    "Olmo2ForCausalLM": "olmo-2-1b",
    "Olmo3ForCausalLM": "olmo-3-7b",
    "SmolLM3ForCausalLM": "smollm3-3b",
    "GraniteForCausalLM": "granite-3.3-2b",
    "PhiForCausalLM": "phi-2",
    "Phi3ForCausalLM": "phi-3-mini",
    "GPTBigCodeForCausalLM": "starcoderbase-1b",
    "Starcoder2ForCausalLM": "starcoder2-3b",
    "SeedOssForCausalLM": "seed-oss-36b",
    "ArceeForCausalLM": "afm-4.5b",
    "Jais2ForCausalLM": "jais-2-8b",
    "HeliumForCausalLM": "helium-1-preview-2b",
    "Ernie4_5ForCausalLM": "ernie-4.5-0.3b",
    "GlmForCausalLM": "glm-4-9b",
    "Glm4ForCausalLM": "glm-4-9b-0414",
    "StableLmForCausalLM": "stablelm-3b",
    "CohereForCausalLM": "command-r",
    "Cohere2ForCausalLM": "command-r7b",
    "Exaone4ForCausalLM": "exaone-4.0-1.2b",
    "PersimmonForCausalLM": "persimmon-8b",
    "VaultGemmaForCausalLM": "vaultgemma-1b",
    "GPTNeoForCausalLM": "gpt-neo-125m",
    "BioGptForCausalLM": "biogpt",
    "OlmoeForCausalLM": "olmoe-1b-7b",
    "GraniteMoeForCausalLM": "granite-3.1-1b-a400m",
    "ModernBertForMaskedLM": "mmbert-base mmbert-small ettin-encoder-17m",
    "ModernBertModel": "granite-embedding-english-r2 granite-embedding-small-english-r2",
    "EuroBertModel": "jina-embeddings-v5-text-nano",
    "Qwen3Model": "jina-embeddings-v5-text-small qwen3-embedding-0.6b",
    "Qwen3ForCausalLM": "qwen3-reranker-0.6b",
    "XGLMForCausalLM": "xglm-564m",
    "CodeGenForCausalLM": "codegen-350m",
    "OlmoForCausalLM": "olmo-1b",
    "GPTJForCausalLM": "gpt-j-6b",
    "MixtralForCausalLM": "mixtral-8x7b",
    "Qwen3MoeForCausalLM": "qwen3-30b-a3b",
    "FalconForCausalLM": "falcon-7b falcon-rw-1b",
}


def count(model: nn.Module, name: str) -> int:
    """Its parameters, without sinusoids, which some official classes have among them."""
    model.tie_weights()
    architecture = BY_NAME[name].architecture
    return sum(weight.numel() for key, weight in model.named_parameters() if is_converted(architecture, key))


@pytest.mark.parametrize(
    ("name", "model_class"),
    [(name, model_class) for name, (model_class, _) in NAMED.items()]
    + [(name, model_class) for model_class, names in OTHERS.items() for name in names.split()],
)
def test_parameters(name, model_class):
    """As many as the official class has; a named configuration is the published one for every head."""
    architecture, head = BY_NAME[model_class].architecture, BY_NAME[model_class].head
    config = CONFIG_MAPPING[architecture.official_type](**PUBLISHED[name])
    # Its checkpoint has a projection of its own, as others of its kind, but official configurations cannot say so.
    untied = {"tie_word_embeddings": False} if name == "flan-t5-base" else {}
    zoo_config = to_zoo_config(architecture, completed(architecture, config.to_dict()), head.zoo, untied)
    with torch.device("meta"):
        zoo, official = head.zoo(zoo_config), getattr(transformers, head.official)(config)
    if untied:
        official.config.tie_word_embeddings, official._tied_weights_keys = False, None
        official.lm_head.weight = nn.Parameter(torch.empty_like(official.lm_head.weight))
    assert count(zoo, model_class) == count(official, model_class)
    if name in NAMED:
        assert count(zoo, model_class) == NAMED[name][1]
        for each in architecture.heads:
            assert effective_values(zoo_config, each) == effective_values(named_config(name), each)
