"""Documents become examples as BERT's and T5's: pairs of sentences, masked tokens, spans left out; no text is lost."""

from itertools import chain, groupby

import numpy as np
import pytest

from tfm_zoo.training.streaming.sentences import sentence_pairs, split_sentences
from tfm_zoo.training.tasks.denoising import SpanCorruption
from tfm_zoo.training.tasks.pretraining import PretrainingExamples
from tfm_zoo.training.tokenizers import bpe_with_sentinels, learned_word_piece

WORDS = ["".join(letters) for letters in np.random.default_rng(0).choice([*"abcdefghij"], (400, 6))]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def tokenizer():
    """Of 400 words half are one token, the others several."""
    return learned_word_piece([" ".join(WORDS[:200] * 5)], 600)


def corpus(documents: int = 30, sentences: int = 9) -> list[list[np.ndarray]]:
    """Sentences of 1 to 12 tokens; a token's number says its document, sentence and place."""
    return [
        [np.array([10_000 * d + 100 * s + np.arange(length), [1] * length]) for s, length in enumerate(row)]
        for d, row in enumerate(rng(1).integers(1, 13, (documents, sentences)))
    ]


def pairs(documents, room: int = 40, short: float = 0.0, seed: int = 0) -> list[tuple[list[int], list[int], bool]]:
    made = sentence_pairs(documents, room, short, rng(seed))
    return [(first[0].tolist(), second[0].tolist(), is_random) for first, second, is_random in made]


def test_sentences():
    for text, sentences in {
        "I saw Mr. Smith. He was well!": ["I saw Mr. Smith.", "He was well!"],
        '"Really?" she said. "Yes." They left.': ['"Really?" she said.', '"Yes."', "They left."],
        "5 p.m. or so. J. K. Rowling, e.g. this.": ["5 p.m. or so.", "J. K. Rowling, e.g. this."],
        "the film was dull . it ran !": ["the film was dull .", "it ran !"],
        "one\n two\n\nthree.": ["one", "two", "three."],
        "\u4f60\u597d\u3002\u518d\u89c1": ["\u4f60\u597d\u3002", "\u518d\u89c1"],
        " \n": [],
    }.items():
        assert split_sentences(text) == sentences


