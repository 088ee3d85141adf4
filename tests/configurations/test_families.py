"""A field that a family lacks is refused by name, and one list of the family holds all of them."""

import re
from dataclasses import fields
from typing import Any

import pytest
from transformers import AutoConfig

from tfm_zoo import TfmBertConfig, TfmEncoderDecoderConfig, TfmGPTConfig
from tfm_zoo.models.configuration_tfm import TfmConfig

from ..tiny import tiny_config

FAMILIES = (TfmBertConfig, TfmGPTConfig, TfmEncoderDecoderConfig)
#: `use_cache` is no field of encoders, but scripts set it on every configuration
ANYWHERE = {"use_cache"}


def names(family: type[TfmConfig]) -> set[str]:
    """Of a family's fields, and their aliases."""
    return ({each.name for each in fields(family)} | family.attribute_map.keys()) - set(family.lacks)


def another(value: Any) -> Any:
    """A value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case list():
            return value[:-1]
        case str():
            return "relu"
        case None:
            return 3


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_lists_what_it_lacks(family):
    assert set(family.lacks) == set.union(*map(names, FAMILIES)) - names(family) - ANYWHERE
    assert len(family.lacks) == len(set(family.lacks))


@pytest.mark.parametrize("family", FAMILIES)
def test_fields_of_other_families_are_refused(family):
    for name in family.lacks:
        owner = next(other for other in FAMILIES if name in names(other))
        value = another(getattr(family(), name, getattr(owner(), name)))  # the shared code may read what it lacks
        with pytest.raises(ValueError, match=re.escape(f"{name}={value!r} is a field of other families, and not of")):
            family(**{name: value}, hidden_dropout=0.0)


def test_they_are_refused_as_overrides_and_when_a_model_is_made(tmp_path):
    tiny_config().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="decoder_layers=3 is a field of other families"):
        AutoConfig.from_pretrained(tmp_path, decoder_layers=3)
    config = tiny_config()
    config.position_offset = 2
    with pytest.raises(ValueError, match="position_offset=2 is a field of other families"):
        config.validate_fields()


def test_what_transformers_itself_stores_is_accepted():
    stored = {
        "architectures": ["TfmBertModel"],
        "dtype": "float32",
        "torch_dtype": "float16",
        "transformers_version": "5.0.0",
        "_name_or_path": "folder",
        "auto_map": {},
        "quantization_config": None,
        "task_specific_params": {"task": {}},
        "problem_type": "regression",
        "official": {"model_type": "bert"},
        "tokenizer_class": "BertTokenizer",
        "sep_token_id": 3,
        "is_decoder": False,
        "add_cross_attention": False,
        "use_cache": False,
        "max_length": 20,
        "finetuning_task": "sst2",
    }
    for family in FAMILIES:
        assert family(**stored).task_specific_params == {"task": {}}
