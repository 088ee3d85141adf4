"""The reference holds every public name, and each name that it holds has a docstring."""

import re
from importlib import import_module

import pytest

import tfm_zoo
from tfm_zoo.converters import ARCHITECTURES

from .document import REFERENCE, ROOT

NAMES = [name for page in REFERENCE for name in re.findall(r"^::: ([\w.]+)$", page.text, re.MULTILINE)]


def test_every_public_name_stands_there_once():
    data = {"tfm_zoo.NAMED_CONFIGS"}  # it has a heading of its own: a dict has no docstring
    assert {f"tfm_zoo.{name}" for name in tfm_zoo.__all__} - data <= set(NAMES)
    assert len(NAMES) == len(set(NAMES)) and len(tfm_zoo.__all__) == len(set(tfm_zoo.__all__))


@pytest.mark.parametrize("name", NAMES)
def test_each_name_has_a_docstring(name):
    module, _, attribute = name.rpartition(".")
    text = getattr(import_module(module), attribute).__doc__
    assert text and not text.startswith(f"{attribute}(")  # as a dataclass has that was given none


def test_every_architecture_is_named():
    """By itself, and not within the name of another: "BERT" is no part of "Megatron-BERT", nor "OLMo" of "OLMo 2"."""
    page = (ROOT / "docs" / "architectures.md").read_text("utf-8")
    names = [re.sub(r" v2 and v3$|'s text.*$", "", architecture.title) for architecture in ARCHITECTURES.values()]
    times = {name: len(re.findall(rf"(?<![\w.-]){re.escape(name)}(?![\w-]| v?\d| Embedding)", page)) for name in names}
    times["DeBERTa v2"] = len(re.findall("DeBERTa v2 and v3", page))
    assert {name for name, count in times.items() if count != 1} == set()
