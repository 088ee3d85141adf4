"""`generate` of an encoder with a decoder gives token for token what it gives with the official class."""

import pytest
import torch

from ..official_models import keep_every_layer
from ..precision import assert_same
from .models import LENGTHS, TRANSLATORS, assert_varied, generate, pair, ragged_mask

pytestmark = pytest.mark.usefixtures("double")

#: with sinusoids; with biases by distance
TWO_KINDS = pytest.mark.parametrize("architecture", ["marian", "t5"])
SAMPLED = {"do_sample": True, "top_k": 0}
STRATEGIES = {
    "greedy": {"num_beams": 1},
    "as the model's own configuration says": {},
    "without a cache": {"use_cache": False, "num_beams": 2},
    "beams": {"num_beams": 4},
    "beams returned": {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 2.0, "early_stopping": True},
    "short beams": {"num_beams": 3, "length_penalty": -1.0, "early_stopping": "never"},
    "forced": {"num_beams": 4, "forced_bos_token_id": 7, "forced_eos_token_id": 9},
    "not so short": {"num_beams": 3, "min_new_tokens": 10},
    "words that are bad": {"num_beams": 3, "bad_words_ids": [[5], [7, 8]], "repetition_penalty": 1.5},
    "sampled": SAMPLED | {"num_beams": 1, "temperature": 1.7},
    "sampled several": SAMPLED | {"num_beams": 1, "top_p": 0.8, "num_return_sequences": 3, "eos_token_id": None},
    "sampled beams": SAMPLED | {"num_beams": 3, "temperature": 1.5},
}
FORMS = {
    "static cache": {"cache_implementation": "static"},
    "static cache, beams": {"cache_implementation": "static", "num_beams": 3},
    "target begun": {"decoder_input_ids": torch.tensor([[7, 8], [9, 10], [11, 12], [13, 14]]), "num_beams": 3},
}

#: what architectures are tried with: one in every way, those of other parts in some, and in two those like BART in
#: another arrangement. (A strategy reads scores, which are compared, and reorders a cache.)
SOME = ("greedy", "without a cache", "beams", "forced", "sampled", "static cache, beams", "target begun")
TRIED = {"marian": STRATEGIES | FORMS} | dict.fromkeys(("bart", "t5", "fsmt"), SOME)


def sources(official, rows: int = 4) -> dict[str, torch.LongTensor]:
    """Sentences of different lengths, padded on the right."""
    mask = ragged_mask(LENGTHS)
    ids = torch.randint(4, 91, mask.shape, generator=torch.Generator().manual_seed(0))
    return {
        "input_ids": torch.where(mask.bool(), ids, official.config.pad_token_id)[:rows],
        "attention_mask": mask[:rows],
    }


def generated(architecture: str, **options) -> tuple:
    padding = pair(architecture)[1].config.pad_token_id
    options = {"no_repeat_ngram_size": 2, "suppress_tokens": [padding]} | options
    ours = generate(pair(architecture)[0], sources(pair(architecture)[0]), **options)
    if architecture == "fsmt":
        # In `generate`, the official class has no causal mask: it is right where it reads one token at a time.
        options = {name: value for name, value in options.items() if name not in ("use_cache", "cache_implementation")}
    with keep_every_layer():
        return ours, generate(pair(architecture)[1], sources(pair(architecture)[1]), **options)


@pytest.mark.parametrize(
    ("architecture", "strategy"),
    [(name, each) for name in TRANSLATORS for each in TRIED.get(name, ("beams", "target begun"))],
)
def test_as_official(architecture, strategy):
    options = (STRATEGIES | FORMS)[strategy]
    if architecture == "fsmt" and "decoder_input_ids" in options:
        pytest.skip("the official class sees what is to come in a target that is begun")
    ours, theirs = generated(architecture, **options)
    assert ours.sequences.equal(theirs.sequences)
    assert_same(ours.scores, theirs.scores)
    assert_varied(ours.sequences, 1, least=5)


@TWO_KINDS
def test_attention_as_official(architecture):
    """To the target and to the source, of each step and each beam."""
    asked = {"output_attentions": True, "num_beams": 3, "num_return_sequences": 2}
    for model in pair(architecture):
        model.set_attn_implementation("eager")
    ours, theirs = generated(architecture, **asked)
    assert ours.beam_indices.equal(theirs.beam_indices)
    for name in ("cross_attentions", "decoder_attentions"):
        assert_same(getattr(ours, name), getattr(theirs, name))
    real = sources(pair(architecture)[0])["attention_mask"].bool()
    for one, other in zip(ours.encoder_attentions, theirs.encoder_attentions, strict=True):
        assert_same(one.transpose(1, 2)[real], other.transpose(1, 2)[real])


@pytest.mark.parametrize("guesser", ["the source", "a model"])
@TWO_KINDS
def test_guesses_as_official(architecture, guesser):
    (model, official), (helper, official_helper) = pair(architecture), pair(architecture, seed=1)
    options = {"num_beams": 1, "repetition_penalty": 1.5}
    wanted = generate(official, sources(official, rows=1), **options)
    for each, its_helper in ((model, helper), (official, official_helper)):
        guess = {"prompt_lookup_num_tokens": 2} if guesser == "the source" else {"assistant_model": its_helper}
        if each is model or architecture != "fsmt":
            assert generate(each, sources(each, rows=1), **options, **guess).sequences.equal(wanted.sequences)
