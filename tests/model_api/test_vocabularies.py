"""Vocabularies: one or two, tied in every way, and resized."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmBertForPreTraining,
    TfmEncoderDecoderEncoder,
    TfmEncoderDecoderForConditionalGeneration,
    TfmEncoderDecoderModel,
)

from ..tiny import ENCODER_DECODERS, SIZES, ragged_batch, tiny_model

SOURCE, TARGET, HEAD = (
    "model.encoder.embeddings.embed_tokens.weight",
    "model.decoder.embeddings.embed_tokens.weight",
    "lm_head.weight",
)
#: fields, and which of the three tables are one
TIES = {
    "all": ({}, [{SOURCE, TARGET, HEAD}]),
    "embeddings": ({"tie_word_embeddings": False}, [{SOURCE, TARGET}, {HEAD}]),
    "the target's": ({"share_encoder_decoder_embeddings": False}, [{SOURCE}, {TARGET, HEAD}]),
    "two vocabularies": ({"decoder_vocab_size": 73}, [{SOURCE}, {TARGET, HEAD}]),
    "none": ({"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}, [{SOURCE}, {TARGET}, {HEAD}]),
    "two vocabularies, none": ({"decoder_vocab_size": 73, "tie_word_embeddings": False}, [{SOURCE}, {TARGET}, {HEAD}]),
}
EVERY_TIE = pytest.mark.parametrize(("fields", "groups"), TIES.values(), ids=TIES)


def make(**fields) -> TfmEncoderDecoderForConditionalGeneration:
    model = tiny_model(TfmEncoderDecoderForConditionalGeneration, **fields)
    if model.config.final_logits_bias:
        model.lm_head.bias.normal_()
    return model


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(**ragged_batch(TfmEncoderDecoderForConditionalGeneration)).logits


def assert_tied(model, groups: list[set[str]]) -> None:
    by_weight: dict[int, set[str]] = {}
    for name in (SOURCE, TARGET, HEAD):
        by_weight.setdefault(id(model.get_parameter(name)), set()).add(name)
    assert list(by_weight.values()) == groups


def assert_loads(folder, model, groups) -> None:
    loaded, report = TfmEncoderDecoderForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    assert_tied(loaded, groups)
    assert logits(loaded).equal(logits(model))


@EVERY_TIE
def test_saved_once_and_loaded(fields, groups, tmp_path):
    """Each table once, whole and in shards; any one of the tied is enough, whichever name a table has, and all of them
    may be there, as in files of other makers."""
    bias = groups != TIES["none"][1]
    model = make(final_logits_bias=bias, **fields)
    assert_tied(model, groups)
    model.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    assert len(list((tmp_path / "sharded").glob("model-*.safetensors"))) > 2
    assert_loads(tmp_path / "sharded", model, groups)
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert all(len(group & saved.keys()) == 1 for group in groups)
    assert ("lm_head.bias" in saved) == bias
    assert len(saved) == len(dict(model.named_parameters())) + bias
    others = {name: tensor for name, tensor in saved.items() if name not in (SOURCE, TARGET, HEAD)}
    tables = {name: model.get_parameter(name).detach().clone() for name in (SOURCE, TARGET, HEAD)}
    for names in [min(group) for group in groups], [max(group) for group in groups], tables:
        kept = others | {name: tables[name] for name in names}
        save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
        assert_loads(tmp_path, model, groups)


@pytest.mark.parametrize(("fields", "absent"), [({}, SOURCE), ({"decoder_vocab_size": 73}, TARGET)])
def test_missing_tables_are_reported(fields, absent, tmp_path):
    """A target's table that lacks altogether starts anew, and is named; it is not the source's by accident."""
    make(**fields).save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    kept = {name: tensor for name, tensor in saved.items() if name != absent}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded, report = TfmEncoderDecoderForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert absent in report["missing_keys"] and HEAD in report["missing_keys"]
    assert loaded.get_parameter(absent).std().item() == pytest.approx(SIZES["initializer_range"], rel=0.1)


@EVERY_TIE
def test_resized(fields, groups, tmp_path):
    """The source's vocabulary, and with shared embeddings the target's too; or the target's alone."""
    for side, size in (("source", 80), ("source", 50), ("target", 80), ("target", 50)):
        model = make(final_logits_bias=size == 80 or groups != TIES["none"][1], **fields)
        before, config = {name: tensor.clone() for name, tensor in model.state_dict().items()}, model.config
        if side == "source":
            target = size if config.share_encoder_decoder_embeddings else config.decoder_vocab_size
            model.resize_token_embeddings(size)
            check_resized(model, before, groups, size, target, tmp_path)
        elif {SOURCE} in groups:
            model.resize_decoder_token_embeddings(size)
            check_resized(model, before, groups, SIZES["vocab_size"], size, tmp_path)


