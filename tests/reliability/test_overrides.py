"""One field changed, in the call or in a saved configuration, and what follows from it follows."""

import copy
import pickle

import pytest
import torch
import transformers

from tfm_zoo import (
    TfmBertConfig,
    TfmBertModel,
    TfmEncoderDecoderConfig,
    TfmEncoderDecoderForConditionalGeneration,
    TfmEncoderDecoderModel,
)

from ..tiny import ragged_batch, tiny_config, tiny_model


@pytest.mark.parametrize(
    "override",
    [
        {"norm_position": "pre"},
        {"num_attention_heads": 8},
        {"hidden_size": 64},
        {"position_embedding_type": "rotary", "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
    ],
    ids=lambda override: next(iter(override)),
)
def test_override_of_a_saved_config(tmp_path, override):
    tiny_config().save_pretrained(tmp_path)
    changed = transformers.AutoConfig.from_pretrained(tmp_path, **override)
    assert changed.to_dict() == tiny_config(**override, name_or_path=str(tmp_path)).to_dict()
    assert (changed.final_norm, changed.head_dim, changed.num_key_value_heads) == (
        changed.norm_position == "pre",
        changed.hidden_size // changed.num_attention_heads,
        changed.num_attention_heads,
    )


def test_what_was_chosen_stays_chosen(tmp_path):
    chosen = {"final_norm": True, "head_dim": 4, "num_key_value_heads": 2}
    tiny_config(**chosen).save_pretrained(tmp_path)
    changed = TfmBertConfig.from_pretrained(tmp_path, num_attention_heads=8)
    assert {name: getattr(changed, name) for name in chosen} == chosen


def test_overrides_are_checked(tmp_path):
    tiny_config().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="hidden_size=32 is not a multiple of num_attention_heads=3"):
        TfmBertConfig.from_pretrained(tmp_path, num_attention_heads=3)


@pytest.mark.parametrize(("wrong", "right"), [("norm_postion", "norm_position"), ("hidden_sizes", "hidden_size")])
def test_misspelt_field(wrong, right):
    with pytest.raises(ValueError, match=rf"no field '{wrong}'\. Is it '{right}'"):
        tiny_config(**{wrong: "pre"})


@pytest.mark.parametrize(
    ("override", "layers"),
    [
        ({}, (2, 3)),
        ({"num_hidden_layers": 1}, (1, 3)),
        ({"encoder_layers": 1}, (1, 3)),
        ({"decoder_layers": 1}, (2, 1)),
        ({"encoder_layers": 3, "decoder_layers": 2}, (3, 2)),
    ],
    ids=str,
)
def test_layers_of_both_sides(tmp_path, override, layers):
    tiny_config(TfmEncoderDecoderConfig).save_pretrained(tmp_path)
    config = TfmEncoderDecoderConfig.from_pretrained(tmp_path, **override)
    assert (config.encoder_layers, config.num_hidden_layers, config.decoder_layers) == (layers[0], *layers)
    model = TfmEncoderDecoderModel(config)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == layers
    config.save_pretrained(tmp_path / "again")
    assert transformers.AutoConfig.from_pretrained(tmp_path / "again").decoder_layers == layers[1]
    # Where the decoder's are not given, they are as many as the encoder's, in a saved configuration too.
    alike = tiny_config(TfmEncoderDecoderConfig, decoder_layers=None)
    alike.save_pretrained(tmp_path / "alike")
    alike = TfmEncoderDecoderConfig.from_pretrained(tmp_path / "alike", num_hidden_layers=4)
    assert (alike.encoder_layers, alike.decoder_layers) == (4, 4)


def test_what_the_decoder_is_read_as():
    config = tiny_config(TfmEncoderDecoderConfig, decoder_vocab_size=73)
    for side, sizes in (({}, (2, 61)), ({"encoder": True}, (2, 61)), ({"decoder": True}, (3, 73))):
        text = config.get_text_config(**side)
        assert (text.num_hidden_layers, text.vocab_size) == sizes
    assert (config.num_hidden_layers, config.vocab_size) == (2, 61)


def test_copies_are_whole():
    """A configuration and a model, copied and pickled; what is done to a copy is not done to the original."""
    head = TfmEncoderDecoderForConditionalGeneration
    model, batch = tiny_model(head), ragged_batch(head)
    wanted = model(**batch).logits
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other(**batch).logits.equal(wanted)
        assert other.lm_head.weight is other.get_input_embeddings().weight
        other.set_attn_implementation("eager")
        assert other.model.decoder.side._attn_implementation == "eager"
        torch.nn.init.zeros_(other.lm_head.weight)
    assert model(**batch).logits.equal(wanted) and model.config._attn_implementation == "sdpa"
    for config in (copy.deepcopy(model.config), pickle.loads(pickle.dumps(model.config))):
        assert config.to_dict() == model.config.to_dict()
    side = pickle.loads(pickle.dumps(model.model.decoder.side))
    assert side.num_hidden_layers == 3 and side.layer_types == ["full_attention"] * 3


def test_failed_save_leaves_what_was_there(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", lambda *args, **kwargs: 1 / 0)
    for folder in (tmp_path, tmp_path / "new"):
        with pytest.raises(ZeroDivisionError):
            tiny_model(TfmBertModel).save_pretrained(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
