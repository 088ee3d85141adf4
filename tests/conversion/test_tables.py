"""The tables of official architectures, as data."""

import subprocess
import sys
from pathlib import Path

import pytest

import tfm_zoo
from tfm_zoo.converters import ARCHITECTURES
from tfm_zoo.converters.config_rules import Field

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


def test_heads_name_classes_of_one_family():
    for architecture in ARCHITECTURES.values():
        assert {head.zoo.config_class.model_type for head in architecture.heads} == {architecture.family}
