"""Vocabularies, one or two, tied in every way, are saved once, load, and can be resized."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from tfm_zoo import TfmBertForMaskedLM, TfmBertForPreTraining, TfmEncoderDecoderEncoder, TfmGPTForCausalLM
from tfm_zoo import TfmEncoderDecoderForConditionalGeneration as Translator

from ..tiny import ENCODER_DECODERS, SIZES, ragged_batch, tiny_model

SOURCE, TARGET = (f"model.{side}.embeddings.embed_tokens.weight" for side in ("encoder", "decoder"))
HEAD = "lm_head.weight"
ONE, UNTIED = "model.embeddings.embed_tokens.weight", {"tie_word_embeddings": False}
APART, BIAS = {"share_encoder_decoder_embeddings": False}, {"lm_head_bias": True}
#: head, fields, and which of its tables are one
TIES = [
    (Translator, {}, [{SOURCE, TARGET, HEAD}]),
    (Translator, UNTIED, [{SOURCE, TARGET}, {HEAD}]),
    (Translator, {"decoder_vocab_size": 73}, [{SOURCE}, {TARGET, HEAD}]),
    (Translator, APART | UNTIED | BIAS | {"final_logits_bias": False}, [{SOURCE}, {TARGET}, {HEAD}]),
    *((head, {}, [{ONE, HEAD}]) for head in (TfmBertForMaskedLM, TfmGPTForCausalLM)),
    (TfmGPTForCausalLM, UNTIED, [{ONE}, {HEAD}]),
]
EVERY_TIE = pytest.mark.parametrize(("head", "fields", "groups"), TIES)


def make(head: type, **fields):
    model = tiny_model(head, **({"final_logits_bias": True} if head is Translator else {}) | fields)
    if model.lm_head.bias is not None:
        model.lm_head.bias.data.normal_()
    return model


def tied(model) -> list[set[str]]:
    by_weight: dict[int, set[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        if name in (SOURCE, TARGET, ONE, HEAD):
            by_weight.setdefault(id(weight), set()).add(name)
    return list(by_weight.values())


def assert_loads(folder, model) -> None:
    loaded, report = type(model).from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()) and tied(loaded) == tied(model), report
    assert all(map(torch.equal, loaded.state_dict().values(), model.state_dict().values()))


@EVERY_TIE
def test_saved_once_and_loaded(head, fields, groups, tmp_path):
    """Each table once, whole, in shards, and of copies that engines give; any one of the tied is enough, whichever name
    a table has, and all of them may be there, as in files of other makers."""
    model = make(head, **fields)
    assert tied(model) == groups
    model.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    assert len([*tmp_path.glob("sharded/model-*")]) > 2
    assert_loads(tmp_path / "sharded", model)
    copies = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for given in (dict(copies), None):
        model.save_pretrained(tmp_path, state_dict=given)
        saved = load_file(tmp_path / "model.safetensors")
        assert all(len(group & saved.keys()) == 1 for group in groups)
    others = {name: tensor for name, tensor in copies.items() if not any(name in group for group in groups)}
    assert saved.keys() - set().union(*groups) == others.keys()
    for kept in [min(group) for group in groups], [max(group) for group in groups], set().union(*groups):
        tables = {name: copies[name] for name in kept}
        save_file(others | tables, tmp_path / "model.safetensors", metadata={"format": "pt"})
        assert_loads(tmp_path, model)


@pytest.mark.parametrize(("fields", "absent"), [({}, SOURCE), ({"decoder_vocab_size": 73}, TARGET)])
def test_what_is_missing_is_reported_and_starts_anew(fields, absent, tmp_path):
    """A target's table is not the source's by accident. What is there stays as it is."""
    make(Translator, **fields).save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    norm, bias = (next(name for name in saved if name.endswith(end)) for end in ("norm.weight", "up_proj.bias"))
    kept = {name: tensor for name, tensor in saved.items() if name not in (absent, norm, bias)}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded, report = Translator.from_pretrained(tmp_path, output_loading_info=True)
    assert {absent, HEAD, norm, bias} <= report["missing_keys"]
    assert loaded.get_parameter(absent).std().item() == pytest.approx(SIZES["initializer_range"], rel=0.1)
    assert loaded.get_parameter(norm).eq(1).all() and not loaded.get_parameter(bias).any()
    assert all(loaded.state_dict()[name].equal(tensor) for name, tensor in kept.items())


@EVERY_TIE
def test_resized(head, fields, groups, tmp_path):
    """The source's vocabulary, and with shared embeddings the target's too; or the target's alone. Everything has the
    new size, holds what was there, and can be loaded; the last token learns, and the next one is refused."""
    old = make(head, **fields).config
    is_one = head is not Translator or old.share_encoder_decoder_embeddings
    for source, target in ((80, 80), (50, 50)) if is_one else ((80, old.decoder_vocab_size), (61, 80), (61, 50)):
        model = make(head, **fields)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        if source == old.vocab_size:
            model.resize_decoder_token_embeddings(target)
        else:
            model.resize_token_embeddings(source)
        assert model.config.vocab_size == source and model.lm_head.out_features == target
        assert getattr(model.config, "decoder_vocab_size", target) == target
        after, is_buffer = model.state_dict(), "lm_head.bias" in dict(model.named_buffers())
        for name, tensor in before.items():
            rows = source if name in (SOURCE, ONE) else target if name in (TARGET, HEAD, "lm_head.bias") else None
            kept = min(len(tensor), len(after[name]))
            assert len(after[name]) == (rows or len(tensor)) and after[name][:kept].equal(tensor[:kept]), name
            assert name != "lm_head.bias" or not is_buffer or not after[name][kept:].any()
        assert tied(model) == groups
        model.save_pretrained(tmp_path)
        assert_loads(tmp_path, model)
        check_ends(model, source, target)


def check_ends(model, source: int, target: int) -> None:
    ids, labels = torch.tensor([[3, source - 1, 2]]), torch.tensor([[5, target - 1, 2]])
    model.train()(ids, labels=labels).loss.backward()
    assert model.get_input_embeddings().weight.grad[source - 1].abs().sum() > 0
    assert model.lm_head.weight.grad[target - 1].abs().sum() > 0
    with pytest.raises(ValueError, match=f"input_ids holds {source}.* 0 to {source - 1}"):
        model(torch.tensor([[source]]), labels=labels[:, :1])
    with pytest.raises(ValueError, match=f"labels holds {target}.* 0 to {target - 1}"):
        model(ids, labels=labels + 1)


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


@pytest.mark.parametrize("head", [Translator, TfmEncoderDecoderEncoder])
def test_a_target_without_embeddings_of_its_own(head):
    with pytest.raises(ValueError, match=r"no embeddings of its own .*resize_token_embeddings"):
        tiny_model(head).resize_decoder_token_embeddings(70)


def test_new_embeddings_are_everybodys():
    """Set by hand, they are both sides', and the head's after it is tied to them again."""
    model = make(Translator)
    new = type(model.get_input_embeddings())(SIZES["vocab_size"], SIZES["hidden_size"])
    model.set_input_embeddings(new)
    model.tie_weights()
    assert tied(model) == TIES[0][2] and model.lm_head.weight is new.weight
