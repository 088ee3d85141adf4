"""Published sizes: official configurations become the named ones, with as many parameters. No weight is made."""

import pytest
import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING

from tests.official_models import BY_NAME, OfficialClass
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
#: the same of other published models
COUNTS = {
    "mdeberta-v3-base": ("DebertaV2Model", 278_218_752),
    "deberta-v2-xlarge": ("DebertaV2Model", 884_593_152),
    "deberta-base": ("DebertaModel", 138_601_728),
    "siglip-base-patch16-224-text": ("SiglipTextModel", 110_271_744),
    "megatron-bert-345m": ("MegatronBertForMaskedLM", 333_671_808),
    "efficient-mlm-m0.40": ("RobertaPreLayerNormForMaskedLM", 355_414_105),
    "data2vec-text-base": ("Data2VecTextForMaskedLM", 124_697_433),
    "ernie-3.0-base-zh": ("ErnieForMaskedLM", 117_986_368),
    "bert-for-seq-generation": ("BertGenerationEncoder", 354_402_304),
    "roformer-chinese-base": ("RoFormerForMaskedLM", 124_099_664),
    "plbart-base": ("PLBartForConditionalGeneration", 139_220_736),
    "mvp": ("MvpForConditionalGeneration", 406_293_504),
    "esm2-8m": ("EsmForMaskedLM", 7_512_353),
    "gemma-2b": ("GemmaForCausalLM", 2_506_172_416),
    "gemma-2-2b": ("Gemma2ForCausalLM", 2_614_341_888),
    "olmo-2-1b": ("Olmo2ForCausalLM", 1_484_916_736),
    "olmo-3-7b": ("Olmo3ForCausalLM", 7_298_011_136),
    "smollm3-3b": ("SmolLM3ForCausalLM", 3_075_098_624),
    "granite-3.3-2b": ("GraniteForCausalLM", 2_533_539_840),
    "phi-2": ("PhiForCausalLM", 2_779_683_840),
    "phi-3-mini": ("Phi3ForCausalLM", 3_821_079_552),
    "starcoderbase-1b": ("GPTBigCodeForCausalLM", 1_137_207_296),
    "starcoder2-3b": ("Starcoder2ForCausalLM", 3_030_371_328),
    "seed-oss-36b": ("SeedOssForCausalLM", 36_151_104_512),
    "afm-4.5b": ("ArceeForCausalLM", 4_619_184_640),
    "jais-2-8b": ("Jais2ForCausalLM", 8_090_401_280),
    "helium-1-preview-2b": ("HeliumForCausalLM", 2_172_643_840),
    "ernie-4.5-0.3b": ("Ernie4_5ForCausalLM", 360_748_032),
    "glm-4-9b": ("GlmForCausalLM", 9_399_951_360),
    "glm-4-9b-0414": ("Glm4ForCausalLM", 9_400_279_040),
    "stablelm-3b": ("StableLmForCausalLM", 2_795_443_200),
    "command-r": ("CohereForCausalLM", 34_980_831_232),
    "command-r7b": ("Cohere2ForCausalLM", 8_028_033_024),
    "exaone-4.0-1.2b": ("Exaone4ForCausalLM", 1_279_391_488),
    "persimmon-8b": ("PersimmonForCausalLM", 9_397_175_296),
    "vaultgemma-1b": ("VaultGemmaForCausalLM", 1_038_741_120),
    "gpt-neo-125m": ("GPTNeoForCausalLM", 125_198_592),
    "biogpt": ("BioGptForCausalLM", 346_763_264),
    "olmoe-1b-7b": ("OlmoeForCausalLM", 6_919_161_856),
    "granite-3.1-1b-a400m": ("GraniteMoeForCausalLM", 1_334_628_352),
    "mmbert-base": ("ModernBertForMaskedLM", 307_786_240),
    "mmbert-small": ("ModernBertForMaskedLM", 140_897_536),
    "ettin-encoder-17m": ("ModernBertForMaskedLM", 16_913_600),
    "granite-embedding-english-r2": ("ModernBertModel", 149_014_272),
    "granite-embedding-small-english-r2": ("ModernBertModel", 47_662_464),
    "jina-embeddings-v5-text-nano": ("EuroBertModel", 211_766_016),
    "jina-embeddings-v5-text-small": ("Qwen3Model", 596_049_920),
    "qwen3-embedding-0.6b": ("Qwen3Model", 595_776_512),
    "qwen3-reranker-0.6b": ("Qwen3ForCausalLM", 595_776_512),
    "xglm-564m": ("XGLMForCausalLM", 564_463_616),
    "codegen-350m": ("CodeGenForCausalLM", 356_712_448),
    "olmo-1b": ("OlmoForCausalLM", 1_176_764_416),
    "gpt-j-6b": ("GPTJForCausalLM", 6_050_882_784),
    "mixtral-8x7b": ("MixtralForCausalLM", 46_702_792_704),
    "qwen3-30b-a3b": ("Qwen3MoeForCausalLM", 30_532_122_624),
    "falcon-7b": ("FalconForCausalLM", 6_921_720_704),
    "falcon-rw-1b": ("FalconForCausalLM", 1_311_625_216),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameters(name):
    model_class, parameters = COUNTS[name]
    official_class = BY_NAME[model_class]
    architecture, head = official_class.architecture, official_class.head
    config = completed(architecture, CONFIG_MAPPING[architecture.official_type](**PUBLISHED[name]).to_dict())
    with torch.device("meta"):
        model = head.zoo(to_zoo_config(architecture, config, head.zoo, {}))
    assert count(model, official_class) == parameters


@pytest.mark.parametrize("name", NAMED)
def test_named_configuration(name):
    model_class, parameters = NAMED[name]
    official_class = BY_NAME[model_class]
    architecture, head = official_class.architecture, official_class.head
    config = CONFIG_MAPPING[architecture.official_type](**PUBLISHED[name])
    # Its checkpoint has a projection of its own, as others of its kind, but official configurations cannot say so.
    untied = {"tie_word_embeddings": False} if name == "flan-t5-base" else {}
    zoo_config = to_zoo_config(architecture, completed(architecture, config.to_dict()), head.zoo, untied)
    named = named_config(name)
    for each in architecture.heads:
        assert effective_values(zoo_config, each) == effective_values(named, each)
    with torch.device("meta"):
        models = head.zoo(named), getattr(transformers, head.official)(config)
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
