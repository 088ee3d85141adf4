"""Copies of a model are whole, and a save that fails leaves nothing behind."""

import copy
import pickle

import pytest
import torch

from tfm_zoo import TfmBertModel, TfmEncoderDecoderForConditionalGeneration

from ..tiny import ragged_batch, tiny_model


def test_copies_are_whole():
    """A configuration and a model, copied and pickled; what is done to a copy is not done to the original."""
    head = TfmEncoderDecoderForConditionalGeneration
    model, batch = tiny_model(head), ragged_batch(head)
    wanted = model(**batch).logits
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other(**batch).logits.equal(wanted)
        assert other.lm_head.weight is other.get_input_embeddings().weight
        other.set_attn_implementation("eager")
        assert other.model.decoder.config._attn_implementation == "eager"
        torch.nn.init.zeros_(other.lm_head.weight)
    assert model(**batch).logits.equal(wanted) and model.config._attn_implementation == "sdpa"
    for config in (copy.deepcopy(model.config), pickle.loads(pickle.dumps(model.config))):
        assert config.to_dict() == model.config.to_dict()
    side = pickle.loads(pickle.dumps(model.config.get_text_config(decoder=True)))
    assert side.num_hidden_layers == 3 and side.layer_types == ["full_attention"] * 3


def test_failed_save_leaves_what_was_there(tmp_path, monkeypatch):
    """An earlier model, and what others write meanwhile."""
    old, new = tmp_path / "old", tmp_path / "new"
    tiny_model(TfmBertModel).save_pretrained(old)
    before = {path.name: path.read_bytes() for path in old.iterdir()}

    theirs = iter(("first.txt", "second.txt"))

    def fail(*args, **kwargs):
        (old / next(theirs)).write_text("meanwhile")
        return 1 / 0

    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", fail)
    for folder in (old, new):
        with pytest.raises(ZeroDivisionError):
            tiny_model(TfmBertModel, seed=1).save_pretrained(folder)
    after = {path.name: path.read_bytes() for path in old.iterdir()}
    assert after == before | dict.fromkeys(("first.txt", "second.txt"), b"meanwhile") and not new.exists()
