"""The tables of official architectures and of published sizes say what is so."""

import re

import pytest
import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING, GenerationConfig

from tests.official_models import BY_NAME, TINY, TINY_OF
from tests.published_sizes import PUBLISHED
from tfm_zoo import NAMED_CONFIGS, named_config
from tfm_zoo.converters import ARCHITECTURES
from tfm_zoo.converters.checkpoint import Checkpoint
from tfm_zoo.converters.choosing import architecture_of
from tfm_zoo.converters.config_comparison import effective_values
from tfm_zoo.converters.config_conversion import completed, to_zoo_config
from tfm_zoo.converters.config_rules import Field
from tfm_zoo.converters.errors import ConversionError
from tfm_zoo.converters.limits import positions_of
from tfm_zoo.converters.official_names import is_converted
from tfm_zoo.converters.refused import QK_POST_NORM, REFUSED

OFFICIAL = {name: table for name, table in ARCHITECTURES.items() if table.library == "transformers"}
#: official names that are not aliases of a field: they stand for several, for a part of one, or for a head's
NO_ALIASES = {
    *("bias", "enable_bias", "use_bias", "use_qkv_bias", "attention_out_bias", "window_size", "decoder_bias"),
    *("qkv_bias", "classifier_activation", "classifier_dropout_prob", "seq_classif_dropout", "summary_activation"),
    *("summary_last_dropout", "parallel_attn", "word_embed_proj_dim", "pooler_hidden_act"),
}


def test_official_names_of_fields_are_aliases():
    """Whoever makes a configuration with one is heard."""
    for table in OFFICIAL.values():
        config_class = table.heads[0].zoo.config_class
        known = {*config_class.attribute_map, *config_class.__dataclass_fields__, *NO_ALIASES}
        for head in table.heads:
            rules = [rule for rule in table.config_rules(head) if isinstance(rule, Field)]
            assert not {rule.official for rule in rules if rule.official != rule.zoo} - known


@pytest.mark.parametrize("model_type", REFUSED)
def test_who_is_refused_learns_why(model_type):
    """An architecture is told by its `model_type`, or by the name of its code."""
    config = {"model_type": model_type, "auto_map": {"AutoModel": model_type}}
    says = re.escape(f"{model_type!r}, which the zoo does not convert: {REFUSED[model_type]}.")
    with pytest.raises(ConversionError, match=says):
        architecture_of(Checkpoint("a folder", config, {}, GenerationConfig()))
    assert model_type in CONFIG_MAPPING or model_type == QK_POST_NORM


#: what a model has positions for, where it is not what its configuration calls so
POSITIONS = {
    "xlm-roberta-xl": ({"max_position_embeddings": 34, "pad_token_id": 1}, 32),
    "fsmt": ({"max_position_embeddings": 34, "pad_token_id": 1}, 32),
    "gpt2": ({"n_positions": 34}, 34),
    "mpt": ({"max_seq_len": 34}, 34),
    "t5": ({}, None),
    "bloom": ({}, None),
}


@pytest.mark.parametrize("model_type", OFFICIAL)
def test_tables_say_how_many_tokens_a_model_takes(model_type):
    """The same for an official configuration and the zoo's."""
    table = OFFICIAL[model_type]
    chosen, most = POSITIONS.get(model_type, (None, None))
    official = CONFIG_MAPPING[table.official_type](**TINY_OF.get(model_type, TINY) | (chosen or {}))
    zoo = to_zoo_config(table, completed(table, official.to_dict()), table.heads[0].zoo, {})
    assert positions_of(official) == positions_of(zoo)
    assert chosen is None or positions_of(zoo) == most