def test_half_of_the_pairs_are_random_and_never_of_the_same_document():
    """Two documents are enough."""
    made = pairs(corpus(2000), short=0.1)
    random = [second[0] // 10_000 for *_, second, is_random in made if is_random]
    assert len(made) > 4000 and abs(len(random) - len(made) / 2) < 3 * (len(made) / 4) ** 0.5
    assert len({*random}) > 1250  # of all documents
    of_two = [pair for seed in range(9) for pair in pairs(corpus(2), seed=seed)]
    assert {is_random for *_, is_random in of_two} == {True, False}
    for first, second, is_random in made + of_two:
        assert (first[0] // 10_000 != second[0] // 10_000) == is_random
    assert pairs(corpus(1)) == pairs(corpus(30, sentences=1)) == []  # nothing that follows anything


def test_segments_run_on_and_no_text_is_thrown_away():
    """After a random B, the next A begins where B would have; the last sentence of a document alone begins no pair."""
    made = groupby(pairs(corpus(), room=10_000, short=1.0), key=lambda pair: pair[0][0] // 10_000)
    for document, (_, rows) in zip(corpus(), made, strict=True):
        tokens, place = [int(token) for sentence in document for token in sentence[0]], 0
        for first, second, is_random in rows:
            read = first if is_random else first + second
            assert tokens[place : place + len(read)] == read
            place += len(read)
        assert len(tokens) - place <= document[-1].shape[1]


def test_pairs_are_filled_up_and_cut_to_the_room():
    """From the longer segment, at both ends."""
    lengths = [len(first) + len(second) for first, second, _ in pairs(corpus(200))]
    assert max(lengths) == 40 and np.median(lengths) == 40
    assert all(first and second for first, second, _ in pairs(corpus(200), room=2))
    short = [len(first) + len(second) for first, second, _ in pairs(corpus(200), short=1.0)]
    assert np.mean(short) < 0.75 * np.mean(lengths)
    document = [np.array([np.arange(n), [1] * n]) for n in (101, 5)]
    begins = {first[0] for seed in range(20) for first, *_ in pairs([document] * 2, 30, seed=seed)}
    assert len(begins) > 5 and min(begins) > 20


def test_masking_of_a_million_tokens(tokenizer):
    """Of words that are masked whole; each hundredth token is special."""
    random, special_ids = rng(5), tokenizer.all_special_ids
    ids = random.choice(np.setdiff1d(np.arange(len(tokenizer)), special_ids), 10**6)
    ids[::100] = random.choice(special_ids, 10**4)
    begins = (random.random(len(ids)) < 0.6).astype(int)
    begins[0] = begins[::100] = begins[1::100] = 1
    seen, labels = make(tokenizer).mask(ids, begins, random)
    special, chosen = np.isin(ids, special_ids), labels != -100
    assert (labels[chosen] == ids[chosen]).all() and (seen[~chosen] == ids[~chosen]).all()
    assert not (chosen & special).any()

    def within(count, total, share, variance=None):
        return abs(count - total * share) < 3 * (variance or total * share * (1 - share)) ** 0.5

    word = np.cumsum(begins) - 1
    sizes = np.bincount(word, weights=~special)  # tokens of each
    assert within(chosen.sum(), (~special).sum(), 0.15, variance=0.15 * 0.85 * (sizes**2).sum())
    assert {*np.bincount(word, weights=chosen) / np.bincount(word)} == {0.0, 1.0} and sizes.max() > 5
    total, masked = chosen.sum(), seen == tokenizer.mask_token_id
    same = 1 / (len(tokenizer) - len(special_ids))  # another token, drawn at random, may be the same
    replaced = chosen & ~masked & (seen != ids)
    assert within((masked & chosen).sum(), total, 0.8) and within(replaced.sum(), total, 0.1 * (1 - same))
    assert within((chosen & (seen == ids)).sum(), total, 0.1 + 0.1 * same)
    assert not np.isin(seen[replaced], special_ids).any()


def make(tokenizer, **options) -> PretrainingExamples:
    return PretrainingExamples(tokenizer, **{"split": split_sentences, "longest": 32} | options)


def documents_of_words() -> list[str]:
    random = rng(3)
    return [" ".join(" ".join(random.choice(WORDS, random.integers(3, 8))) + " ." for _ in range(6)) for _ in range(40)]


def unmasked(example) -> list[int]:
    return np.where(np.array(example["labels"]) == -100, example["input_ids"], example["labels"]).tolist()


def test_examples_are_what_the_tokenizer_makes_of_a_pair(tokenizer):
    examples, cls, sep = make(tokenizer)(documents_of_words(), rng()), tokenizer.cls_token_id, tokenizer.sep_token_id
    assert {example["next_sentence_label"] for example in examples} == {0, 1}
    for example in examples:
        ids = unmasked(example)
        middle = ids.index(sep)
        first, second = ids[1:middle], ids[middle + 1 : -1]
        assert ids == [cls, *first, sep, *second, sep] and len(ids) <= 32 and len(example["labels"]) == len(ids)
        assert example["token_type_ids"].tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert make(tokenizer)(["", " \n ", "one . two ."], rng()) == []


def test_examples_of_masked_tokens_alone_hold_the_documents_and_may_mask_whole_words(tokenizer):
    documents = documents_of_words()
    examples = make(tokenizer, pairs=False, split=pytest.fail)(documents, rng())
    assert all(set(example) == {"input_ids", "labels", "token_type_ids"} for example in examples)
    tokens = [token for example in examples for token in unmasked(example)[1:-1]]
    assert tokens == [*chain.from_iterable(tokenizer(documents, add_special_tokens=False)["input_ids"])]
    for example in make(tokenizer, pairs=False, whole_words=True)(documents, rng()):
        chosen = np.array(example["labels"]) != -100
        for place, token in enumerate(tokenizer.convert_ids_to_tokens(unmasked(example))[2:-1], start=2):
            assert not token.startswith("##") or chosen[place - 1] == chosen[place]


@pytest.fixture(scope="module")
def texts():
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "it", "runs", "away"]
    return [" ".join(rng().choice(words, size)) for size in (2000, 1, 2, 30, 1500)]


@pytest.fixture(scope="module")
def spelling(texts):
    return bpe_with_sentinels(texts, 420)


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


def test_what_is_read_and_what_is_written_together_are_the_text(spelling, texts):
    spans = SpanCorruption(spelling, 128)
    assert spelling.convert_ids_to_tokens(spans.sentinels[[0, 99]]) == ["<extra_id_0>", "<extra_id_99>"]
    examples, again, other = (spans(texts, rng(seed)) for seed in (0, 0, 1))
    assert [put_back(spans, example) for example in examples] == [piece.tolist() for piece in spans.pieces(texts)]
    assert len(examples) > 20 and str(examples) == str(again) != str(other)
    whole = [token for example in spans(texts[:1], rng()) for token in put_back(spans, example)]
    assert spelling.decode(whole) == texts[0]
    dense = SpanCorruption(spelling, 64, 0.95, 1.0)
    assert [put_back(dense, each) for each in dense(texts, rng())] == [piece.tolist() for piece in dense.pieces(texts)]
    of_t5 = SpanCorruption(spelling, 512)  # its own targets have 114 tokens, without the paper's last sentinel
    assert (of_t5.room, *of_t5.lengths(568), of_t5.longest) == (568, 512, 115, 512)
    assert len(SpanCorruption(spelling, 1792).sentinels) == 100  # it needs all


@pytest.mark.parametrize(("density", "mean"), [(0.15, 3.0), (0.5, 5.0)])
def test_share_and_lengths_of_spans(spelling, density, mean):
    spans = SpanCorruption(spelling, 128, density, mean)
    tokens, random = np.arange(4, 4 + spans.room), rng()
    examples = [spans.corrupted(tokens, random) for _ in range(400)]
    left_out = sum((~np.isin(example["labels"], spans.sentinels)).sum() - 1 for example in examples)
    number = sum(np.isin(example["input_ids"], spans.sentinels).sum() for example in examples)
    assert left_out / (400 * spans.room) == pytest.approx(density, abs=0.01)
    assert left_out / number == pytest.approx(mean, rel=0.05)
    assert max(len(example["input_ids"]) for example in examples) == 128 < spans.lengths(spans.room + 1)[0]
    assert {len(example["labels"]) for example in examples} == {spans.lengths(spans.room)[1]}


def test_what_cannot_be_is_refused(spelling):
    tokenizer = learned_word_piece(["a b"], 100)
    tokenizer.mask_token = None
    with pytest.raises(ValueError, match=r"has no mask.token"):
        make(tokenizer)
    with pytest.raises(ValueError, match=r"has 100 sentinels .*, and max_seq_length 1793 needs 101"):
        SpanCorruption(spelling, 1793)
