"""What pictures of attention show is what the model computes, of the tokens that it reads: maps, what a decision rests
on (rollout), and what heads attend to."""

import numpy as np
import pytest
import torch

import tfm_zoo
from tfm_zoo.training.tokenizers import byte_level_bpe
from tfm_zoo.visualization import attention_maps, attention_rollout, decision_rollout, head_shares
from tfm_zoo.visualization.rollout import decision_of, encoder_decoder_rollout
from tfm_zoo.visualization.tokens import readable, token_labels

from ..official_models import both
from ..tiny import DECODERS, HEADS, TWO_STACKS, tiny_model
from ..words import make_tokenizer
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
    """The target that is given, or else what the model writes, also of ids without a tokenizer."""
    model, ids = model_of("translator"), ids_of(tokenizer)
    given = model.prepare_decoder_input_ids_from_labels(ids_of(tokenizer, TARGET))
    written = model.generate(ids, num_beams=1, do_sample=False, max_length=2 * ids.shape[1])[:, :-1]  # unread: the last
    for target, read in ((TARGET, given), (None, written)):
        named = attention_maps(model, tokenizer, TEXT, target)
        assert named["decoder"].queries == token_labels(tokenizer, read[0].tolist())
    maps = attention_maps(model, input_ids=ids)
    assert all(torch.equal(maps[part].weights, named[part].weights) for part in named)
    assert maps["encoder"].keys == [str(index) for index in ids[0].tolist()]


@pytest.mark.parametrize("name", ["BertModel", "DistilBertModel", "OpenAIGPTModel", "MarianMTModel"])
def test_maps_of_an_official_model(name):
    """They are of the text alone, whatever a tokenizer's file says of padding and truncation."""
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.enable_padding(length=20)
    tokenizer.backend_tokenizer.enable_truncation(4)
    target = TARGET if name == "MarianMTModel" else None
    theirs, ours = (attention_maps(model, tokenizer, TEXT, target) for model in both(name))
    assert theirs.keys() == ours.keys() and next(iter(theirs.values())).keys == TOKENS
    for kind in ours:
        torch.testing.assert_close(theirs[kind].weights, ours[kind].weights, atol=1e-5, rtol=0)
        assert (theirs[kind].queries, theirs[kind].keys) == (ours[kind].queries, ours[kind].keys)


def test_layers_of_linear_attention_are_left_out(tokenizer, caplog):
    types = ["full_attention", "linear_attention", "full_attention"]
    model = tiny_model(tfm_zoo.TfmGPTModel, num_hidden_layers=3, layer_types=types)
    attention = attention_maps(model, tokenizer, TEXT)["decoder"]
    assert attention.layers == [0, 2] and len(attention.weights) == 2
    assert "decoder attention: linear layers have no weights to show (1)" in caplog.text
    with pytest.raises(ValueError, match="layer 1: the decoder attention of TfmGPTModel has weights in 0, 2 alone"):
        attention.check(1, None)
    classifier = tiny_model(tfm_zoo.TfmGPTForSequenceClassification, layer_types=types[:2])
    with pytest.raises(ValueError, match=r"has linear attention \(layers 1\)"):
        decision_rollout(classifier, tokenizer, TEXT)


def test_tokens_are_readable(tokenizer):
    labels = {"▁film": "·film", "film</w>": "film·", "a\tb\n": "a⇥b↵", "\u200b": "\\u200b", "$x$": "$x$"}
    assert {token: readable(token) for token in labels} == labels
    assert token_labels(tokenizer, [2, 60]) == ["[CLS]", "<60>"]  # an id without a token
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


READ = {
    **{"cls": "the state of '[CLS]'", "mean": "the mean of all states"},
    **{"attention": "a mean of all states, weighted by a learned query", "a decoder's": "the state of '[SEP]'"},
}


