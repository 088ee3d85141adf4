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
    assert maps[kind].queries == maps[kind].keys == TOKENS
    model.set_attn_implementation("eager")
    expected = model(ids_of(tokenizer), output_attentions=True).attentions
    assert torch.equal(maps[kind].weights, torch.cat(expected))


@pytest.mark.parametrize("target", [TARGET, None])
def test_of_an_encoder_decoder(target, tokenizer):
    model, ids = model_of("translator"), ids_of(tokenizer)
    maps = attention_maps(model, tokenizer, TEXT, target)
    if target is None:
        written = model.generate(ids, num_beams=1, do_sample=False, max_length=2 * ids.shape[1])
        read = written[:, :-1]  # nothing has read the last
    else:
        read = model.prepare_decoder_input_ids_from_labels(ids_of(tokenizer, target))
    model.set_attn_implementation("eager")
    outputs = model(ids, decoder_input_ids=read, output_attentions=True)
    written = token_labels(tokenizer, read[0].tolist())
    expected = {
        "encoder": (outputs.encoder_attentions, TOKENS, TOKENS),
        "decoder": (outputs.decoder_attentions, written, written),
        "cross": (outputs.cross_attentions, written, TOKENS),
    }
    assert list(maps) == list(expected)
    for kind, (weights, queries, keys) in expected.items():
        assert torch.equal(maps[kind].weights, torch.cat(weights))
        assert (maps[kind].queries, maps[kind].keys) == (queries, keys)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_of_every_head(head, tokenizer):
    fields = ENDS if issubclass(head.config_class, tfm_zoo.TfmEncoderDecoderConfig) else {}
    model = tiny_model(head, **fields)
    target = TARGET if head is tfm_zoo.TfmEncoderDecoderModel else None  # which cannot write one
    assert_rows_sum_to_one(attention_maps(model, tokenizer, TEXT, target))


@pytest.mark.parametrize("name", ["BertForMaskedLM", "GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "MarianMTModel"])
def test_of_an_official_model(name, tokenizer):
    official, target = build_tiny(BY_NAME[name]), TARGET if name == "MarianMTModel" else None
    theirs, ours = (
        attention_maps(model, tokenizer, TEXT, target) for model in (official, tfm_zoo.from_official(official))
    )
    assert theirs.keys() == ours.keys()
    for kind in ours:
        torch.testing.assert_close(theirs[kind].weights, ours[kind].weights, atol=1e-5, rtol=0)
        assert (theirs[kind].queries, theirs[kind].keys) == (ours[kind].queries, ours[kind].keys)


@pytest.mark.parametrize("is_official", [False, True])
def test_of_positions_that_begin_after_padding(is_official, tokenizer):
    zoo = tiny_model(tfm_zoo.TfmBertModel, position_ids_from_padding=True)
    model = build_tiny(BY_NAME["RobertaModel"]) if is_official else zoo
    longest = model.config.max_position_embeddings - model.config.pad_token_id - 1
    attention_maps(model, tokenizer, "film " * (longest - 2))
    with pytest.raises(ValueError, match=f"reads at most {longest}"):
        attention_maps(model, tokenizer, "film " * (longest - 1))


def plain(tokenizer):
    """Without [CLS] and [SEP]; its file asks for padding and truncation, as some do."""
    other = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, pad_token="[PAD]")
    other.backend_tokenizer.post_processor = None
    other.backend_tokenizer.enable_padding(length=20)
    other.backend_tokenizer.enable_truncation(4)
    return other


@pytest.mark.parametrize("name", ["BertModel", "DistilBertModel", "GPT2Model", "OpenAIGPTModel", "MarianMTModel"])
@pytest.mark.parametrize("text", ["film", TEXT])
def test_the_map_is_of_the_text_alone(name, text, tokenizer):
    """Of a single token too, and whatever a tokenizer's file says of padding and truncation."""
    for model in (official := build_tiny(BY_NAME[name]), tfm_zoo.from_official(official)):
        maps = attention_maps(model, plain(tokenizer), text, TARGET if name == "MarianMTModel" else None)
        assert next(iter(maps.values())).keys == text.split()


def test_without_a_tokenizer(tokenizer):
    """As of a model of one's own, whose ids come from elsewhere."""
    for kind in ("encoder", "translator"):
        model, ids = model_of(kind), ids_of(tokenizer)
        maps, named = attention_maps(model, input_ids=ids), attention_maps(model, tokenizer, TEXT)
        assert all(torch.equal(maps[part].weights, named[part].weights) for part in named)
        assert maps["encoder"].keys == [str(index) for index in ids[0].tolist()]


def bare(head, **fields):
    return lambda: tiny_model(head, **fields)


BASE, CLASSIFIER = tfm_zoo.TfmEncoderDecoderModel, tfm_zoo.TfmEncoderDecoderForSequenceClassification


@pytest.mark.parametrize(
    ("head", "fields", "text", "target", "complaint"),
    [
        (tfm_zoo.TfmBertForMaskedLM, {}, "film " * 30, None, "text has 32 tokens, and .* at most 24"),
        (tfm_zoo.TfmBertForMaskedLM, {}, TEXT, TARGET, "target 'a bright film': .* reads no target"),
        (tfm_zoo.TfmGPTForCausalLM, {}, TEXT, TARGET, "reads no target"),
        (CLASSIFIER, ENDS, TEXT, TARGET, "reads no target"),
        (BASE, ENDS, TEXT, None, r"TfmEncoderDecoderModel\) writes no target by itself: give it one"),
        (
            BASE,
            ENDS | {"position_embedding_type": "learned"},
            TEXT,
            "film " * 40,
            "target has 42 tokens, .* at most 24",
        ),
        (
            tfm_zoo.TfmBertModel,
            {"attention_type": "linear"},
            TEXT,
            None,
            "TfmBertModel: linear attention has no weights",
        ),
        ("MarianModel", {}, TEXT, TARGET, "MarianModel has no head: load the class of"),
    ],
)
def test_bad_input(head, fields, text, target, complaint, tokenizer):
    """Refused in a line; the model is left as it was."""
    model = (build_tiny(BY_NAME[head]) if isinstance(head, str) else tiny_model(head, **fields)).train()
    with pytest.raises(ValueError, match=complaint):
        attention_maps(model, tokenizer, text, target)
    assert model.training and model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "takes these, or input_ids"),
        ({"text": TEXT}, "takes these, or input_ids"),
        ({"input_ids": torch.ones(9).long()}, r"input_ids of shape \(9,\) should be of shape \(1, length\)"),
        ({"input_ids": torch.ones(1, 9).long(), "target": TARGET}, "target 'a bright film' needs a tokenizer"),
    ],
)
def test_bad_arguments(given, complaint):
    with pytest.raises(ValueError, match=complaint):
        attention_maps(model_of("translator"), **given)


