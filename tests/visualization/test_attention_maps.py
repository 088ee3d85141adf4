"""The maps are the model's own weights, of the tokens that it reads, and the model is left as it was."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from transformers import FSMTTokenizer

import tfm_zoo
from tfm_zoo.training.tokenizers import byte_level_bpe
from tfm_zoo.visualization import attention_maps
from tfm_zoo.visualization.tokens import readable, shortened, token_labels

from ..official_models import BY_NAME, build_tiny
from ..tiny import HEADS, tiny_model
from .conftest import ENDS, TARGET, TEXT, model_of

TOKENS = ["[CLS]", *TEXT.split(), "[SEP]"]


def ids_of(tokenizer, text: str = TEXT) -> torch.Tensor:
    return torch.tensor([tokenizer(text).input_ids])


def assert_rows_sum_to_one(maps) -> None:
    for attention in maps.values():
        assert attention.weights.shape[2:] == (len(attention.queries), len(attention.keys))
        torch.testing.assert_close(attention.weights.sum(-1), torch.ones(attention.weights.shape[:-1]))


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_of_one_stack(kind, tokenizer):
    model = model_of(kind)
    maps = attention_maps(model, tokenizer, TEXT)
    assert maps.keys() == {kind}
    assert_rows_sum_to_one(maps)
    assert maps[kind].queries == maps[kind].keys == TOKENS
    model.set_attn_implementation("eager")
    expected = model(ids_of(tokenizer), output_attentions=True).attentions
    assert torch.equal(maps[kind].weights, torch.cat(expected))
    assert (maps[kind].weights.triu(1).count_nonzero() == 0) == (kind == "decoder")


def test_without_a_tokenizer(tokenizer):
    """As of a model of one's own, whose ids come from elsewhere."""
    for kind in ("encoder", "translator"):
        model, ids = model_of(kind), ids_of(tokenizer)
        maps, named = attention_maps(model, input_ids=ids), attention_maps(model, tokenizer, TEXT)
        assert all(torch.equal(maps[part].weights, named[part].weights) for part in named)
        assert maps["encoder"].keys == [str(index) for index in ids[0].tolist()]
    for arguments in ({}, {"text": TEXT}, {"tokenizer": tokenizer}):
        with pytest.raises(ValueError, match="takes these, or input_ids"):
            attention_maps(model, **arguments)
    with pytest.raises(ValueError, match=r"input_ids of shape \(9,\) should be of shape \(1, length\)"):
        attention_maps(model, input_ids=ids[0, :9])
    with pytest.raises(ValueError, match="target 'a bright film' needs a tokenizer"):
        attention_maps(model, input_ids=ids, target=TARGET)


@pytest.mark.parametrize("target", [TARGET, None])
def test_of_an_encoder_decoder(target, tokenizer):
    model = model_of("translator")
    maps = attention_maps(model, tokenizer, TEXT, target)
    assert list(maps) == ["encoder", "decoder", "cross"]
    assert_rows_sum_to_one(maps)
    ids = ids_of(tokenizer)
    if target is None:
        written = model.generate(ids, num_beams=1, do_sample=False, max_length=2 * ids.shape[1])
        read = written[:, :-1]  # nothing has read the last
    else:
        read = model.prepare_decoder_input_ids_from_labels(ids_of(tokenizer, target))
    model.set_attn_implementation("eager")
    outputs = model(ids, decoder_input_ids=read, output_attentions=True)
    assert torch.equal(maps["encoder"].weights, torch.cat(outputs.encoder_attentions))
    assert torch.equal(maps["decoder"].weights, torch.cat(outputs.decoder_attentions))
    assert torch.equal(maps["cross"].weights, torch.cat(outputs.cross_attentions))
    assert maps["encoder"].queries == maps["encoder"].keys == maps["cross"].keys == TOKENS
    assert maps["decoder"].queries == maps["decoder"].keys == maps["cross"].queries
    assert maps["cross"].queries == token_labels(tokenizer, read[0].tolist())


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_of_every_head(head, tokenizer):
    fields = ENDS if issubclass(head.config_class, tfm_zoo.TfmEncoderDecoderConfig) else {}
    model = tiny_model(head, **fields)
    target = TARGET if head is tfm_zoo.TfmEncoderDecoderModel else None  # which cannot write one
    assert_rows_sum_to_one(attention_maps(model, tokenizer, TEXT, target))