@pytest.mark.parametrize("pooling", READ)
def test_decision_of_one_stack(pooling, tokenizer):
    if pooling == "a decoder's":
        model = tiny_model(tfm_zoo.TfmGPTForSequenceClassification)
    else:
        model = tiny_model(tfm_zoo.TfmBertForSequenceClassification, classifier_pooling=pooling)
    rollout, (attention,) = decision_rollout(model, tokenizer, TEXT), attention_maps(model, tokenizer, TEXT).values()
    whole = by_hand(attention.weights)
    np.testing.assert_allclose(attention_rollout(attention.weights), whole, atol=1e-6)
    expected = {"cls": whole[0], "mean": whole.mean(0), "a decoder's": whole[-1]}.get(pooling)
    if pooling == "attention":
        weights = model.model.pooler_query(model.model(ids_of(tokenizer)).last_hidden_state[0]).softmax(dim=0)
        expected = (weights.detach().numpy() * whole).sum(0)
    np.testing.assert_allclose(rollout.shares, expected, atol=1e-6)
    assert rollout.decision == decision_of(model.config, model(ids_of(tokenizer)).logits[0])
    assert (rollout.tokens, rollout.reads, rollout.aside) == (TOKENS, READ[pooling], {0, len(TOKENS) - 1})
    words = [*zip(TOKENS, rollout.shares.tolist(), strict=True)][1:-1]
    assert rollout.strongest() == sorted(words, key=lambda word: -word[1])[:3]


def test_decision_of_an_encoder_decoder(tokenizer):
    """A token's share is the sum of those that it has in the two stacks; the start token is the decoder's alone."""
    model = tiny_model(tfm_zoo.TfmEncoderDecoderForSequenceClassification, **ENDS)
    rollout, maps = decision_rollout(model, tokenizer, TEXT), attention_maps(model, tokenizer, TEXT)
    target, source = (shares[-1] for shares in encoder_decoder_rollout(maps))
    torch.testing.assert_close(rollout.shares[1:-1], source[:-1] + target[1:])
    assert float(rollout.shares.sum()) == pytest.approx(1)
    assert rollout.tokens == ["[CLS]", *TOKENS] and rollout.aside == {0, 1, len(TOKENS)}


def test_decisions():
    for kind, logits, decision in (
        ("regression", [0.25], "0.25"),
        ("single_label_classification", [0.0, 0.0], "LABEL_0 (50%)"),
        ("multi_label_classification", [0.0, 2.0, 1.0], "LABEL_1 (88%)"),
    ):
        config = tfm_zoo.TfmBertConfig(problem_type=kind, num_labels=len(logits))
        assert decision_of(config, torch.tensor(logits)) == decision


def target_of(tokens: list[str], query: int, key: int) -> str:
    if tokens[key] in ("[CLS]", "[SEP]"):
        return tokens[key]
    near = {0: "itself", -1: "the token before", 1: "the token after"}
    return near.get(key - query, "the same token elsewhere" if tokens[key] == tokens[query] else "any other token")


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_shares(kind, tokenizer):
    """A head's shares sum to one. A decoder's tokens see none after them."""
    model, text = model_of(kind), f"{TEXT} a film"
    found, attention = head_shares(model, tokenizer, [text]), attention_maps(model, tokenizer, text)[kind]
    expected, queries = torch.zeros(found.shares.shape), range(1, len(attention.keys) - 1)  # between [CLS] and [SEP]
    for query in queries:
        for key in range(query + 1 if kind == "decoder" else len(attention.keys)):
            target = found.targets.index(target_of(attention.keys, query, key))
            expected[target] += attention.weights[:, :, query, key] / len(queries)
    torch.testing.assert_close(found.shares, expected)
    torch.testing.assert_close(found.shares.sum(dim=0), torch.ones(found.shares.shape[1:]))
    assert ("the token after" in found.targets) == (kind == "encoder")
    target, layer, head, share, _ = found.strongest()[-1]
    assert target == "any other token" and share == found.shares[-1, layer, head] == found.shares[-1].max()
