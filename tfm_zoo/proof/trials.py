"""By which reading a model gives the vectors of a store: found by trying, setting by setting."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from .encoder import Encoder, ended
from .fit import Fit, fit_of
from .poolings import POOLINGS
from .reading import POOLER, Reading

#: texts that settings are tried on, settings that are changed one after the other, and lengths that texts are cut to
ROWS, STEPS = 6, 3
LENGTHS = (32, 64, 100, 128, 200, 256, 300, 384, 512)


def nearest(
    encoder: Encoder,
    texts: Sequence[str],
    stored: np.ndarray,
    reading: Reading,
    prompts: Sequence[str] = (),
    bound: float = 1e-4,
) -> tuple[Reading, Fit]:
    """The reading whose vectors are nearest to those of a store, and how near they are.

    Settings of the model's inputs are changed one at a time, as long as the vectors come nearer; with each, all
    poolings are tried, with and without length 1, whole and shortened.

    Args:
        texts: what the vectors are of; the longest and some others are tried.
        stored: the vectors, `(texts, size)`.
        reading: where it begins.
        prompts: those that the model's files name.
        bound: the difference up to which vectors are the same.
    """
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    some = [order[place] for place in sorted({*np.linspace(0, len(order) - 1, min(ROWS, len(order))).astype(int)})]
    texts, stored = [texts[row] for row in some], stored[some]
    best = best_end(encoder, texts, stored, reading)
    for _ in range(STEPS):
        if best[1].difference <= bound:
            break
        tried = [best_end(encoder, texts, stored, other) for other in neighbours(encoder, texts, best[0], prompts)]
        nearer = min([best, *tried], key=lambda each: distance(each[1]))
        if distance(nearer[1]) > 0.999 * distance(best[1]):
            break
        best = nearer
    return best


def distance(fit: Fit) -> float:
    return float(np.minimum(fit.differences, 1e6).mean())


def best_end(encoder: Encoder, texts: Sequence[str], stored: np.ndarray, reading: Reading) -> tuple[Reading, Fit]:
    """The pooling, the size, and the length (1 or not, before or after the vector is shortened), whose vectors are
    nearest."""
    states = encoder.states(texts, reading)
    has_pooler = states[0][1] is not None and not any("pooler" in name for name in encoder.loading["missing"])
    poolings = [*dict.fromkeys([*filter(None, [reading.pooling]), *POOLINGS, *([POOLER] if has_pooler else [])])]
    own = reading.normalize, reading.normalize_shortened
    lengths = dict.fromkeys((own, (True, False), (False, False), (True, True)))
    sizes, found = dict.fromkeys((None, reading.size, stored.shape[1])), []
    for pooling, (before, after), size in product(poolings, lengths, sizes):
        end = replace(reading, pooling=pooling, normalize=before, size=size, normalize_shortened=after)
        found.append((end, fit_of(stored, ended(states, end))))
    return min(found, key=lambda each: distance(each[1]))  # of several that are as near, the first


def neighbours(encoder: Encoder, texts: Sequence[str], reading: Reading, prompts: Sequence[str]) -> Iterator[Reading]:
    """The readings that differ in one setting of the inputs."""
    yield from (replace(reading, prompt=prompt) for prompt in {"", *prompts} - {reading.prompt})
    yield replace(reading, lower_case=not reading.lower_case)
    longest = max(map(len, encoder.tokens(texts, replace(reading, max_length=encoder.longest))["input_ids"]))
    limits = {limit for limit in LENGTHS if limit < longest} | {encoder.longest}
    yield from (replace(reading, max_length=limit) for limit in sorted(limits - {reading.max_length}))
    yield from (replace(reading, oddity=oddity) for oddity in [*encoder.oddities(), ""] if oddity != reading.oddity)
