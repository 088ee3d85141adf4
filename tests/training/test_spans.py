"""Spans are left out as in the paper: as many, as long, in order, and nothing is lost."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorForSeq2Seq

from tfm_zoo.training.streaming.streams import Stream
from tfm_zoo.training.streaming.texts import TextSource
from tfm_zoo.training.tasks.denoising import SpanCorruption, random_parts
from tfm_zoo.training.tokenizers import SENTINELS, bpe_with_sentinels

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "it", "runs", "away"]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def documents():
    random = rng()
    return [" ".join(random.choice(WORDS, size)) for size in (2000, 1, 2, 30, 1500)]


@pytest.fixture(scope="module")
def tokenizer(documents):
    return bpe_with_sentinels(documents, 420)


@pytest.fixture(scope="module")
def spans(tokenizer):
    return SpanCorruption(tokenizer, 128)


def put_back(spans: SpanCorruption, example: dict[str, np.ndarray]) -> list[int]:
    """The text's tokens, from what is read and what is written, whose sentinels are in order and there once."""
    sentinels, left_out, text = spans.sentinels.tolist(), {}, []
    for token in example["labels"][:-1]:
        if token in sentinels:
            assert token == sentinels[len(left_out)]
            left_out[token] = span = []
        else:
            span.append(token)
    read = [token for token in example["input_ids"].tolist() if token in sentinels]
    assert read == [*left_out][:-1] and not span  # the last one ends the target alone
    for token in example["input_ids"][:-1].tolist():
        text += left_out[token] if token in sentinels else [token]
    return text


def test_input_and_target_together_are_the_text(tokenizer, spans, documents):
    assert len(spans.sentinels) == SENTINELS == len(set(spans.sentinels.tolist()))
    assert tokenizer.convert_ids_to_tokens(spans.sentinels[[0, 99]]) == ["<extra_id_0>", "<extra_id_99>"]
    examples = spans(documents, rng())
    pieces = [piece.tolist() for piece in spans.pieces(documents)]
    assert [put_back(spans, example) for example in examples] == pieces and len(pieces) > 20
    whole = [token for example in spans(documents[:1], rng()) for token in put_back(spans, example)]
    assert tokenizer.decode(whole) == documents[0]
    for example in examples:
        assert example["input_ids"][-1] == example["labels"][-1] == tokenizer.eos_token_id

    batch = DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=8)(examples[-3:])  # which pads each side by itself
    assert batch["input_ids"].shape[1] != batch["labels"].shape[1]
    assert batch["input_ids"].dtype == torch.int64 and not batch["input_ids"].shape[1] % 8
    for row, example in enumerate(examples[-3:]):
        real = batch["attention_mask"][row].bool()
        assert batch["input_ids"][row][real].tolist() == example["input_ids"].tolist()
        assert batch["labels"][row][batch["labels"][row] != -100].tolist() == example["labels"]


@pytest.mark.parametrize(("density", "mean"), [(0.15, 3.0), (0.5, 5.0), (0.15, 1.0)])
def test_share_and_lengths_of_spans(tokenizer, density, mean):
    spans = SpanCorruption(tokenizer, 128, density, mean)
    tokens, random = np.arange(4, 4 + spans.room), rng()
    examples = [spans.corrupted(tokens, random) for _ in range(400)]
    left_out = sum((~np.isin(example["labels"], spans.sentinels)).sum() - 1 for example in examples)
    number = sum(np.isin(example["input_ids"], spans.sentinels).sum() for example in examples)
    assert left_out / (400 * spans.room) == pytest.approx(density, abs=0.01)
    assert left_out / number == pytest.approx(mean, rel=0.05)
    assert max(len(example["input_ids"]) for example in examples) <= 128 < spans.lengths(spans.room + 1)[0]
    assert {len(example["labels"]) for example in examples} == {spans.lengths(spans.room)[1]}
    # Each place but the first, which stays, and the last, which does not, is left out about as often.
    seen = np.mean([np.isin(tokens, example["input_ids"]) for example in examples], axis=0)
    assert seen[0] == 1 and seen[-1] == 0
    assert seen[10:-10] == pytest.approx(1 - density, abs=0.12)


def test_the_papers_sizes_and_parts_of_a_number(tokenizer):
    """512 tokens are read of 568, and 114 written, with the last sentinel that the paper's figure has 115."""
    spans, random = SpanCorruption(tokenizer, 512), rng()
    assert (spans.room, spans.lengths(spans.room)) == (568, (512, 115))
    ways = {tuple(random_parts(5, 3, random)) for _ in range(200)}
    assert ways == {(1, 1, 3), (1, 3, 1), (3, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 1)}
    assert random_parts(4, 1, random).tolist() == [4] and random_parts(3, 3, random).tolist() == [1, 1, 1]


def test_seed_and_place_alone_decide(spans, documents):
    source = TextSource(Dataset.from_dict({"text": documents * 8}))
    one, again, other = (
        [tuple(example["labels"]) for example in Stream(source, spans, seed=seed, chunk_size=8).first_pass()]
        for seed in (3, 3, 4)
    )
    assert one == again and {*one} != {*other}


def test_what_cannot_be_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"max_seq_length must be at least 3 \(a token, a sentinel, the end\), not 2"):
        SpanCorruption(tokenizer, 2)
    with pytest.raises(ValueError, match=r"has 100 sentinels .*, and max_seq_length 2048 needs 11[0-9]"):
        SpanCorruption(tokenizer, 2048)
    assert SpanCorruption(tokenizer, 64)(["", "a"], rng()) == []
