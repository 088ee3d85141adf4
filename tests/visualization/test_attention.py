"""What pictures of attention show is what the model computes, of the tokens that it reads: maps, what a decision rests
on (rollout), and what heads attend to."""

import numpy as np
import pytest
import torch

import tfm_zoo
from tfm_zoo.training.tokenizers import byte_level_bpe
from tfm_zoo.visualization import attention_maps, attention_rollout, decision_rollout, head_shares
from tfm_zoo.visualization.rollout import decision_of
from tfm_zoo.visualization.tokens import readable, shortened, token_labels

from ..official_models import BY_NAME, both, build_tiny
from ..tiny import DECODERS, HEADS, TWO_STACKS, tiny_model
from .conftest import ENDS, TARGET, TEXT, model_of

TOKENS = ["[CLS]", *TEXT.split(), "[SEP]"]


def ids_of(tokenizer, text: str = TEXT) -> torch.Tensor:
    return torch.tensor([tokenizer(text).input_ids])


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_maps_are_the_models_weights(head, tokenizer):
    model = tiny_model(head, vocab_size=len(tokenizer), **(ENDS if head in TWO_STACKS else {}))
    target = TARGET if head is tfm_zoo.TfmEncoderDecoderModel else None  # which cannot write one
    maps = attention_maps(model, tokenizer, TEXT, target)
    inputs, kinds = {"input_ids": ids_of(tokenizer)}, {"decoder" if head in DECODERS else "encoder": "attentions"}
    if head in TWO_STACKS:
        inputs["decoder_input_ids"] = torch.tensor([tokenizer.convert_tokens_to_ids(maps["decoder"].queries)])
        kinds = {kind: f"{kind}_attentions" for kind in ("encoder", "decoder", "cross")}
    model.set_attn_implementation("eager")
    outputs = model.base_model(**inputs, output_attentions=True)
    assert [*maps] == [*kinds]
    for kind, name in kinds.items():
        assert torch.equal(maps[kind].weights, torch.cat(outputs[name if name in outputs else f"{name}s"]))
        assert maps[kind].keys == (maps[kind].queries if kind == "decoder" else TOKENS)
        assert maps[kind].queries == (maps["decoder"].queries if kind == "cross" else maps[kind].keys)


def test_what_a_decoder_reads(tokenizer):
    """The target that is given, or else what the model writes."""
    model, ids = model_of("translator"), ids_of(tokenizer)
    written = model.generate(ids, num_beams=1, do_sample=False, max_length=2 * ids.shape[1])[:, :-1]  # unread: the last
    for target, read in (
        (TARGET, model.prepare_decoder_input_ids_from_labels(ids_of(tokenizer, TARGET))),
        (None, written),
    ):
        queries = attention_maps(model, tokenizer, TEXT, target)["decoder"].queries
        assert queries == token_labels(tokenizer, read[0].tolist())


def plain(tokenizer):
    """Without [CLS] and [SEP]; its file asks for padding and truncation, as some do."""
    other = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, pad_token="[PAD]")
    other.backend_tokenizer.post_processor = None
    other.backend_tokenizer.enable_padding(length=20)
    other.backend_tokenizer.enable_truncation(4)
    return other


@pytest.mark.parametrize("name", ["BertModel", "DistilBertModel", "OpenAIGPTModel", "MarianMTModel"])
def test_maps_of_an_official_model(name, tokenizer):
    """They are of the text alone, of a single token too, whatever a tokenizer's file says of padding and truncation."""
    models, target = both(name), TARGET if name == "MarianMTModel" else None
    for text in ("film", TEXT):
        theirs, ours = (attention_maps(model, plain(tokenizer), text, target) for model in models)
        assert theirs.keys() == ours.keys() and next(iter(theirs.values())).keys == text.split()
        for kind in ours:
            torch.testing.assert_close(theirs[kind].weights, ours[kind].weights, atol=1e-5, rtol=0)
            assert (theirs[kind].queries, theirs[kind].keys) == (ours[kind].queries, ours[kind].keys)