def test_a_text_without_a_token(tokenizer):
    with pytest.raises(ValueError, match="text has no token"):
        attention_maps(model_of("decoder"), plain(tokenizer), "")


def test_layers_of_linear_attention_are_left_out(tokenizer, caplog):
    types = ["full_attention", "linear_attention", "full_attention"]
    model = tiny_model(tfm_zoo.TfmGPTModel, num_hidden_layers=3, layer_types=types)
    attention = attention_maps(model, tokenizer, TEXT)["decoder"]
    assert attention.layers == [0, 2] and len(attention.weights) == 2
    assert "decoder attention: linear layers have no weights to show (1)" in caplog.text
    with pytest.raises(ValueError, match="layer 1: the decoder attention of TfmGPTModel has weights in 0, 2 alone"):
        attention.check(1, None)
    model = tiny_model(tfm_zoo.TfmEncoderDecoderForConditionalGeneration, attention_type="linear", **ENDS)
    maps = attention_maps(model, tokenizer, TEXT, TARGET)
    assert maps.keys() == {"cross"} and list(maps["cross"].layers) == [0, 1, 2]


def test_source_and_target_have_their_own_vocabularies(tmp_path, monkeypatch):
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


def test_tokens_are_readable(tokenizer):
    labels = {"▁film": "·film", "film</w>": "film·", "##s": "##s", "a\tb\n": "a⇥b↵", "\u200b": "\\u200b", "$x$": "$x$"}
    assert {token: readable(token) for token in labels} == labels
    assert token_labels(tokenizer, [2, 60]) == ["[CLS]", "<60>"]  # an id without a token
    assert shortened(["film", "x" * 14, "x" * 15]) == ["film", "x" * 14, "x" * 13 + "…"]
    of_bytes = byte_level_bpe(["a café here"] * 3, 300)
    labels = token_labels(of_bytes, of_bytes("a café\nhere").input_ids)
    assert "".join(labels).replace(of_bytes.eos_token, "") == "a·café↵here"
