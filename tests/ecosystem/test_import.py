"""What an import brings: all of the zoo to a program, installed or not, and nothing slow to the command."""

import os
import shutil
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

import tfm_zoo
from tfm_zoo.families.auto_classes import FAMILIES

from ..forks import with_libraries
from ..hub.conftest import make_environment

#: for an environment where the package is not installed
PROGRAM = """
import sys
from importlib.metadata import distributions

import tfm_zoo
from transformers import AutoConfig, AutoModelForMaskedLM

assert "transformers.pipelines" not in sys.modules  # which `tfm_zoo.pipeline` imports when it is called
assert "tfm_zoo" not in {each.name for each in distributions()}
config = AutoConfig.for_model("tfm_bert", vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
assert isinstance(AutoModelForMaskedLM.from_config(config), tfm_zoo.TfmBertForMaskedLM)
print(tfm_zoo.__file__)
"""
ROOT = Path(tfm_zoo.__file__).parent


run = partial(subprocess.run, check=True, capture_output=True, text=True)


def test_every_class_of_the_families_is_public():
    """Written out, since a type checker reads no names that are computed."""
    for family in FAMILIES.values():
        assert {*family.auto_classes.values(), *family.other_auto_classes} <= {*tfm_zoo.__all__}


@pytest.mark.slow
def test_a_checkout_that_is_not_installed(tmp_path):
    """Whatever the program is called: it is not the command."""
    shutil.copytree(ROOT, tmp_path / "checkout/tfm_zoo")
    (tmp_path / "checkout/tfm-zoo").write_text(PROGRAM)
    python = make_environment(tmp_path / "environment", "torch", "transformers")
    ended = run([python, "tfm-zoo"], cwd=tmp_path / "checkout", env={**os.environ, "PYTHONPATH": ""})
    assert ended.stdout.strip() == str(tmp_path / "checkout/tfm_zoo/__init__.py")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["models.layers", "training.loop", "proof.reading", "converters.checkpoint"])
def test_whatever_is_imported_first(module):
    """The zoo is registered, though transformers is imported from the middle of its own file."""
    program = f"import tfm_zoo.{module}; from transformers import AutoConfig; "
    program += "assert type(AutoConfig.for_model('tfm_gpt')) is tfm_zoo.TfmGPTConfig"
    with_libraries().run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["list", "convert --help", "verify ./nowhere"])
def test_the_command_starts_without_torch(arguments):
    """`--help`, `list` and a wrong name import nothing that takes seconds."""
    variables = {"PYTHONPATH": str(ROOT.parent), "PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, "-m", "tfm_zoo", *arguments.split()]
    lines = run(command, env=os.environ | variables, check=False).stderr.split("\n")
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert "tfm_zoo.cli" in imported and not imported & {"torch", "transformers", "numpy"}
    assert arguments == "verify ./nowhere" or "huggingface_hub" not in imported  # it asks whether there is such a model


@pytest.mark.parametrize("old", ["packing.linear", "hub.contents", "named_configs"])
def test_modules_are_found_under_their_earlier_names(old):
    module = import_module(f"tfm_zoo.{old}")
    assert module is sys.modules[module.__spec__.name] and module.__spec__.name != f"tfm_zoo.{old}"