@pytest.mark.parametrize("is_official", [False, True])
def test_map_of_positions_that_begin_after_padding(is_official, tokenizer):
    zoo = tiny_model(tfm_zoo.TfmBertModel, position_ids_from_padding=True)
    model = build_tiny(BY_NAME["RobertaModel"]) if is_official else zoo
    longest = model.config.max_position_embeddings - model.config.pad_token_id - 1
    attention_maps(model, tokenizer, "film " * (longest - 2))
    with pytest.raises(ValueError, match=f"reads at most {longest}"):
        attention_maps(model, tokenizer, "film " * (longest - 1))


def test_without_a_tokenizer(tokenizer):
    """As of a model of one's own, whose ids come from elsewhere."""
    model, ids = model_of("translator"), ids_of(tokenizer)
    maps, named = attention_maps(model, input_ids=ids), attention_maps(model, tokenizer, TEXT)
    assert all(torch.equal(maps[part].weights, named[part].weights) for part in named)
    assert maps["encoder"].keys == [str(index) for index in ids[0].tolist()]


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


def test_tokens_are_readable(tokenizer):
    labels = {"▁film": "·film", "film</w>": "film·", "a\tb\n": "a⇥b↵", "\u200b": "\\u200b", "$x$": "$x$"}
    assert {token: readable(token) for token in labels} == labels
    assert token_labels(tokenizer, [2, 60]) == ["[CLS]", "<60>"]  # an id without a token
    assert shortened(["x" * 14, "x" * 15]) == ["x" * 14, "x" * 13 + "…"]
    of_bytes = byte_level_bpe(["a café here"] * 3, 300)
    labels = token_labels(of_bytes, of_bytes("a café\nhere").input_ids)
    assert "".join(labels).replace(of_bytes.eos_token, "") == "a·café↵here"


def by_hand(weights: torch.Tensor) -> np.ndarray:
    """Abnar and Zuidema (2020): the mean over heads, with the residual stream, each row normalised."""
    rollout = np.eye(weights.shape[-1])
    for layer in weights.numpy():
        mixed = layer.mean(axis=0) + np.eye(len(rollout))
        rollout = mixed / mixed.sum(axis=-1, keepdims=True) @ rollout
    return rollout


@pytest.mark.parametrize(
    ("pooling", "reads"),
    [
        ("cls", "the state of '[CLS]'"),
        ("mean", "the mean of all states"),
        ("attention", "a mean of all states, weighted by a learned query"),
        ("a decoder's", "the state of '[SEP]'"),
    ],
)
def test_decision_of_one_stack(pooling, reads, tokenizer):
    fields = {"classifier_pooling": pooling}
    model = tiny_model(tfm_zoo.TfmGPTForSequenceClassification)
    if pooling != "a decoder's":
        model = tiny_model(tfm_zoo.TfmBertForSequenceClassification, **fields)
    rollout, (attention,) = decision_rollout(model, tokenizer, TEXT), attention_maps(model, tokenizer, TEXT).values()
    whole = by_hand(attention.weights)
    np.testing.assert_allclose(attention_rollout(attention.weights), whole, atol=1e-6)
    expected = {"cls": whole[0], "mean": whole.mean(0), "a decoder's": whole[-1]}.get(pooling)
    if pooling == "attention":
        weights = model.model.pooler_query(model.model(ids_of(tokenizer)).last_hidden_state[0]).softmax(dim=0)
        expected = (weights.detach().numpy() * whole).sum(0)
    np.testing.assert_allclose(rollout.shares, expected, atol=1e-6)
    assert rollout.decision == decision_of(model.config, model(ids_of(tokenizer)).logits[0])
    assert (rollout.tokens, rollout.reads, rollout.aside) == (TOKENS, reads, {0, len(TOKENS) - 1})
    words = [*zip(TOKENS, rollout.shares.tolist(), strict=True)][1:-1]
    assert rollout.strongest() == sorted(words, key=lambda word: -word[1])[:3]
    if pooling == "a decoder's":  # which ignores padding in the text
        assert decision_rollout(model, tokenizer, f"{TEXT} [PAD] [PAD]").reads == reads


