"""The tables of official architectures, as data: whoever lists them waits for nothing, and finds what they promise."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from transformers import CONFIG_MAPPING, GenerationConfig

import tfm_zoo
from tests.official_models import TINY, TINY_OF
from tests.tiny import HEADS
from tfm_zoo.converters import ARCHITECTURES
from tfm_zoo.converters.checkpoint import Checkpoint
from tfm_zoo.converters.choosing import architecture_of
from tfm_zoo.converters.config_conversion import completed, to_zoo_config
from tfm_zoo.converters.config_rules import Field
from tfm_zoo.converters.errors import ConversionError
from tfm_zoo.converters.limits import positions_of
from tfm_zoo.converters.refused import QK_POST_NORM, REFUSED

OFFICIAL = {name: table for name, table in ARCHITECTURES.items() if table.library == "transformers"}
#: imports the tables without `tfm_zoo/__init__.py`, which registers classes with transformers
IMPORT = """
import sys, types
package = types.ModuleType("tfm_zoo")
package.__path__ = [sys.argv[1]]
sys.modules["tfm_zoo"] = package
from tfm_zoo.converters import ARCHITECTURES
print(len(ARCHITECTURES), "torch" in sys.modules, "transformers" in sys.modules)
"""


@pytest.mark.slow
def test_a_table_is_data():
    """Whoever lists the architectures does not wait for torch."""
    folder = str(Path(tfm_zoo.__file__).parent)
    output = subprocess.run([sys.executable, "-c", IMPORT, folder], capture_output=True, text=True, check=True).stdout
    assert output.split() == [str(len(ARCHITECTURES)), "False", "False"]


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


def test_heads_name_classes_of_one_family():
    assert not REFUSED.keys() & ARCHITECTURES.keys()
    for table in ARCHITECTURES.values():
        assert {head.zoo.config_class.model_type for head in table.heads} == {table.family}


@pytest.mark.parametrize("model_type", REFUSED)
def test_who_is_refused_learns_why(model_type):
    """An architecture is told by its `model_type`, or by the name of its code."""
    config = {"model_type": model_type, "auto_map": {"AutoModel": model_type}}
    with pytest.raises(
        ConversionError, match=re.escape(f"{model_type!r}, which the zoo does not convert: {REFUSED[model_type]}.")
    ):
        architecture_of(Checkpoint("a folder", config, {}, GenerationConfig()))
    assert model_type in CONFIG_MAPPING or model_type == QK_POST_NORM


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_fields_of_heads_are_fields(head):
    """`to_official` compares a field of heads only where the head reads it."""
    assert set(head.head_fields) <= {field.name for field in fields(head.config_class)}


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
