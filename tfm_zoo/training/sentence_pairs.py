"""Pairs of segments for next-sentence prediction (Devlin et al. 2019), and segments of one document alone.

A text is an array `(2, tokens)`: token ids, and true where a word begins. A document is a list of sentences.
"""

from collections.abc import Iterator, Sequence

import numpy as np

Text = np.ndarray


def sentence_pairs(
    documents: Sequence[Sequence[Text]], room: int, short_probability: float, rng: np.random.Generator
) -> Iterator[tuple[Text, Text, bool]]:
    """Segments A and B, and whether B is not what follows A: that is so in one half of the pairs, drawn by lot.

    A is some sentences of a document, as they follow one another. B is the sentences after them, up to `room` tokens
    of both together; or else as many, from a random sentence on, of another document, and the next A begins where B
    would have. A last sentence that is left alone has nothing to be continued by, and begins no pair.

    Args:
        room: tokens of a pair at most, without special ones. Where sentences do not fit, the longer segment is cut,
            at its begin and its end.
        short_probability: share of the pairs that are collected up to a random smaller length.
    """
    if len(documents) < 2:
        return
    for index, document in enumerate(documents):
        start = 0
        while start < len(document) - 1:
            length = room if rng.random() >= short_probability else int(rng.integers(2, room + 1))
            end = _reach(document, start, length, at_least=2)
            middle = int(rng.integers(start + 1, end))
            first = join(document[start:middle])
            is_random = bool(rng.random() < 0.5)
            if is_random:
                other = documents[(index + int(rng.integers(1, len(documents)))) % len(documents)]
                begin = int(rng.integers(len(other)))
                second = join(other[begin : _reach(other, begin, length - first.shape[1], at_least=1)])
                start = middle
            else:
                second = join(document[middle:end])
                start = end
            yield *_fitted(first, second, room, rng), is_random


def segments(documents: Sequence[Sequence[Text]], room: int) -> Iterator[Text]:
    """Each document's text in pieces of `room` tokens, the last of which may be shorter."""
    for document in documents:
        text = join(document)
        yield from (text[:, start : start + room] for start in range(0, text.shape[1], room))


def join(texts: Sequence[Text]) -> Text:
    return np.concatenate(texts, axis=1)


def _reach(document: Sequence[Text], start: int, length: int, at_least: int) -> int:
    """Where to end so that the sentences from `start` on have so many tokens, and are so many, if there are."""
    end, tokens = start, 0
    while end < len(document) and (tokens < length or end - start < at_least):
        tokens += document[end].shape[1]
        end += 1
    return end


def _fitted(first: Text, second: Text, room: int, rng: np.random.Generator) -> tuple[Text, Text]:
    """What is left of two segments when tokens are taken from the longer one, from either end by lot, until they fit.

    Args:
        room: at least 2: no segment loses its last token.
    """
    one, two = first.shape[1], second.shape[1]
    if one + two > room:
        one = min(one, max(room - two, room // 2))
        two = room - one
    return _cut(first, one, rng), _cut(second, two, rng)


def _cut(text: Text, length: int, rng: np.random.Generator) -> Text:
    surplus = text.shape[1] - length
    begin = int(rng.binomial(surplus, 0.5)) if surplus else 0
    return text[:, begin : begin + length]
