"""Configurations as tools expect them: other names of fields, values in `to_dict`, foreign attributes."""

import json
import logging

import pytest
from transformers import AutoConfig

from tfm_zoo import TfmBertConfig, TfmEncoderDecoderConfig, TfmGPTConfig

CONFIGS = (TfmBertConfig, TfmGPTConfig, TfmEncoderDecoderConfig)
VALUES = {int: 8, float: 0.25, str: "relu", bool: True}


@pytest.mark.parametrize("config_class", CONFIGS)
def test_every_alias_is_read_and_set_as_its_field(config_class, tmp_path):
    for alias, field in config_class.attribute_map.items():
        value = 96 if field == "hidden_size" else VALUES[type(getattr(config_class(), field))]
        beside = (
            {"weight_init": "normal"} if alias == "init_std" and "tgt_vocab_size" in config_class.attribute_map else {}
        )
        made, changed = config_class(**{alias: value}, **beside), config_class(**beside)
        setattr(changed, alias, value)
        for config in (made, changed):
            assert getattr(config, field) == getattr(config, alias) == value, alias
            assert config.to_dict()[field] == value and alias not in config.to_dict()
        made.save_pretrained(tmp_path)
        assert getattr(AutoConfig.from_pretrained(tmp_path), alias) == value
        other = "gelu" if value == "relu" else value
        assert getattr(AutoConfig.from_pretrained(tmp_path, **{alias: other}), field) == other


@pytest.mark.parametrize("config_class", CONFIGS)
def test_to_dict_holds_values(config_class):
    """PEFT's prefix tuning reads the number of key-value heads there."""
    values = config_class().to_dict()
    assert values["num_key_value_heads"] == values["num_attention_heads"]
    assert values["head_dim"] == 64
    assert None not in [values[name] for name in config_class.following_fields()]


@pytest.fixture
def log(caplog):
    """What transformers and the configurations log."""
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


def test_a_saved_name_that_looks_misspelt_is_kept_with_a_warning(tmp_path, log):
    TfmBertConfig().save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(saved | {"norm_postion": "pre"}))
    config = AutoConfig.from_pretrained(tmp_path)
    assert config.norm_postion == "pre" and config.norm_position == "post"
    assert "norm_postion='pre' has no effect: TfmBertConfig has no such field. Is it 'norm_position'?" in log.text


def test_a_field_that_is_changed_changes_no_other():
    config = TfmEncoderDecoderConfig(decoder_layers=2)
    before = dict(vars(config))
    config.num_hidden_layers = 3
    assert {name for name, value in vars(config).items() if before[name] != value} == {"num_hidden_layers"}
    assert config.encoder_layers == 3 and config.decoder_layers == 2


IDLE = {
    TfmBertConfig: {"relative_attention_max_distance": 77, "sinusoid_type": "halves"},
    TfmGPTConfig: {"num_experts_per_tok": 4, "moe_intermediate_size": 7},
    TfmEncoderDecoderConfig: {"initializer_range": 0.3},
}
FOREIGN = {
    TfmBertConfig: ("decoder_layers", 3),
    TfmGPTConfig: ("classifier_pooling", "mean"),
    TfmEncoderDecoderConfig: ("token_types_as_tokens", True),
}


@pytest.mark.parametrize("config_class", CONFIGS)
def test_saved_fields_without_effect_are_left_out(config_class, tmp_path, log):
    """Versions 0.1 and 0.2 took and saved them; the model is the same without them."""
    config_class().save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    name, value = FOREIGN[config_class]
    idle = IDLE[config_class] | {name: value, "is_decoder": True, "add_cross_attention": True, "mine": 1}
    (tmp_path / "config.json").write_text(json.dumps(saved | idle))
    assert AutoConfig.from_pretrained(tmp_path).to_dict() == config_class(mine=1, name_or_path=tmp_path).to_dict()
    assert f"{name}={value!r} has no effect: {config_class.__name__} has no such field." in log.text


def test_an_override_may_end_the_effect_of_a_saved_field(tmp_path):
    TfmGPTConfig(num_local_experts=4, num_experts_per_tok=3, mlp_type="gated", mlp_bias=False).save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, num_local_experts=None)
    assert (config.num_local_experts, config.num_experts_per_tok) == (None, 2)
    with pytest.raises(ValueError, match="num_experts_per_tok=3 has no effect without num_local_experts"):
        AutoConfig.from_pretrained(tmp_path, num_local_experts=None, num_experts_per_tok=3)