def test_decision_of_an_encoder_decoder(tokenizer):
    """Residual streams of both stacks, with the encoder's last states where the decoder reads them."""
    model = tiny_model(tfm_zoo.TfmEncoderDecoderForSequenceClassification, **ENDS)
    rollout = decision_rollout(model, tokenizer, TEXT)
    maps = attention_maps(model, tokenizer, TEXT)
    length, last = len(TOKENS), len(TOKENS) - 1
    assert rollout.aside == {0, 1, length}  # behind the decoder's start token
    # One graph: the source's tokens first, the decoder's behind them.
    whole = np.eye(2 * length)
    whole[:length, :length] = by_hand(maps["encoder"].weights)
    for own, cross in zip(maps["decoder"].weights, maps["cross"].weights, strict=True):
        for source, target in ((0 * cross, own), (cross, 0 * own)):
            step = np.eye(2 * length)
            step[length:] += np.concatenate((source.mean(0), target.mean(0)), axis=1)
            encoded = whole.copy()
            whole = step / step.sum(-1, keepdims=True) @ whole
            whole[:length] = encoded[:length]
    row = whole[length + last]
    # What the decoder begins with, what both read, and the source's end.
    shares = (row[length:][:1], row[: length - 1] + row[length + 1 :], row[length - 1 : length])
    np.testing.assert_allclose(rollout.shares, np.concatenate(shares), atol=1e-6)
    assert rollout.tokens == ["[CLS]", *TOKENS]


@pytest.mark.parametrize(
    ("fields", "logits", "decision"),
    [
        ({"num_labels": 1}, [0.25], "0.25"),
        ({"num_labels": 2}, [0.0, 0.0], "LABEL_0 (50%)"),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, [0.0, 2.0, 1.0], "LABEL_1 (88%)"),
    ],
)
def test_decisions(fields, logits, decision):
    assert decision_of(tfm_zoo.TfmBertConfig(**fields), torch.tensor(logits)) == decision


def target_of(tokens: list[str], query: int, key: int) -> str:
    if tokens[key] in ("[CLS]", "[SEP]"):
        return tokens[key]
    near = {0: "itself", -1: "the token before", 1: "the token after"}
    if key - query in near:
        return near[key - query]
    return "the same token elsewhere" if tokens[key] == tokens[query] else "any other token"


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_shares(kind, tokenizer):
    model, texts = model_of(kind), [f"{TEXT} a film", TARGET]
    found = head_shares(model, tokenizer, texts)
    expected, chance, count = torch.zeros(found.shares.shape), torch.zeros(len(found.targets)), 0
    for text in texts:
        attention = attention_maps(model, tokenizer, text)[kind]
        last = len(attention.keys) - 1
        for query in range(1, last):  # between [CLS] and [SEP]
            seen = range(query + 1) if kind == "decoder" else range(last + 1)
            for key in seen:
                target = found.targets.index(target_of(attention.keys, query, key))
                expected[target] += attention.weights[:, :, query, key]
                chance[target] += 1 / len(seen)
            count += 1
    torch.testing.assert_close(found.shares, expected / count)
    torch.testing.assert_close(found.chance, chance / count)
    torch.testing.assert_close(found.shares.sum(dim=0), torch.ones(found.shares.shape[1:]))
    # No panel is blank: a decoder's tokens see none after them, and the first one here is [CLS].
    assert found.chance.min() > 0 and ("the token after" in found.targets) == (kind == "encoder")
    assert "the first token" not in found.targets
    target, layer, head, share, _ = found.strongest()[-1]
    assert target == "any other token" and share == found.shares[-1, layer, head] == found.shares[-1].max()