#: official class -> published models
PUBLISHED_AS = """
AlbertModel: albert-base-v2; ModernBertForMaskedLM: modernbert-base mmbert-base mmbert-small ettin-encoder-17m;
NomicBertModel: nomic-embed-text-v1.5; GteModel: gte-multilingual-base; JinaEmbeddingsV3Model: jina-embeddings-v3;
EuroBertModel: eurobert-210m jina-embeddings-v5-text-nano; embedding_gemma-Gemma3TextModel: embeddinggemma-300m;
DebertaV2Model: deberta-v3-base mdeberta-v3-base deberta-v2-xlarge;
CLIPTextModelWithProjection: clip-vit-base-patch32-text; Qwen3ForCausalLM: qwen3-0.6b qwen3-reranker-0.6b;
Gemma3ForCausalLM: gemma-3-270m; GPTNeoXForCausalLM: pythia-160m; OPTForCausalLM: opt-125m opt-350m;
ElectraModel: electra-small; XLMRobertaXLForMaskedLM: xlm-roberta-xl; MPNetModel: mpnet-base;
T5ForConditionalGeneration: t5-small flan-t5-base; M2M100ForConditionalGeneration: nllb-200-distilled-600m;
PegasusForConditionalGeneration: pegasus-large; BlenderbotForConditionalGeneration: blenderbot-400m-distill;
DebertaModel: deberta-base; SiglipTextModel: siglip-base-patch16-224-text;
MegatronBertForMaskedLM: megatron-bert-345m; RobertaPreLayerNormForMaskedLM: efficient-mlm-m0.40;
Data2VecTextForMaskedLM: data2vec-text-base; ErnieForMaskedLM: ernie-3.0-base-zh;
BertGenerationEncoder: bert-for-seq-generation; RoFormerForMaskedLM: roformer-chinese-base;
PLBartForConditionalGeneration: plbart-base; MvpForConditionalGeneration: mvp; EsmForMaskedLM: esm2-8m;
GemmaForCausalLM: gemma-2b; Gemma2ForCausalLM: gemma-2-2b; Olmo2ForCausalLM: olmo-2-1b; Olmo3ForCausalLM: olmo-3-7b;
SmolLM3ForCausalLM: smollm3-3b; GraniteForCausalLM: granite-3.3-2b; PhiForCausalLM: phi-2;
Phi3ForCausalLM: phi-3-mini; GPTBigCodeForCausalLM: starcoderbase-1b; Starcoder2ForCausalLM: starcoder2-3b;
SeedOssForCausalLM: seed-oss-36b; ArceeForCausalLM: afm-4.5b; Jais2ForCausalLM: jais-2-8b;
HeliumForCausalLM: helium-1-preview-2b; Ernie4_5ForCausalLM: ernie-4.5-0.3b; GlmForCausalLM: glm-4-9b;
Glm4ForCausalLM: glm-4-9b-0414; StableLmForCausalLM: stablelm-3b; CohereForCausalLM: command-r;
Cohere2ForCausalLM: command-r7b; Exaone4ForCausalLM: exaone-4.0-1.2b; PersimmonForCausalLM: persimmon-8b;
VaultGemmaForCausalLM: vaultgemma-1b; GPTNeoForCausalLM: gpt-neo-125m; BioGptForCausalLM: biogpt;
OlmoeForCausalLM: olmoe-1b-7b; GraniteMoeForCausalLM: granite-3.1-1b-a400m;
ModernBertModel: granite-embedding-english-r2 granite-embedding-small-english-r2;
Qwen3Model: jina-embeddings-v5-text-small qwen3-embedding-0.6b; XGLMForCausalLM: xglm-564m;
CodeGenForCausalLM: codegen-350m; OlmoForCausalLM: olmo-1b; GPTJForCausalLM: gpt-j-6b;
MixtralForCausalLM: mixtral-8x7b; Qwen3MoeForCausalLM: qwen3-30b-a3b; FalconForCausalLM: falcon-7b falcon-rw-1b
"""
MODEL_OF = {
    name: model_class
    for model_class, names in (row.split(":") for row in PUBLISHED_AS.split(";"))
    for name in names.split()
}


def count(model: nn.Module, name: str) -> int:
    """Its parameters, without sinusoids, which some official classes have among them."""
    model.tie_weights()
    architecture = BY_NAME[name].architecture
    return sum(weight.numel() for key, weight in model.named_parameters() if is_converted(architecture, key))


@pytest.mark.parametrize("name", MODEL_OF)
def test_a_published_size_has_as_many_parameters_as_its_official_class(name):
    """No weight is made. A named configuration is the published one for every head."""
    model_class = MODEL_OF[name].strip()
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
    if name in NAMED_CONFIGS:
        for each in architecture.heads:
            assert effective_values(zoo_config, each) == effective_values(named_config(name), each)
