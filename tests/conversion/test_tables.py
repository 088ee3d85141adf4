"""The tables of official architectures, as data."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING

import tfm_zoo
from tfm_zoo.converters import ARCHITECTURES, ConversionError, from_official
from tfm_zoo.converters.choosing import is_installed
from tfm_zoo.converters.config_comparison import WITHOUT_EFFECT, effective_values
from tfm_zoo.converters.config_conversion import COMMON, completed, to_zoo_config
from tfm_zoo.converters.config_rules import Field
from tfm_zoo.converters.refused import REFUSED
from tfm_zoo.limits import positions_of

from ..equivalence.comparison import ragged_batch
from ..official_models import BY_NAME, TINY, TINY_OF, OfficialClass, build_tiny
from ..tiny import HEADS
from .folders import edit_config

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


#: official names that are no aliases of a field
NO_ALIASES = {
    **dict.fromkeys(("bias", "enable_bias", "use_bias"), "of attention_bias and mlp_bias"),
    **dict.fromkeys(("use_qkv_bias", "attention_out_bias"), "of a part of attention's projections"),
    "window_size": "of GPT-Neo; others count in other ways",
    **dict.fromkeys(("classifier_activation", "classifier_dropout_prob"), "of several heads' fields"),
    **dict.fromkeys(("decoder_bias", "seq_classif_dropout", "summary_activation", "summary_last_dropout"), "of a head"),
    **dict.fromkeys(("parallel_attn", "word_embed_proj_dim"), "one of several fields that go together"),
}


def test_official_names_of_fields_are_aliases():
    """Whoever makes a configuration with one is heard."""
    unknown = set()
    for architecture in ARCHITECTURES.values():
        config_class = architecture.heads[0].zoo.config_class
        known = {*config_class.attribute_map, *config_class.__dataclass_fields__, *NO_ALIASES}
        for head in architecture.heads if architecture.library == "transformers" else ():
            fields = [rule for rule in architecture.config_rules(head) if isinstance(rule, Field)]
            unknown |= {field.official for field in fields if field.official != field.zoo} - known
    assert not unknown


def test_a_refused_architecture_is_refused_with_the_reason(folder):
    assert not REFUSED.keys() & ARCHITECTURES.keys()
    edit_config(folder, model_type="gpt_oss")
    with pytest.raises(
        ConversionError, match="'gpt_oss', which the zoo does not convert: each head has a learned sink"
    ):
        from_official(folder)


def test_heads_name_classes_of_one_family():
    for architecture in ARCHITECTURES.values():
        assert {head.zoo.config_class.model_type for head in architecture.heads} == {architecture.family}


#: what a model has positions for, where it is not what its configuration calls so
POSITIONS = {
    "xlm-roberta-xl": ({"max_position_embeddings": 34, "pad_token_id": 1}, 32),
    "fsmt": ({"max_position_embeddings": 34, "pad_token_id": 1}, 32),
    "gpt2": ({"n_positions": 34}, 34),
    "mpt": ({"max_seq_len": 34}, 34),
    "t5": ({}, None),
    "bloom": ({}, None),
}


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_tables_say_how_many_tokens_a_model_takes(model_type):
    """The same for an official configuration and the zoo's."""
    table = ARCHITECTURES[model_type]
    if table.library != "transformers":
        pytest.skip("it has no configuration in transformers")
    chosen, most = POSITIONS.get(model_type, (None, None))
    official = CONFIG_MAPPING[table.official_type](**TINY_OF.get(model_type, TINY) | (chosen or {}))
    zoo = to_zoo_config(table, completed(table, official.to_dict()), table.heads[0].zoo, {})
    assert positions_of(official) == positions_of(zoo)
    assert chosen is None or positions_of(zoo) == most


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_fields_of_heads_are_fields(head):
    """`to_official` compares a field of heads only where the head reads it."""
    assert set(head.head_fields) <= {field.name for field in fields(head.config_class)}


@pytest.mark.parametrize(
    "table",
    [each for each in ARCHITECTURES.values() if each.library == "transformers" and is_installed(each)],
    ids=lambda table: table.model_type,
)
def test_no_official_field_that_changes_outputs_is_overlooked(table):
    """Each field that is not simply copied is changed in turn. Either the conversion fails, or the zoo's configuration
    changes, or the official class computes the same."""
    official_class = OfficialClass(table, table.heads[0])
    original = build_tiny(official_class)
    batch, fields = ragged_batch(official_class, original, "right", [7, 4]), original.config.to_dict()
    before, copied = zoo_values(official_class, fields), {rule.official for rule in table.config if is_copy(rule)}
    for name in (type(original.config).__dataclass_fields__.keys() & fields.keys()) - COMMON - copied:
        for value in other_values(fields[name]):
            try:
                config = type(original.config).from_dict(fields | {name: value})
                if zoo_values(official_class, config.to_dict()) != before:
                    continue
                changed = type(original)(config).eval()
                changed.load_state_dict(original.state_dict())
            except (ValueError, TypeError, KeyError, RuntimeError, AttributeError, StrictDataclassError):
                continue  # there is no such official model, or it is not converted
            with torch.no_grad():
                one, other = (model(**batch)[0] for model in (original, changed))
            assert torch.equal(one, other), f"{name}={value}"


def is_copy(rule) -> bool:
    return isinstance(rule, Field) and rule.zoo not in WITHOUT_EFFECT


def other_values(value) -> tuple:
    """Values that a field might have, beside its own."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int | float):
        return (value + 1, value / 2 + 0.1)
    return ("relu", "mean", True, None, 3, 0.3)


def zoo_values(official_class, fields: dict) -> dict:
    table, head = official_class.architecture, official_class.head
    return effective_values(to_zoo_config(table, completed(table, fields), head.zoo, {}), head)


def test_a_field_that_no_rule_reads_is_refused():
    official = build_tiny(BY_NAME["ModernBertForMaskedLM"], sparse_pred_ignore_index=7)
    with pytest.raises(ConversionError, match="ModernBERT with sparse_pred_ignore_index=7"):
        from_official(official)