@pytest.mark.parametrize("name", ["BertForMaskedLM", "GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "MarianMTModel"])
def test_of_a_official_model(name, tokenizer):
    official = build_tiny(BY_NAME[name])
    theirs = attention_maps(official, tokenizer, TEXT, TARGET if name == "MarianMTModel" else None)
    ours = attention_maps(tfm_zoo.from_official(official), tokenizer, TEXT, TARGET if name == "MarianMTModel" else None)
    assert theirs.keys() == ours.keys()
    for kind in ours:
        torch.testing.assert_close(theirs[kind].weights, ours[kind].weights, atol=1e-5, rtol=0)
        assert (theirs[kind].queries, theirs[kind].keys) == (ours[kind].queries, ours[kind].keys)


def test_the_model_is_left_as_it_was(tokenizer):
    model = model_of("encoder").train()
    for text in (TEXT, TEXT * 3):  # the second is too long
        try:
            attention_maps(model, tokenizer, text)
        except ValueError:
            assert text != TEXT
        assert model.training and model.config._attn_implementation == "sdpa"


def test_a_tokenizer_that_pads_and_cuts(tokenizer):
    """The files of some tokenizers ask for padding and truncation; an attention map is of the text alone."""
    other = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, pad_token="[PAD]")
    other.backend_tokenizer.enable_padding(length=20)
    other.backend_tokenizer.enable_truncation(4)
    assert attention_maps(model_of("encoder"), other, TEXT)["encoder"].keys == TOKENS


@pytest.mark.parametrize(
    ("kind", "text", "target", "complaint"),
    [
        ("encoder", "film " * 30, None, "text has 32 tokens, and .* at most 24"),
        ("encoder", TEXT, TARGET, "target 'a bright film': .* reads no target"),
        ("decoder", TEXT, TARGET, "reads no target"),
    ],
)
def test_bad_texts(kind, text, target, complaint, tokenizer):
    with pytest.raises(ValueError, match=complaint):
        attention_maps(model_of(kind), tokenizer, text, target)


def test_bad_targets(tokenizer):
    bare = tiny_model(tfm_zoo.TfmEncoderDecoderModel, **ENDS)
    with pytest.raises(ValueError, match=r"TfmEncoderDecoderModel\) writes no target by itself: give it one"):
        attention_maps(bare, tokenizer, TEXT)
    classifier = tiny_model(tfm_zoo.TfmEncoderDecoderForSequenceClassification, **ENDS)
    with pytest.raises(ValueError, match="reads no target"):
        attention_maps(classifier, tokenizer, TEXT, TARGET)
    learned = tiny_model(tfm_zoo.TfmEncoderDecoderModel, **ENDS, position_embedding_type="learned")
    with pytest.raises(ValueError, match=r"target has 42 tokens, and .* at most 24"):
        attention_maps(learned, tokenizer, TEXT, "film " * 40)


def test_a_text_without_a_token(tokenizer):
    plain = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer)
    plain.backend_tokenizer.post_processor = None
    with pytest.raises(ValueError, match="text has no token"):
        attention_maps(model_of("decoder"), plain, "")


@pytest.mark.parametrize("head", [tfm_zoo.TfmBertModel, tfm_zoo.TfmGPTModel])
def test_linear_attention_has_no_weights(head, tokenizer):
    with pytest.raises(ValueError, match=f"{head.__name__}: linear attention has no weights"):
        attention_maps(tiny_model(head, attention_type="linear"), tokenizer, TEXT)


@pytest.mark.parametrize("gaps_are_none", [False, True])
def test_some_layers_are_linear(gaps_are_none, tokenizer, monkeypatch, caplog):
    types = ["full_attention", "linear_attention", "full_attention"]
    model = tiny_model(tfm_zoo.TfmGPTModel, num_hidden_layers=3, layer_types=types)
    forward, given = model.forward, []

    def without_gaps(*args, **kwargs):  # a gap may be `None`, or not there
        outputs = forward(*args, **kwargs)
        given[:] = [weights for weights in outputs.attentions if weights is not None]
        outputs.attentions = (given[0], None, given[1]) if gaps_are_none else tuple(given)
        return outputs

    monkeypatch.setattr(model, "forward", without_gaps)
    attention = attention_maps(model, tokenizer, TEXT)["decoder"]
    assert torch.equal(attention.weights, torch.cat(given)) and attention.layers == [0, 2]
    assert "decoder attention: linear layers have no weights to show (1)" in caplog.text
    attention.check(2, None)
    with pytest.raises(ValueError, match="layer 1: the decoder attention of TfmGPTModel has weights in 0, 2 alone"):
        attention.check(1, None)


