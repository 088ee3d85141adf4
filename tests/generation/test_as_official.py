"""`generate` gives token for token what it gives with the official class, by every strategy the library has.

Contrastive search (and DoLa, and group and constrained beam search) is not in transformers 5 any more: `generate`
loads it from a repository on the Hub, for official models too.
"""

import pytest
import torch

from ..official_models import keep_every_layer
from ..precision import assert_same
from ..tiny import ragged_mask
from .models import ARCHITECTURES, LATER, OFFICIAL_OPTIONS, TRANSLATORS, assert_varied, generate, pair, prompts

pytestmark = pytest.mark.usefixtures("double")

SAMPLED = {"do_sample": True, "top_k": 0}
STRATEGIES = {
    "greedy": {},
    "greedy without a cache": {"use_cache": False},
    "penalties": {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
    "sampled": SAMPLED | {"temperature": 1.7},
    "sampled several": SAMPLED | {"min_p": 0.02, "num_return_sequences": 2},
    "beams": {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 2.0, "early_stopping": True},
    "sampled beams": SAMPLED | {"num_beams": 3, "temperature": 1.5},
}
BEGUN = torch.tensor([[7, 8], [9, 10], [11, 12], [13, 14]])
OF_TRANSLATORS = {
    **{"greedy": {"num_beams": 1}, "as the model's own configuration says": {}},
    **{"without a cache": {"use_cache": False, "num_beams": 2}, "beams": {"num_beams": 4}},
    "beams returned": STRATEGIES["beams"],
    "forced": {"num_beams": 4, "forced_bos_token_id": 7, "forced_eos_token_id": 9, "min_new_tokens": 10},
    "sampled several": SAMPLED | {"num_beams": 1, "top_p": 0.8, "num_return_sequences": 3, "eos_token_id": None},
    "sampled beams": SAMPLED | {"num_beams": 3, "temperature": 1.5},
    "static cache, beams": {"cache_implementation": "static", "num_beams": 3},
    "target begun": {"decoder_input_ids": BEGUN, "num_beams": 3},
}
#: Whatever the strategy, it reads the scores of each step, which are compared, and reorders the cache of transformers:
#: one decoder and one translator are tried in every way, those of other parts in some.
SOME = ("greedy", "greedy without a cache", "sampled several", "beams")
TRIED = {
    **dict.fromkeys(LATER, ("greedy",)),
    **dict.fromkeys(ARCHITECTURES, SOME),
    **dict.fromkeys(TRANSLATORS, ("greedy", "beams", "static cache, beams", "target begun")),
    # (The official FSMT sees what is to come in a target that is begun.)
    "FSMTForConditionalGeneration": ("greedy", "without a cache", "beams"),
    "Qwen2ForCausalLM": STRATEGIES,
    "MarianMTModel": OF_TRANSLATORS,
}


def generated(architecture: str, **options) -> tuple:
    """What both models say: to prompts padded on the left, or to sources padded on the right."""
    model, official = pair(architecture)
    if architecture not in TRANSLATORS:
        theirs = options | OFFICIAL_OPTIONS.get(architecture, {})
        return generate(model, prompts(), **options), generate(official, prompts(), **theirs)
    padding, mask = official.config.pad_token_id, ragged_mask()
    ids = torch.randint(4, 91, mask.shape, generator=torch.Generator().manual_seed(0))
    source = {"input_ids": torch.where(mask.bool(), ids, padding), "attention_mask": mask}
    options = {"no_repeat_ngram_size": 2, "suppress_tokens": [padding]} | options
    ours = generate(model, source, **options)
    if architecture == "FSMTForConditionalGeneration":
        # In `generate`, the official class has no causal mask: it is right where it reads one token at a time.
        options = {name: value for name, value in options.items() if name not in ("use_cache", "cache_implementation")}
    with keep_every_layer():
        return ours, generate(official, source, **options)


@pytest.mark.parametrize("architecture", TRIED)
def test_as_official(architecture):
    translates = architecture in TRANSLATORS
    for strategy in TRIED[architecture]:
        ours, theirs = generated(architecture, **(OF_TRANSLATORS if translates else STRATEGIES)[strategy])
        assert ours.sequences.equal(theirs.sequences), strategy
        assert_same(ours.scores, theirs.scores, strategy)
        assert_varied(ours.sequences, *((1, 5) if translates else ()))


def test_from_embeddings():
    model, _ = pair("GPT2LMHeadModel")
    embedded = {"inputs_embeds": model.get_input_embeddings()(prompts()["input_ids"])}
    mask = {"attention_mask": prompts()["attention_mask"]}
    new = generate(model, prompts()).sequences[:, prompts()["input_ids"].shape[1] :]
    assert generate(model, embedded | mask).sequences.equal(new)


def one_prompt() -> dict[str, torch.LongTensor]:
    """The longest, with some of it said twice, for a lookup to find."""
    ids = prompts()["input_ids"][:1]
    ids = torch.cat((ids, ids[:, :3]), dim=1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.mark.parametrize("is_assisted", [False, True], ids=["lookup", "assistant"])
@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "Qwen2ForCausalLM"])
def test_guesses_ahead(architecture, is_assisted):
    """Looked up, or by a model of the same kind, the zoo's for the zoo's: what greedy decoding says is said."""
    for is_sampled in (False, True):
        options, said = {"do_sample": is_sampled, "top_k": 0, "eos_token_id": None}, []
        for model, helper in zip(pair(architecture), pair(architecture, seed=0 if is_sampled else 1), strict=True):
            more = {"assistant_model": helper} if is_assisted else {"prompt_lookup_num_tokens": 3}
            said.append(generate(model, one_prompt(), **options, **more).sequences)
        assert said[0].equal(said[1]), f"do_sample={is_sampled}"
        if not is_sampled:
            assert said[0].equal(generate(pair(architecture)[0], one_prompt(), **options).sequences)
        assert_varied(said[0], one_prompt()["input_ids"].shape[1], least=3)
