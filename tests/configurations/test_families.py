"""The fields of a family: under any of their names, in files of this version and of earlier ones; what a family lacks
is refused by name."""

import json
import logging
import re
from dataclasses import fields
from typing import Any

import pytest
from transformers import AutoConfig

from tfm_zoo import TfmBertConfig, TfmEncoderDecoderConfig, TfmGPTConfig
from tfm_zoo.models.configuration_tfm import TfmConfig

FAMILIES = (TfmBertConfig, TfmGPTConfig, TfmEncoderDecoderConfig)
EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES)
#: `use_cache` is not a field of encoders, but scripts set it on every configuration
ANYWHERE = {"use_cache"}


def names(family: type[TfmConfig]) -> set[str]:
    """Of a family's fields, and their aliases."""
    return {each.name for each in fields(family)} | family.attribute_map.keys()


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
            return "gelu" if value == "relu" else "relu"
        case None:
            return 3


@EVERY_FAMILY
def test_fields_of_other_families_are_refused(family):
    assert family.lacks == set.union(*map(names, FAMILIES)) - names(family) - ANYWHERE
    for name in family.lacks:
        owner = next(other for other in FAMILIES if name in names(other))
        value = another(getattr(family(), name, getattr(owner(), name)))  # the shared code may read what it lacks
        with pytest.raises(ValueError, match=re.escape(f"{name}={value!r} is a field of other families, and not of")):
            family(**{name: value}, hidden_dropout=0.0)


@EVERY_FAMILY
def test_what_transformers_itself_stores_is_accepted(family):
    stored = {
        **{"architectures": ["TfmBertModel"], "dtype": "float32", "torch_dtype": "float16", "auto_map": {}},
        **{"transformers_version": "5.0.0", "_name_or_path": "folder", "quantization_config": None},
        **{"task_specific_params": {"task": {}}, "problem_type": "regression", "official": {"model_type": "bert"}},
        **{"tokenizer_class": "BertTokenizer", "sep_token_id": 3, "is_decoder": False, "add_cross_attention": False},
        **{"use_cache": False, "max_length": 20, "finetuning_task": "sst2"},
    }
    assert family(**stored).task_specific_params == {"task": {}}


VALUES = {int: 8, float: 0.25, str: "relu", bool: True}


@EVERY_FAMILY
def test_every_alias_is_read_and_set_as_its_field(family, tmp_path):
    for alias, field in family.attribute_map.items():
        value = 96 if field == "hidden_size" else VALUES[type(getattr(family(), field))]
        beside = {"weight_init": "normal"} if alias == "init_std" and "tgt_vocab_size" in family.attribute_map else {}
        made, changed = family(**{alias: value}, **beside), family(**beside)
        setattr(changed, alias, value)
        for config in (made, changed):
            assert getattr(config, field) == getattr(config, alias) == value, alias
            assert config.to_dict()[field] == value and alias not in config.to_dict()
        made.save_pretrained(tmp_path)
        assert getattr(AutoConfig.from_pretrained(tmp_path), alias) == value
        other = "gelu" if value == "relu" else value
        assert getattr(AutoConfig.from_pretrained(tmp_path, **{alias: other}), field) == other


@EVERY_FAMILY
def test_to_dict_holds_values(family):
    """PEFT's prefix tuning reads the number of key-value heads there."""
    values = family().to_dict()
    assert values["num_key_value_heads"] == values["num_attention_heads"]
    assert values["head_dim"] == 64
    assert None not in [values[name] for name in family.following_fields]


#: fields without effect that versions 0.1 and 0.2 took and saved, and one that the family has not
IDLE = {
    TfmBertConfig: {"relative_attention_max_distance": 77, "sinusoid_type": "halves", "decoder_layers": 3},
    TfmGPTConfig: {"num_experts_per_tok": 4, "moe_intermediate_size": 7, "classifier_pooling": "mean"},
    TfmEncoderDecoderConfig: {"initializer_range": 0.3, "token_types_as_tokens": True},
}


@EVERY_FAMILY
def test_saved_fields_without_effect_are_left_out(family, tmp_path, caplog):
    """The model is the same without them. What looks misspelt is kept, and the log says so."""
    family().save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    (*_, (name, value)), ours = IDLE[family].items(), {"mine": 1, "norm_postion": "pre"}
    idle = IDLE[family] | {"is_decoder": True, "add_cross_attention": True}
    (tmp_path / "config.json").write_text(json.dumps(saved | idle | ours))
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    config = AutoConfig.from_pretrained(tmp_path)
    logger.removeHandler(caplog.handler)
    assert config.to_dict() == family(name_or_path=tmp_path).to_dict() | ours
    assert f"{name}={value!r} has no effect: {family.__name__} has no such field." in caplog.text
    message = f"norm_postion='pre' has no effect: {family.__name__} has no such field. Is it 'norm_position'?"
    assert message in caplog.text


def test_an_override_may_end_the_effect_of_a_saved_field(tmp_path):
    TfmGPTConfig(num_local_experts=4, num_experts_per_tok=3, mlp_type="gated", mlp_bias=False).save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, num_local_experts=None)
    assert (config.num_local_experts, config.num_experts_per_tok) == (None, 2)
    with pytest.raises(ValueError, match="num_experts_per_tok=3 has no effect without num_local_experts"):
        AutoConfig.from_pretrained(tmp_path, num_local_experts=None, num_experts_per_tok=3)


def test_a_field_that_is_changed_changes_no_other():
    config = TfmEncoderDecoderConfig(decoder_layers=2, encoder_ffn_dim=64, d_ff=64)  # two names of one field may agree
    before = dict(vars(config))
    config.num_hidden_layers = 3
    assert {name for name, value in vars(config).items() if before[name] != value} == {"num_hidden_layers"}
    assert (config.encoder_layers, config.decoder_layers, config.intermediate_size) == (3, 2, 64)
