"""The tables of official architectures and of published sizes say what is so."""

import re

import pytest
import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING

from tests.official_models import BY_NAME, TINY, TINY_OF
from tests.published_sizes import PUBLISHED
from tfm_zoo import named_config
from tfm_zoo.converters import ARCHITECTURES, to_official
from tfm_zoo.converters.choosing import architecture_of
from tfm_zoo.converters.config_comparison import effective_values
from tfm_zoo.converters.config_conversion import completed, to_zoo_config
from tfm_zoo.converters.config_rules import Field
from tfm_zoo.converters.errors import ConversionError
from tfm_zoo.converters.official_names import is_converted
from tfm_zoo.converters.refused import QK_POST_NORM, REFUSED
from tfm_zoo.converters.token_positions import positions_of

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
        architecture_of(config, "a folder")
    assert model_type in CONFIG_MAPPING or model_type == QK_POST_NORM


#: what a model has positions for, where it is not what its configuration calls so
POSITIONS = {
    "roberta": ({"max_position_embeddings": 34, "pad_token_id": 1}, 32),
    "fsmt": ({"max_position_embeddings": 34, "pad_token_id": 1}, 32),
    "gpt2": ({"n_positions": 34}, 34),
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


#: official class -> configurations that have the name of a published model
PUBLISHED_AS = """
BertForPreTraining: bert-base; AlbertModel: albert-base-v2; ElectraModel: electra-small; MPNetModel: mpnet-base;
XLMRobertaXLForMaskedLM: xlm-roberta-xl; ModernBertForMaskedLM: modernbert-base; GteModel: gte-multilingual-base;
NomicBertModel: nomic-embed-text-v1.5; JinaEmbeddingsV3Model: jina-embeddings-v3; EuroBertModel: eurobert-210m;
embedding_gemma-Gemma3TextModel: embeddinggemma-300m; DebertaV2Model: deberta-v3-base; Qwen3ForCausalLM: qwen3-0.6b;
CLIPTextModelWithProjection: clip-vit-base-patch32-text; Gemma3ForCausalLM: gemma-3-270m;
GPTNeoXForCausalLM: pythia-160m; OPTForCausalLM: opt-125m opt-350m; BartForConditionalGeneration: bart-base;
T5ForConditionalGeneration: t5-small flan-t5-base; M2M100ForConditionalGeneration: nllb-200-distilled-600m;
PegasusForConditionalGeneration: pegasus-large;
BlenderbotForConditionalGeneration: blenderbot-400m-distill
"""
MODEL_OF = {
    name: model_class.strip()
    for model_class, names in (row.split(":") for row in PUBLISHED_AS.split(";"))
    for name in names.split()
}


def count(model: nn.Module, name: str) -> int:
    """Its parameters, without sinusoids, which some official classes have among them."""
    model.tie_weights()
    architecture = BY_NAME[name].architecture
    return sum(weight.numel() for key, weight in model.named_parameters() if is_converted(architecture, key))


@pytest.mark.parametrize("name", MODEL_OF)
def test_a_named_configuration_is_the_published_one(name):
    """For every head; it has as many parameters as the official class. (No weight is made.)"""
    model_class = MODEL_OF[name]
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
    for each in architecture.heads:
        assert effective_values(zoo_config, each) == effective_values(named_config(name), each)


@pytest.mark.parametrize(
    ("name", "official"),
    [("openai-gpt", "OpenAIGPTLMHeadModel"), ("smollm-135m", "LlamaForCausalLM"), ("opus-mt", "MarianMTModel")],
)
def test_a_new_model_of_a_named_configuration_is_official(name, official, caplog):
    """Nothing is lost, not even in training."""
    config = named_config(name, n_layer=1, vocab_size=60000, d_model=72, ffn_dim=288)  # official names
    head = "AutoModelForSeq2SeqLM" if config.is_encoder_decoder else "AutoModelForCausalLM"
    assert type(to_official(getattr(transformers, head).from_config(config))).__name__ == official and not caplog.text
