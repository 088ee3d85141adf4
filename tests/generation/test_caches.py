"""Every cache of transformers serves, and one that is handed back goes on where it stopped."""

import pytest
import torch
from torch.nn import functional as F
from transformers import DynamicCache, StaticCache

from tests.precision import assert_same
from tfm_zoo.models.batch import CACHE

from .models import LENGTHS, MAIN, NEW_TOKENS, VOCABULARY, assert_varied, generate, pair, prompts

pytestmark = pytest.mark.usefixtures("double")

EVERY_ARCHITECTURE = pytest.mark.parametrize("architecture", MAIN)
LENGTH = max(LENGTHS) + NEW_TOKENS
WINDOW = 4
CACHES = {
    "dynamic, given": lambda config: DynamicCache(config=config),
    "dynamic of any model": lambda config: DynamicCache(),
    "static and roomy": lambda config: StaticCache(config=config, max_cache_len=2 * LENGTH),
}
#: offloaded ones copy on a stream of their own, which a CPU has not
BY_NAME = ["dynamic", "static", *(["offloaded", "offloaded_static"] if torch.accelerator.is_available() else [])]


@EVERY_ARCHITECTURE
def test_as_without_a_cache(architecture):
    """The same tokens, and scores, by a cache's name or with one that is given."""
    model, _ = pair(architecture)
    wanted = generate(model, prompts(), use_cache=False)
    assert_varied(wanted.sequences)
    for kind in (*BY_NAME, *CACHES):
        cache = CACHES[kind](model.config) if kind in CACHES else None
        made = generate(model, prompts(), **({"cache_implementation": kind} if cache is None else {CACHE: cache}))
        assert made.sequences.equal(wanted.sequences), kind
        assert_same(made.scores, wanted.scores, kind)
        if cache is not None:
            assert made.past_key_values is cache and cache.get_seq_length() == LENGTH - 1, kind


def test_windows_hold_what_they_need():
    model, _ = pair("Qwen2ForCausalLM")
    for name, window in (("dynamic", WINDOW - 1), ("static", WINDOW)):  # a static one has room for the next
        cache = generate(model, prompts(), cache_implementation=name).past_key_values
        wanted = [window if kind == "sliding_attention" else LENGTH - 1 for kind in model.config.layer_types]
        assert [layer.keys.shape[2] for layer in cache.layers] == wanted, name


def chat(model, turns: list[torch.LongTensor], cache=None) -> torch.LongTensor:
    """All that was said after the user's turns, the first of which are `prompts()`; with a cache and without."""
    said, mask = torch.empty(4, 0, dtype=torch.long), prompts()["attention_mask"]
    for turn in turns:
        said = torch.cat((said, turn), dim=1)
        mask = F.pad(mask, (0, said.shape[1] - mask.shape[1]), value=1)
        options = {"max_new_tokens": 5, "eos_token_id": None}
        fresh = generate(model, {"input_ids": said, "attention_mask": mask}, **options)
        kept = generate(model, {"input_ids": said, "attention_mask": mask}, **{CACHE: cache}, **options)
        assert kept.sequences.equal(fresh.sequences)
        assert_same(kept.scores, fresh.scores)
        cache, said = kept.past_key_values, fresh.sequences
    return said


@EVERY_ARCHITECTURE
def test_continued_chat(architecture):
    """A second and a third turn, from the cache that the turn before has returned; as with the official class."""
    generator = torch.Generator().manual_seed(1)
    turns = [torch.randint(3, VOCABULARY, (4, length), generator=generator) for length in (3, 4)]
    (model, official), turns = pair(architecture), [prompts()["input_ids"], *turns]
    said = chat(model, turns)
    assert_varied(said)
    assert said.equal(chat(model, turns, StaticCache(model.config, max_cache_len=40)))
    if architecture != "OpenAIGPTLMHeadModel":  # whose official class has no cache
        assert said.equal(chat(official, turns))


@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "MarianMTModel"])
@torch.no_grad()
def test_a_cache_has_the_names_of_all_releases(architecture):
    """Of a translator, its decoder alone takes it by both."""
    (model, _), ids, source = pair(architecture), torch.arange(5, 11)[None], {}
    if architecture == "MarianMTModel":
        model, source["encoder_hidden_states"] = model.get_decoder(), model.get_encoder()(ids).last_hidden_state
    wanted = model(ids, use_cache=False, **source)[0][:, 5:]
    for name in ("past_key_values", "cache"):
        past = model(ids[:, :5], **source).past_key_values
        assert_same(model(ids[:, 5:], **source, **{name: past})[0], wanted, name)
