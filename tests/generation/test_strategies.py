"""`generate` gives token for token what it gives with the official class, by every strategy the library has.

Contrastive search (and DoLa, and group and constrained beam search) is no part of transformers 5 any more: `generate`
loads it from a repository on the Hub, for official models too.
"""

from itertools import product

import pytest

from ..precision import assert_same
from .models import (
    ARCHITECTURES,
    IN_EVERY_WAY,
    LATER,
    LENGTHS,
    OFFICIAL_OPTIONS,
    assert_varied,
    generate,
    pair,
    prompts,
)

pytestmark = pytest.mark.usefixtures("double")

SAMPLED = {"do_sample": True, "top_k": 0}
STRATEGIES = {
    "greedy": {},
    "greedy without a cache": {"use_cache": False},
    "penalties": {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
    "temperature": SAMPLED | {"temperature": 1.7},
    "top-k": SAMPLED | {"top_k": 5},
    "top-p": SAMPLED | {"top_p": 0.8},
    "min-p": SAMPLED | {"min_p": 0.02, "num_return_sequences": 2},
    "beams": {"num_beams": 3},
    "beams returned": {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 2.0, "early_stopping": True},
    "short beams": {"num_beams": 3, "length_penalty": -1.0},
    "sampled beams": SAMPLED | {"num_beams": 3, "temperature": 1.5},
}


#: Whatever the strategy, it reads the scores of each step, which are compared, and reorders the cache of transformers.
PAIRS = [
    *product(IN_EVERY_WAY, STRATEGIES),
    *product((name for name in ARCHITECTURES if name not in IN_EVERY_WAY), ("greedy", "temperature", "beams")),
    *product(LATER, ["greedy"]),
]


@pytest.mark.parametrize(("architecture", "strategy"), PAIRS)
def test_as_official(architecture, strategy):
    """From a batch padded on the left."""
    zoo, official = pair(architecture)
    options = STRATEGIES[strategy]
    ours = generate(zoo, prompts(), **options)
    theirs = generate(official, prompts(), **options | OFFICIAL_OPTIONS.get(architecture, {}))
    assert ours.sequences.equal(theirs.sequences)
    assert_same(ours.scores, theirs.scores)
    assert_varied(ours.sequences)


def test_samples_follow_the_seed():
    model, _ = pair("gpt2")
    one, other, again = (generate(model, prompts(), seed, **STRATEGIES["temperature"]) for seed in (0, 1, 0))
    assert one.sequences.equal(again.sequences)
    assert not one.sequences.equal(other.sequences)


def test_from_embeddings():
    model, _ = pair("gpt2")
    embedded = {"inputs_embeds": model.get_input_embeddings()(prompts()["input_ids"])}
    mask = {"attention_mask": prompts()["attention_mask"]}
    new = generate(model, prompts()).sequences[:, max(LENGTHS) :]
    assert generate(model, embedded | mask).sequences.equal(new)
