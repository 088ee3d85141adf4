"""Every cache of transformers serves, and one that is handed back goes on where it stopped."""

import copy

import pytest
import torch
from torch.nn import functional as F
from transformers import DynamicCache, QuantizedCache, StaticCache

from tests.precision import assert_same
from tfm_zoo.models.compat import CACHE

from .models import IN_EVERY_WAY, LENGTHS, NEW_TOKENS, VOCABULARY, assert_varied, generate, pair, prompts

pytestmark = pytest.mark.usefixtures("double")

EVERY_ARCHITECTURE = pytest.mark.parametrize("architecture", IN_EVERY_WAY)
LENGTH = max(LENGTHS) + NEW_TOKENS
WINDOW = 4
CACHES = {
    "dynamic, given": lambda config: DynamicCache(config=config),
    "dynamic of any model": lambda config: DynamicCache(),
    "static, given": lambda config: StaticCache(config=config, max_cache_len=LENGTH),
    "static and roomy": lambda config: StaticCache(config=config, max_cache_len=2 * LENGTH),
}
BY_NAME = ["dynamic", "static", "offloaded", "offloaded_static"]


@pytest.mark.parametrize("kind", [*BY_NAME, *CACHES])
@EVERY_ARCHITECTURE
def test_as_without_a_cache(architecture, kind):
    """The same tokens, and scores, by a cache's name or with one that is given."""
    if kind.startswith("offloaded") and not torch.accelerator.is_available():
        pytest.skip("they copy on a stream of their own, which a CPU has not")
    model, _ = pair(architecture)
    wanted = generate(model, prompts(), use_cache=False)
    assert_varied(wanted.sequences)
    cache = CACHES[kind](model.config) if kind in CACHES else None
    made = generate(model, prompts(), **({CACHE: cache} if cache is not None else {"cache_implementation": kind}))
    assert made.sequences.equal(wanted.sequences)
    assert_same(made.scores, wanted.scores)
    if cache is not None:
        assert made.past_key_values is cache and cache.get_seq_length() == LENGTH - 1


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("architecture", ["bloom", "falcon_rw"])
def test_holes_with_a_static_cache(architecture, attention):
    """For it `generate` says only who attends to whom: what ALiBi leaves out of distances follows from that."""
    model = copy.deepcopy(pair(architecture)[0])
    model.set_attn_implementation(attention)
    inputs = prompts()
    inputs["attention_mask"][0, 3:6] = inputs["attention_mask"][3, 5] = 0
    wanted, made = (
        generate(model, inputs, **options) for options in ({"use_cache": False}, {"cache_implementation": "static"})
    )
    assert made.sequences.equal(wanted.sequences)
    assert_same(made.scores, wanted.scores)


@pytest.mark.parametrize("architecture", ["mistral", "qwen2"])
@pytest.mark.parametrize("name", ["dynamic", "static"])
def test_windows_hold_what_they_need(architecture, name):
    model, _ = pair(architecture)
    cache = generate(model, prompts(), cache_implementation=name).past_key_values
    held = [layer.keys.shape[2] for layer in cache.layers]
    window = WINDOW - 1 if name == "dynamic" else WINDOW  # a static one has room for the next
    whole = LENGTH - 1
    for kind, positions in zip(model.config.layer_types, held, strict=True):
        assert positions == (window if kind == "sliding_attention" else whole)


@pytest.mark.parametrize("backend", ["fp8", "hqq"])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_quantised_cache(architecture, backend):
    """Keys and values of the past in eight bits: as in the official class, and nearly as in full precision."""
    options = {"backend": backend}
    if backend == "fp8":
        pytest.importorskip("transformers", "5.21")
    if backend == "hqq":
        pytest.importorskip("hqq")
        options |= {"nbits": 8, "axis_key": 1, "axis_value": 1, "q_group_size": 8, "residual_length": 4}
    ours, theirs = (
        generate(model, prompts(), cache_implementation="quantized", cache_config=options)
        for model in pair(architecture)
    )
    assert isinstance(ours.past_key_values, QuantizedCache)
    assert ours.sequences.equal(theirs.sequences)
    exact = generate(pair(architecture)[0], prompts())
    first = exact.sequences[:, max(LENGTHS)]
    assert first.equal(ours.sequences[:, max(LENGTHS)])
    difference = (ours.scores[1] - exact.scores[1]).norm() / exact.scores[1].norm()
    assert 0 < difference < 0.1


