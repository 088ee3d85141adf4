"""The fields of a family are read under any of their names, in files of this version and of earlier ones. What a family
lacks is refused by name; where a field is changed, what follows from it follows."""

import logging
from dataclasses import fields

import pytest
import torch
import transformers
from transformers import AutoConfig

from tfm_zoo import TfmBertConfig, TfmEncoderDecoderConfig, TfmEncoderDecoderModel, TfmGPTConfig, TfmGPTForCausalLM
from tfm_zoo import named_config as named
from tfm_zoo.models.configuration_tfm import TfmConfig
from tfm_zoo.models.configuration_tfm_deberta import TfmDebertaConfig
from tfm_zoo.models.configuration_tfm_text_tower import TfmTextTowerConfig

from ..hub.editing import edit
from ..tiny import tiny_config

FAMILIES = (TfmBertConfig, TfmGPTConfig, TfmEncoderDecoderConfig)
EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES)
ANYWHERE = {"use_cache", "is_causal"}  # scripts set the first on every configuration; decoders refuse the second
SLIDING, FULL, GATED = "sliding_attention", "full_attention", {"mlp_type": "gated", "mlp_bias": False}


def names(family: type[TfmConfig]) -> set[str]:
    """Of a family's fields, and their aliases."""
    return {each.name for each in fields(family)} | family.attribute_map.keys()


@EVERY_FAMILY
def test_fields_of_other_families_are_refused(family):
    others = (*FAMILIES, TfmDebertaConfig, TfmTextTowerConfig)
    assert family.lacks == set.union(*map(names, others)) - names(family) - ANYWHERE
    for name in family.lacks:
        with pytest.raises(ValueError, match=f"^{name}=.* is a field of other families, and not of"):
            family(**{name: "other"}, hidden_dropout=0.0)


@EVERY_FAMILY
def test_what_transformers_stores_or_a_class_of_ones_own_takes_is_accepted(family):
    stored = {
        **{"architectures": ["TfmBertModel"], "dtype": "float32", "torch_dtype": "float16", "auto_map": {}},
        **{"transformers_version": "5.0.0", "_name_or_path": "folder", "quantization_config": None},
        **{"task_specific_params": {"task": {}}, "problem_type": "regression", "official": {"model_type": "bert"}},
        **{"tokenizer_class": "BertTokenizer", "sep_token_id": 3, "is_decoder": False, "use_cache": False},
    }
    assert family(**stored).task_specific_params == {"task": {}}
    type("Own", (family,), {"__init__": lambda self, hidden_sizes: family.__init__(self)})(hidden_sizes=[8])


VALUES = {int: 8, float: 0.25, str: "relu", bool: True, type(None): 4}


@EVERY_FAMILY
def test_every_alias_is_read_and_set_as_its_field(family, tmp_path):
    for alias, field in family.attribute_map.items():
        value = {"hidden_size": 96, "num_key_value_heads": 4}.get(field) or VALUES[type(getattr(family(), field))]
        beside = {"weight_init": "normal"} if family is TfmEncoderDecoderConfig else GATED
        made, changed = family(**{alias: value}, **beside), family(**beside)
        setattr(changed, alias, value)
        for config in (made, changed):
            assert getattr(config, field) == getattr(config, alias) == value, alias
            assert config.to_dict()[field] == value and alias not in config.to_dict()
        made.save_pretrained(tmp_path)
        assert getattr(AutoConfig.from_pretrained(tmp_path), alias) == value
        other = "gelu" if value == "relu" else value
        assert getattr(AutoConfig.from_pretrained(tmp_path, **{alias: other}), field) == other


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
    (*_, (name, value)), ours = IDLE[family].items(), {"mine": 1, "norm_postion": "pre"}
    idle = IDLE[family] | {"is_decoder": True, "add_cross_attention": True}
    edit(tmp_path, "config.json", **idle | ours)
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    config = AutoConfig.from_pretrained(tmp_path)
    logger.removeHandler(caplog.handler)
    assert config.to_dict() == family(name_or_path=tmp_path).to_dict() | ours
    assert f"{name}={value!r} has no effect: {family.__name__} has no such field." in caplog.text
    assert "has no such field. Is it 'norm_position'?" in caplog.text