def check_resized(model, before: dict, groups: list, source: int, target: int, folder) -> None:
    config, after = model.config, model.state_dict()
    assert (config.vocab_size, config.decoder_vocab_size, model.lm_head.out_features) == (source, target, target)
    assert_tied(model, groups)
    sizes = {SOURCE: source, TARGET: target, HEAD: target, "lm_head.bias": target}
    for name in after:
        kept = min(len(before[name]), len(after[name]))
        assert len(after[name]) == sizes.get(name, len(before[name]))
        assert after[name][:kept].equal(before[name][:kept]), name
    assert "lm_head.bias" not in dict(model.named_parameters())
    if config.final_logits_bias:
        assert after["lm_head.bias"][len(before["lm_head.bias"]) :].eq(0).all()

    model.save_pretrained(folder)
    loaded = TfmEncoderDecoderForConditionalGeneration.from_pretrained(folder)
    assert_tied(loaded, groups)
    inputs = {"input_ids": torch.tensor([[3, source - 1, 2]]), "labels": torch.tensor([[5, target - 1, 2]])}
    assert loaded(**inputs).logits.equal(model(**inputs).logits)
    loaded.train()(**inputs).loss.backward()
    assert loaded.get_parameter(SOURCE).grad[source - 1].abs().sum() > 0
    assert loaded.get_parameter(HEAD).grad[target - 1].abs().sum() > 0
    with pytest.raises(ValueError, match=f"input_ids holds {source}.* 0 to {source - 1}"):
        loaded(torch.tensor([[source]]), decoder_input_ids=torch.tensor([[1]]))
    with pytest.raises(ValueError, match=f"decoder_input_ids holds {target}.*decoder_vocab_size.* 0 to {target - 1}"):
        loaded(torch.tensor([[3]]), decoder_input_ids=torch.tensor([[target]]))


def test_resized_with_a_trained_bias():
    model = make(lm_head_bias=True)
    before = model.lm_head.bias.clone()
    model.resize_token_embeddings(70)
    after = model.get_parameter("lm_head.bias")
    assert after.shape == (70,) and after[: len(before)].equal(before) and after.requires_grad


@pytest.mark.parametrize("head", ENCODER_DECODERS, ids=lambda head: head.__name__)
def test_every_head_resizes(head, tmp_path):
    """Its configuration too, so that it can be loaded again, the encoder's alone included."""
    model = tiny_model(head)
    model.resize_token_embeddings(pad_to_multiple_of=8)
    assert model.get_input_embeddings().num_embeddings == model.config.vocab_size == 64
    model.save_pretrained(tmp_path)
    batch = ragged_batch(head)
    loaded, wanted = head.from_pretrained(tmp_path)(**batch), tiny_model(head)(**batch)
    states = {name: value for name, value in loaded.items() if "hidden_state" in name}
    torch.testing.assert_close(states, {name: wanted[name] for name in states}, rtol=0, atol=0)


def test_a_target_without_embeddings_of_its_own_is_not_resized():
    for model in (make(), tiny_model(TfmEncoderDecoderEncoder)):
        with pytest.raises(ValueError, match=r"no embeddings of its own .*resize_token_embeddings"):
            model.resize_decoder_token_embeddings(70)
    model = tiny_model(TfmEncoderDecoderModel, decoder_vocab_size=73)
    assert model.resize_decoder_token_embeddings() is model.decoder.get_input_embeddings()
    model.resize_decoder_token_embeddings(80)
    assert model.decoder.get_input_embeddings().num_embeddings == model.config.decoder_vocab_size == 80


def test_new_embeddings_are_everybodys():
    """Set by hand, they are both sides', and the head's after it is tied to them again."""
    model = make()
    new = type(model.get_input_embeddings())(SIZES["vocab_size"], SIZES["hidden_size"])
    model.set_input_embeddings(new)
    model.tie_weights()
    assert_tied(model, TIES["all"][1])
    assert model.lm_head.weight is new.weight


@pytest.mark.parametrize(
    ("head", "tied", "size"),
    [(TfmBertForMaskedLM, True, 70), (TfmBertForMaskedLM, False, 50), (TfmBertForPreTraining, True, 50)],
)
def test_resized_vocabulary_of_an_encoder(head, tied, size, tmp_path):
    model = tiny_model(head, tie_word_embeddings=tied)
    old = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.resize_token_embeddings(size)
    kept = min(size, SIZES["vocab_size"])
    assert model.config.vocab_size == model.lm_head.out_features == size
    for name in ("model.embeddings.embed_tokens.weight", "lm_head.weight", "lm_head.bias"):
        resized = model.state_dict()[name]
        assert resized.shape[0] == size
        assert resized[:kept].equal(old[name][:kept]), name
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == tied
    model.save_pretrained(tmp_path)
    loaded = head.from_pretrained(tmp_path)
    ids = torch.tensor([[1, size - 1, 3]])
    assert loaded(ids)[0].equal(model(ids)[0])
    loss = loaded.train()(ids, labels=ids).loss
    loss.backward()
    assert loss.isfinite() and loaded.lm_head.bias.grad[size - 1] != 0
