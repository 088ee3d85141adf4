"""One field changed, in the call or in a saved configuration, and what follows from it follows."""

import pytest
import torch
import transformers

from tfm_zoo import TfmBertConfig, TfmEncoderDecoderConfig, TfmEncoderDecoderModel, TfmGPTConfig, TfmGPTForCausalLM
from tfm_zoo import named_config as named

from ..tiny import tiny_config

SLIDING, FULL = "sliding_attention", "full_attention"


@pytest.mark.parametrize(
    "override",
    [
        *({"norm_position": "pre"}, {"num_attention_heads": 8}, {"hidden_size": 64}),
        {"position_embedding_type": "rotary", "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
    ],
    ids=lambda override: next(iter(override)),
)
def test_override_of_a_saved_config(tmp_path, override):
    """What was chosen stays chosen."""
    tiny_config().save_pretrained(tmp_path)
    changed = transformers.AutoConfig.from_pretrained(tmp_path, **override)
    assert changed.to_dict() == tiny_config(**override, name_or_path=str(tmp_path)).to_dict()
    assert changed.final_norm == (changed.norm_position == "pre")
    assert changed.head_dim == changed.hidden_size // changed.num_attention_heads
    assert changed.num_key_value_heads == changed.num_attention_heads
    chosen = {"final_norm": True, "head_dim": 4, "num_key_value_heads": 2}
    tiny_config(**chosen).save_pretrained(tmp_path)
    assert chosen.items() <= TfmBertConfig.from_pretrained(tmp_path, num_attention_heads=8).to_dict().items()


NARROW = {"hidden_size": 96}


@pytest.mark.parametrize(
    ("config", "inner"),
    [
        (TfmGPTConfig(**NARROW), 384),
        (TfmGPTConfig(**NARROW, n_inner=None), 384),
        (TfmGPTConfig(**NARROW, n_inner=100), 100),
        (named("gpt2", **NARROW), 384),
        (named("gpt2-medium", **NARROW), 384),
        (named("opt-125m", **NARROW), transformers.OPTConfig(**NARROW).ffn_dim),
        (TfmGPTConfig.from_dict({"intermediate_size": 3072}, **NARROW), 3072),  # what earlier versions save
        (TfmBertConfig(**NARROW), transformers.BertConfig(**NARROW).intermediate_size),
    ],
    ids=lambda value: getattr(value, "model_type", value),
)
def test_a_feed_forward_is_as_wide_as_the_official_one(config, inner):
    """GPT-2's is four times as wide as the model while nobody says otherwise; that of others is a number."""
    assert config.intermediate_size == inner
    assert type(config).from_dict(config.to_diff_dict()).to_dict() == config.to_dict()


@pytest.mark.parametrize(
    ("given", "override", "layers"),
    [
        (3, {}, (2, 3)),
        (3, {"num_hidden_layers": 1}, (1, 3)),
        (3, {"encoder_layers": 1}, (1, 3)),
        (3, {"decoder_layers": 1}, (2, 1)),
        (3, {"encoder_layers": 3, "decoder_layers": 2}, (3, 2)),
        (None, {"num_hidden_layers": 4}, (4, 4)),  # the decoder's are as many as the encoder's
    ],
    ids=str,
)
def test_layers_of_both_sides(tmp_path, given, override, layers):
    tiny_config(TfmEncoderDecoderConfig, decoder_layers=given).save_pretrained(tmp_path)
    config = TfmEncoderDecoderConfig.from_pretrained(tmp_path, **override)
    assert (config.encoder_layers, config.num_hidden_layers, config.decoder_layers) == (layers[0], *layers)
    model = TfmEncoderDecoderModel(config)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == layers
    config.save_pretrained(tmp_path / "again")
    assert transformers.AutoConfig.from_pretrained(tmp_path / "again").decoder_layers == layers[1]


def test_what_the_decoder_is_read_as():
    config = tiny_config(TfmEncoderDecoderConfig, decoder_vocab_size=73)
    texts = [config, *(config.get_text_config(**side) for side in ({}, {"encoder": True}, {"decoder": True}))]
    assert [(text.num_hidden_layers, text.vocab_size) for text in texts] == [(2, 61)] * 3 + [(3, 73)]


def test_layers_that_are_alike_follow_what_is_changed_later(tmp_path):
    """As in the official configurations, where nothing else says which layers slide."""
    config = tiny_config(TfmGPTConfig, use_cache=True, eos_token_id=None)
    config.sliding_window = 4
    assert config.layer_types == [SLIDING] * 2
    config.num_hidden_layers = 3
    model = TfmGPTForCausalLM(config).eval()
    model.model.layers = model.model.layers[:1]
    config.num_hidden_layers = 1
    model.save_pretrained(tmp_path)
    assert TfmGPTForCausalLM.from_pretrained(tmp_path).config.layer_types == [SLIDING]
    config.sliding_window = None
    model = TfmGPTForCausalLM(config).eval()
    assert model.generate(torch.arange(6).view(1, 6), max_new_tokens=3).shape == (1, 9)
    mixed = tiny_config(TfmGPTConfig, sliding_window=4, layer_types=[FULL, SLIDING])
    mixed.sliding_window = 5
    assert mixed.layer_types == [FULL, SLIDING]


def test_what_is_given_as_it_would_be_anyway_follows_what_is_changed_later():
    """A converted Marian has two equal vocabularies, and official code changes one name for both."""
    config = TfmEncoderDecoderConfig(vocab_size=61, decoder_vocab_size=61, share_encoder_decoder_embeddings=True)
    config.vocab_size = 4
    assert (config.decoder_vocab_size, config.share_encoder_decoder_embeddings) == (4, True)
    config.validate_fields()
