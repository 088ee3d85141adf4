"""Weights start as they should, are whole in copies, and what follows from the configuration is no part of them."""

import copy
import pickle
from unittest import mock

import pytest
import torch

from tfm_zoo import TfmBertForPreTraining, TfmBertModel, TfmGPTForCausalLM
from tfm_zoo import TfmEncoderDecoderForConditionalGeneration as Translator

from ..tiny import ragged_batch, tiny_config, tiny_model

BY_TYPE = {name: {"rope_type": "default", "rope_theta": 1e4} for name in ("full_attention", "sliding_attention")}
LONGROPE = {"long_factor": [2.0] * 4, "short_factor": [1.5] * 4, "original_max_position_embeddings": 8}


def test_initial_weights():
    config = tiny_config(hidden_size=64, intermediate_size=256, position_ids_from_padding=True, pad_token_id=1)
    for name, tensor in TfmBertForPreTraining(config).state_dict().items():
        if name.endswith("norm.weight"):
            assert tensor.eq(1).all(), name
        elif tensor.dim() == 1:
            assert tensor.eq(0).all(), name
        else:
            assert tensor.std().item() == pytest.approx(config.initializer_range, rel=0.15), name
            if "embed_tokens" in name or "embed_positions" in name:
                assert tensor[1].eq(0).all(), name


def empty(model, way: str):
    """A model without weights, whose memory holds sevens, and then the state dict of this one, in one of four ways."""
    with torch.device("cpu" if way == "in use" else "meta"):
        other = type(model)(model.config)
    with mock.patch("torch.empty_like", lambda tensor, **options: torch.full_like(tensor, 7, **options)):
        for module in reversed([*other.modules()]) if way == "module by module" else [other]:
            if way != "assigned":
                module.to_empty(device="cpu", recurse=module is other)
    other.load_state_dict(model.state_dict(), assign=way == "assigned")
    return other.eval()


def rotary(parameters: dict, **fields) -> tuple[type, dict]:
    return TfmGPTForCausalLM, {"position_embedding_type": "rotary", "rope_parameters": parameters} | fields


CASES = [
    (Translator, {}),
    (TfmGPTForCausalLM, {"position_embedding_type": "alibi", "position_ids_from_mask": True}),
    rotary({"rope_type": "dynamic", "factor": 2.0}, max_position_embeddings=6),
    rotary({"rope_type": "longrope", "factor": 2.0} | LONGROPE),
    rotary(BY_TYPE, layer_types=[*BY_TYPE], sliding_window=3),
]


@pytest.mark.parametrize(("head", "fields"), CASES)
def test_no_state_dict_holds_what_follows_from_the_configuration(head, fields):
    model, batch = tiny_model(head, **fields), ragged_batch(head)
    wanted = model(**batch).logits
    for way in ("meta", "assigned", "in use", "module by module"):
        other = empty(model, way)
        assert other(**batch).logits.equal(wanted), way
        halved = other.bfloat16()(**batch).logits
        assert halved.dtype == torch.bfloat16, way
        assert halved.float().allclose(wanted, atol=0.1 * wanted.abs().max().item()), way


def test_copies_are_whole():
    """A configuration and a model, copied and pickled; what is done to a copy is not done to the original."""
    model, batch = tiny_model(Translator), ragged_batch(Translator)
    wanted = model(**batch).logits
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other(**batch).logits.equal(wanted) and other.lm_head.weight is other.get_input_embeddings().weight
        other.set_attn_implementation("eager")
        assert other.model.decoder.config._attn_implementation == "eager"
        torch.nn.init.zeros_(other.lm_head.weight)
    assert model(**batch).logits.equal(wanted) and model.config._attn_implementation == "sdpa"
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
