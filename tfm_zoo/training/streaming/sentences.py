"""Sentences, and pairs of segments for next-sentence prediction (Devlin et al. 2019).

A tokenized text is an array `(2, tokens)`: token ids, and 1 where a unit begins that is masked as a whole. A document
is a list of sentences.
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np

Text = np.ndarray

# A sentence ends at a line break; after a Chinese or Japanese full stop, which has no space behind it; and after other
# such marks, with closing quotes or brackets, unless the text continues in lower case. A mark with a space before it,
# as in tokenized text, ends a sentence whatever follows.
BOUNDARY = re.compile(
    r"""
      \n
    | (?<=[\u3002\uff01\uff1f])
    | (?<=\s[.!?])\s+
    | (?: (?<=[.!?…]) | (?<=[.!?…]["'\u201d\u2019»)\]]) )
      (?<!\b[A-Z]\.)
      (?<!\b(?:Mr|Ms|Dr|St|Jr|Sr|vs)\.)(?<!\b(?:Mrs|Rev|Gen|Col)\.)(?<!\b(?:Prof|Capt)\.)(?<!\b[ei]\.[ge]\.)
      (?: \s+ (?![a-zà-öø-ÿ,;:)]) | (?=<) )
    """,
    re.VERBOSE,
)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text. An unknown abbreviation ends a sentence too soon, which does little harm."""
    return [sentence for part in BOUNDARY.split(text) if (sentence := part.strip())]


def sentence_pairs(
    documents: Sequence[Sequence[Text]], room: int, short_probability: float, rng: np.random.Generator
) -> Iterator[tuple[Text, Text, bool]]:
    """Pairs of segments A and B, and whether B is random: in half of the pairs it is, in the others it follows A.

    A is a few sentences in a row. A B that follows A is the next sentences of the document, until both have `room`
    tokens together (with `short_probability`, a smaller random number). A random B is as many tokens of another
    document, from a random sentence on; the next A then begins right after this A. If only the last sentence of a
    document is left, it begins no pair.

    A pair has at most `room` tokens, not counting special ones: the longer segment, or both, are cut at both ends.
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
            yield *_cut_to(first, second, room, rng), is_random


def join(texts: Sequence[Text]) -> Text:
    return np.concatenate(texts, axis=1)


def _reach(document: Sequence[Text], start: int, length: int, at_least: int) -> int:
    """Where sentences from `start` on reach `length` tokens, after `at_least` sentences; else the document's end."""
    end, tokens = start, 0
    while end < len(document) and (tokens < length or end - start < at_least):
        tokens += document[end].shape[1]
        end += 1
    return end


def _cut_to(first: Text, second: Text, room: int, rng: np.random.Generator) -> tuple[Text, Text]:
    """Two segments, cut to fit into `room` (at least 2) together. Each token is lost from a random end."""
    lengths = first.shape[1], second.shape[1]
    if sum(lengths) > room:
        length = min(lengths[0], max(room - lengths[1], room // 2))
        lengths = length, room - length
    fitted = []
    for text, length in zip((first, second), lengths, strict=True):
        surplus = text.shape[1] - length
        begin = int(rng.binomial(surplus, 0.5)) if surplus else 0
        fitted.append(text[:, begin : begin + length])
    return tuple(fitted)