@pytest.mark.parametrize("override", [{"norm_position": "pre"}, {"num_attention_heads": 8}, {"hidden_size": 64}])
def test_override_of_a_saved_config(tmp_path, override):
    """What was chosen stays chosen, and the rest follows."""
    tiny_config().save_pretrained(tmp_path)
    changed = AutoConfig.from_pretrained(tmp_path, **override)
    assert changed.to_dict() == tiny_config(**override, name_or_path=str(tmp_path)).to_dict()
    assert changed.final_norm == (changed.norm_position == "pre")
    assert changed.head_dim == changed.hidden_size // changed.num_attention_heads
    chosen = {"final_norm": True, "head_dim": 4, "num_key_value_heads": 2}
    tiny_config(**chosen).save_pretrained(tmp_path)
    assert chosen.items() <= TfmBertConfig.from_pretrained(tmp_path, num_attention_heads=8).to_dict().items()


def test_an_override_may_end_the_effect_of_a_saved_field(tmp_path):
    TfmGPTConfig(num_local_experts=4, num_experts_per_tok=3, mlp_type="gated", mlp_bias=False).save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, num_local_experts=None)
    assert (config.num_local_experts, config.num_experts_per_tok) == (None, 2)
    with pytest.raises(ValueError, match="num_experts_per_tok=3 has no effect without num_local_experts"):
        AutoConfig.from_pretrained(tmp_path, num_local_experts=None, num_experts_per_tok=3)


def test_what_is_changed_later():
    """Of two names of one field, which may agree, none changes another field. A vocabulary that is given as it would be
    anyway follows the other, since official code changes one name for both."""
    config = TfmEncoderDecoderConfig(decoder_layers=2, encoder_ffn_dim=64, d_ff=64)
    before = dict(vars(config))
    config.num_hidden_layers = 3
    assert {name for name, value in vars(config).items() if before[name] != value} == {"num_hidden_layers"}
    assert (config.encoder_layers, config.decoder_layers, config.intermediate_size) == (3, 2, 64)
    config = TfmEncoderDecoderConfig(vocab_size=61, decoder_vocab_size=61, share_encoder_decoder_embeddings=True)
    config.vocab_size = 4
    assert (config.decoder_vocab_size, config.share_encoder_decoder_embeddings) == (4, True)
    config.validate_fields()


def test_a_feed_forward_is_as_wide_as_the_official_one():
    """GPT-2's is four times as wide as the model while nobody says otherwise; that of others is a number."""
    narrow = {"hidden_size": 96}
    for config, width in (
        (TfmGPTConfig(**narrow), 384),
        (TfmGPTConfig(**narrow, n_inner=100), 100),
        (named("opt-125m", **narrow), transformers.OPTConfig(**narrow).ffn_dim),
        (TfmGPTConfig.from_dict({"intermediate_size": 3072}, **narrow), 3072),  # what earlier versions save
    ):
        assert config.intermediate_size == width
        assert type(config).from_dict(config.to_diff_dict()).to_dict() == config.to_dict()


@pytest.mark.parametrize(
    ("given", "override", "layers"),
    [
        (3, {}, (2, 3)),
        (3, {"encoder_layers": 1}, (1, 3)),
        (3, {"decoder_layers": 1}, (2, 1)),
        (None, {"num_hidden_layers": 4}, (4, 4)),  # the decoder's are as many as the encoder's
    ],
    ids=str,
)
def test_layers_of_both_sides(tmp_path, given, override, layers):
    tiny_config(TfmEncoderDecoderConfig, decoder_layers=given).save_pretrained(tmp_path)
    config = TfmEncoderDecoderConfig.from_pretrained(tmp_path, **override)
    assert (config.encoder_layers, config.num_hidden_layers, config.decoder_layers) == (layers[0], *layers)
    model, text = TfmEncoderDecoderModel(config), config.get_text_config(decoder=True)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == layers
    assert text.layer_types == [FULL] * text.num_hidden_layers == [FULL] * layers[1]
    config.save_pretrained(tmp_path / "again")
    assert AutoConfig.from_pretrained(tmp_path / "again").decoder_layers == layers[1]


def test_layers_that_are_alike_follow_what_is_changed_later(tmp_path):
    """As in the official configurations, where nothing else says which layers slide."""
    config = tiny_config(TfmGPTConfig, use_cache=True, eos_token_id=None)
    config.sliding_window, config.num_hidden_layers = 4, 3
    assert config.layer_types == [SLIDING] * 3
    model = TfmGPTForCausalLM(config).eval()
    model.model.layers = model.model.layers[:1]
    config.num_hidden_layers = 1
    model.save_pretrained(tmp_path)
    assert TfmGPTForCausalLM.from_pretrained(tmp_path).config.layer_types == [SLIDING]
    assert model.generate(torch.arange(6).view(1, 6), max_new_tokens=3).shape == (1, 9)
    mixed = tiny_config(TfmGPTConfig, sliding_window=4, layer_types=[FULL, SLIDING])
    mixed.sliding_window = 5
    assert mixed.layer_types == [FULL, SLIDING]
