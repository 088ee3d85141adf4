"""The tables of official architectures, as data."""

import subprocess
import sys
from pathlib import Path

import tfm_zoo
from tfm_zoo.converters import ARCHITECTURES

#: imports the tables without `tfm_zoo/__init__.py`, which registers classes with transformers
IMPORT = """
import sys, types
package = types.ModuleType("tfm_zoo")
package.__path__ = [sys.argv[1]]
sys.modules["tfm_zoo"] = package
from tfm_zoo.converters import ARCHITECTURES
print(len(ARCHITECTURES), "torch" in sys.modules, "transformers" in sys.modules)
"""


def test_a_table_is_data():
    """Whoever lists the architectures does not wait for torch."""
    folder = str(Path(tfm_zoo.__file__).parent)
    output = subprocess.run([sys.executable, "-c", IMPORT, folder], capture_output=True, text=True, check=True).stdout
    assert output.split() == [str(len(ARCHITECTURES)), "False", "False"]


def test_heads_name_classes_of_one_family():
    for architecture in ARCHITECTURES.values():
        assert {head.zoo.config_class.model_type for head in architecture.heads} == {architecture.family}