def test_cross_attention_beside_linear_attention(tokenizer, caplog):
    model = tiny_model(tfm_zoo.TfmEncoderDecoderForConditionalGeneration, attention_type="linear", **ENDS)
    maps = attention_maps(model, tokenizer, TEXT, TARGET)
    assert maps.keys() == {"cross"} and list(maps["cross"].layers) == [0, 1, 2]
    assert_rows_sum_to_one(maps)
    assert "encoder attention: linear layers have no weights to show (0, 1)" in caplog.text
    assert "decoder attention: linear layers have no weights to show (0, 1, 2)" in caplog.text


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (lambda: tiny_model(tfm_zoo.TfmBertModel), "encoder"),
        (lambda: tiny_model(tfm_zoo.TfmEncoderDecoderEncoder), "encoder"),
        (lambda: tiny_model(tfm_zoo.TfmGPTModel), "decoder"),
        *((lambda name=name: build_tiny(BY_NAME[name]), "encoder") for name in ("BertModel", "DistilBertModel")),
        *((lambda name=name: build_tiny(BY_NAME[name]), "decoder") for name in ("GPT2Model", "OpenAIGPTModel")),
    ],
)
def test_of_a_single_token(model, kind, tokenizer):
    plain = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer)
    plain.backend_tokenizer.post_processor = None
    assert attention_maps(model(), plain, "film").keys() == {kind}


def test_a_vocabulary_of_the_source(tmp_path, monkeypatch):
    """FSMT's tokenizer, without the language rules that it takes from another package."""
    rules = SimpleNamespace(normalize=lambda text: text, tokenize=lambda text, **_: text.split())
    names = ("MosesPunctNormalizer", "MosesTokenizer", "MosesDetokenizer")
    monkeypatch.setitem(sys.modules, "sacremoses", SimpleNamespace(**{name: lambda **_: rules for name in names}))
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    for name, words in (("en", ["good</w>", "film</w>"]), ("de", ["guter</w>", "streifen</w>"])):
        (tmp_path / name).write_text(json.dumps({token: index for index, token in enumerate(special + words)}))
    (tmp_path / "merges").write_text("#\ng o 1\ngo o 1\ngoo d</w> 1\nf i 1\nfi l 1\nfil m</w> 1\n")
    tokenizer = FSMTTokenizer(["en", "de"], *(str(tmp_path / name) for name in ("en", "de", "merges")))
    ends = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    model = tiny_model(tfm_zoo.TfmEncoderDecoderForConditionalGeneration, **ends)
    monkeypatch.setattr(model, "generate", lambda *_, **__: torch.tensor([[2, 4, 5, 2]]))
    maps = attention_maps(model, tokenizer, "good film")
    assert maps["cross"].keys == maps["encoder"].queries == ["good·", "film·", "</s>"]
    assert maps["cross"].queries == maps["decoder"].keys == ["</s>", "guter·", "streifen·"]


@pytest.mark.parametrize("is_official", [False, True])
def test_of_positions_that_begin_after_padding(is_official, tokenizer):
    zoo = tiny_model(tfm_zoo.TfmBertModel, position_ids_from_padding=True)
    model = build_tiny(BY_NAME["RobertaModel"]) if is_official else zoo
    longest = model.config.max_position_embeddings - model.config.pad_token_id - 1
    attention_maps(model, tokenizer, "film " * (longest - 2))
    with pytest.raises(ValueError, match=f"reads at most {longest}"):
        attention_maps(model, tokenizer, "film " * (longest - 1))


@pytest.mark.parametrize(
    ("token", "label"),
    [
        ("▁film", "·film"),
        ("film</w>", "film·"),
        ("##s", "##s"),
        ("a\tb\n", "a⇥b↵"),
        ("\u200b", "\\u200b"),
        ("$x$", "$x$"),
    ],
)
def test_readable_tokens(token, label):
    assert readable(token) == label


def test_ids_without_a_token(tokenizer):
    assert token_labels(tokenizer, [2, 60]) == ["[CLS]", "<60>"]


def test_tokens_of_bytes():
    tokenizer = byte_level_bpe(["a café here"] * 3, 300)
    labels = token_labels(tokenizer, tokenizer("a café\nhere").input_ids)
    assert "".join(labels).replace(tokenizer.eos_token, "") == "a·café↵here"


def test_long_tokens_are_shortened():
    assert shortened(["film", "x" * 14, "x" * 15]) == ["film", "x" * 14, "x" * 13 + "…"]