def chat(model, turns: list[torch.LongTensor], cache=None) -> list[torch.LongTensor]:
    """All that was said after each turn of the user's, the first of which are `prompts()`; with a cache and without."""
    said, mask = torch.empty(4, 0, dtype=torch.long), prompts()["attention_mask"]
    answers = []
    for turn in turns:
        said = torch.cat((said, turn), dim=1)
        mask = F.pad(mask, (0, said.shape[1] - mask.shape[1]), value=1)
        options = {"max_new_tokens": 5, "eos_token_id": None}
        fresh = generate(model, {"input_ids": said, "attention_mask": mask}, **options)
        kept = generate(model, {"input_ids": said, "attention_mask": mask}, **{CACHE: cache}, **options)
        assert kept.sequences.equal(fresh.sequences)
        assert_same(kept.scores, fresh.scores)
        cache, said = kept.past_key_values, fresh.sequences
        answers.append(said)
    return answers


@EVERY_ARCHITECTURE
def test_continued_chat(architecture):
    """A second and a third turn, from the cache that the turn before has returned; as with the official class."""
    generator = torch.Generator().manual_seed(1)
    turns = [torch.randint(3, VOCABULARY, (4, length), generator=generator) for length in (3, 4)]
    model, official = pair(architecture)
    ours = chat(model, [prompts()["input_ids"], *turns])
    if architecture != "openai-gpt":  # whose official class has no cache
        theirs = chat(official, [prompts()["input_ids"], *turns])
        assert all(one.equal(other) for one, other in zip(ours, theirs, strict=True))
    assert_varied(ours[-1])


@pytest.mark.parametrize("architecture", ["gpt2", "mistral"])
def test_chat_with_a_static_cache(architecture):
    model, _ = pair(architecture)
    chat(model, [prompts()["input_ids"], torch.full((4, 2), 7)], StaticCache(model.config, max_cache_len=40))


@EVERY_ARCHITECTURE
def test_one_past_with_two_futures(architecture):
    """A copy of a cache goes its own way, and one that is cut back forgets; by either of the names of releases."""
    model, _ = pair(architecture)
    inputs = prompts()
    with torch.no_grad():
        past = model(**inputs).past_key_values
        branches = [past, copy.deepcopy(past)]
        seen = [inputs["input_ids"]] * 2
        for step in range(4):
            for branch, (name, cache) in enumerate(zip(("past_key_values", "cache"), branches, strict=True)):
                ids = torch.full((4, 1), 10 + 7 * step + 31 * branch)
                seen[branch] = torch.cat((seen[branch], ids), dim=1)
                mask = torch.cat((inputs["attention_mask"], torch.ones(4, step + 1, dtype=torch.long)), dim=1)
                wanted = model(seen[branch], attention_mask=mask, use_cache=False).logits[:, -1]
                logits = model(ids, attention_mask=mask, **{name: cache}).logits[:, -1]
                assert_same(logits, wanted)


@EVERY_ARCHITECTURE
@pytest.mark.parametrize("side", ["left", "right"])
def test_pieces_add_up_to_the_whole(architecture, side):
    """One pass over a text against pieces of several lengths with a cache, at the tokens that are not padding."""
    model, _ = pair(architecture)
    inputs = prompts()
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    if side == "right":
        ids, mask = ids.flip(1), mask.flip(1)
    with torch.no_grad():
        whole = model(ids, attention_mask=mask).logits
        cache, logits = None, []
        for first, last in ((0, 3), (3, 4), (4, 8), (8, 9)):
            outputs = model(ids[:, first:last], attention_mask=mask[:, :last], past_key_values=cache)
            cache = outputs.past_key_values
            logits.append(outputs.logits)
    real = mask.bool()
    assert_same(torch.cat(logits, dim=1)[real], whole[real])
