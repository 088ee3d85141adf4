"""Vocabularies, one or two, tied in every way, are saved once, load, and can be resized."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from tfm_zoo import TfmBertForMaskedLM, TfmBertForPreTraining, TfmEncoderDecoderEncoder
from tfm_zoo import TfmEncoderDecoderForConditionalGeneration as Translator

from ..tiny import ENCODER_DECODERS, SIZES, ragged_batch, tiny_model

SOURCE, TARGET, HEAD = TABLES = (
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
}
EVERY_TIE = pytest.mark.parametrize(("fields", "groups"), TIES.values(), ids=TIES)


def make(**fields) -> Translator:
    model = tiny_model(Translator, **fields)
    if model.config.final_logits_bias:
        model.lm_head.bias.normal_()
    return model


def tied(model) -> list[set[str]]:
    by_weight: dict[int, set[str]] = {}
    for name in TABLES:
        by_weight.setdefault(id(model.get_parameter(name)), set()).add(name)
    return list(by_weight.values())


def assert_loads(folder, model) -> None:
    loaded, report = Translator.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    assert tied(loaded) == tied(model)
    assert all(map(torch.equal, loaded.state_dict().values(), model.state_dict().values()))


@EVERY_TIE
def test_saved_once_and_loaded(fields, groups, tmp_path):
    """Each table once, whole and in shards; any one of the tied is enough, whichever name a table has, and all of them
    may be there, as in files of other makers."""
    model = make(final_logits_bias=True, **fields)
    assert tied(model) == groups
    model.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    assert_loads(tmp_path / "sharded", model)
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert all(len(group & saved.keys()) == 1 for group in groups) and "lm_head.bias" in saved
    others = {name: tensor for name, tensor in saved.items() if name not in TABLES}
    for names in [min(group) for group in groups], [max(group) for group in groups], TABLES:
        kept = others | {name: model.get_parameter(name).detach().clone() for name in names}
        save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
        assert_loads(tmp_path, model)


@pytest.mark.parametrize(("fields", "absent"), [({}, SOURCE), ({"decoder_vocab_size": 73}, TARGET)])
def test_missing_tables_are_reported(fields, absent, tmp_path):
    """A target's table that lacks altogether starts anew, and is named; it is not the source's by accident."""
    make(**fields).save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    saved.pop(absent)
    save_file(saved, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded, report = Translator.from_pretrained(tmp_path, output_loading_info=True)
    assert {absent, HEAD} <= report["missing_keys"]
    assert loaded.get_parameter(absent).std().item() == pytest.approx(SIZES["initializer_range"], rel=0.1)


@EVERY_TIE
def test_resized(fields, groups, tmp_path):
    """The source's vocabulary, and with shared embeddings the target's too; or the target's alone."""
    bias = "lm_head_bias" if groups == TIES["none"][1] else "final_logits_bias"
    for side, size in (("source", 80), ("source", 50), ("target", 80), ("target", 50)):
        model = make(**{bias: True}, **fields)
        before, config = {name: tensor.clone() for name, tensor in model.state_dict().items()}, model.config
        sizes = [size, size if config.share_encoder_decoder_embeddings else config.decoder_vocab_size]
        if side == "source":
            model.resize_token_embeddings(size)
        elif {SOURCE} in groups:
            sizes = [SIZES["vocab_size"], size]
            model.resize_decoder_token_embeddings(size)
        else:
            with pytest.raises(ValueError, match=r"no embeddings of its own .*resize_token_embeddings"):
                model.resize_decoder_token_embeddings(size)
            continue
        check_resized(model, before, *sizes)
        assert tied(model) == groups
        assert ("lm_head.bias" in dict(model.named_parameters())) == (bias == "lm_head_bias")
        model.save_pretrained(tmp_path)
        assert_loads(tmp_path, model)
        check_ends(model, *sizes)


def check_resized(model, before: dict, source: int, target: int) -> None:
    """The configuration and every tensor have the new sizes, and hold what was there; an untrained bias is zero."""
    config, after = model.config, model.state_dict()
    assert (config.vocab_size, config.decoder_vocab_size, model.lm_head.out_features) == (source, target, target)
    sizes = {SOURCE: source, TARGET: target, HEAD: target, "lm_head.bias": target}
    for name in after:
        kept = min(len(before[name]), len(after[name]))
        assert len(after[name]) == sizes.get(name, len(before[name])), name
        assert after[name][:kept].equal(before[name][:kept]), name
    if config.final_logits_bias:
        assert after["lm_head.bias"][len(before["lm_head.bias"]) :].eq(0).all()


def check_ends(model, source: int, target: int) -> None:
    """The last token of each vocabulary learns, and the next one is refused."""
    model.train()(torch.tensor([[3, source - 1, 2]]), labels=torch.tensor([[5, target - 1, 2]])).loss.backward()
    assert model.get_parameter(SOURCE).grad[source - 1].abs().sum() > 0
    assert model.get_parameter(HEAD).grad[target - 1].abs().sum() > 0
    with pytest.raises(ValueError, match=f"input_ids holds {source}.* 0 to {source - 1}"):
        model(torch.tensor([[source]]), decoder_input_ids=torch.tensor([[1]]))
    with pytest.raises(ValueError, match=f"decoder_input_ids holds {target}.*decoder_vocab_size.* 0 to {target - 1}"):
        model(torch.tensor([[3]]), decoder_input_ids=torch.tensor([[target]]))


@pytest.mark.parametrize("head", [*ENCODER_DECODERS, TfmBertForPreTraining], ids=lambda head: head.__name__)
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


def test_an_encoder_alone_has_no_target():
    with pytest.raises(ValueError, match=r"no embeddings of its own .*resize_token_embeddings"):
        tiny_model(TfmEncoderDecoderEncoder).resize_decoder_token_embeddings(70)


def test_new_embeddings_are_everybodys():
    """Set by hand, they are both sides', and the head's after it is tied to them again."""
    model = make()
    new = type(model.get_input_embeddings())(SIZES["vocab_size"], SIZES["hidden_size"])
    model.set_input_embeddings(new)
    model.tie_weights()
    assert tied(model) == TIES["all"][1]
    assert model.lm_head.weight is new.weight


@pytest.mark.parametrize(("is_tied", "size"), [(True, 70), (False, 50)])
def test_resized_vocabulary_of_an_encoder(is_tied, size):
    model = tiny_model(TfmBertForMaskedLM, tie_word_embeddings=is_tied)
    old = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.resize_token_embeddings(size)
    kept = min(size, SIZES["vocab_size"])
    assert model.config.vocab_size == model.lm_head.out_features == size
    for name in ("model.embeddings.embed_tokens.weight", "lm_head.weight", "lm_head.bias"):
        resized = model.state_dict()[name]
        assert resized.shape[0] == size and resized[:kept].equal(old[name][:kept]), name
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == is_tied
    ids = torch.tensor([[1, size - 1, 3]])
    model.train()(ids, labels=ids).loss.backward()
    assert model.lm_head.bias.grad[size - 1] != 0
