"""Compiled decoding steps: the same tokens as without, and one graph for all lengths that have room in one cache."""

import copy
import shutil

import pytest
import torch

from tfm_zoo import TfmBertForMaskedLM, pack_weights
from tfm_zoo.packing import compiling
from tfm_zoo.packing.compiling import compile_steps, room

from ..generation.models import generate, pair, prompts
from ..tiny import tiny_decoder, tiny_model


def twins(architecture: str, dtype: str):
    """A packed model, and one that compiles its steps, too."""
    packed = pack_weights(copy.deepcopy(pair(architecture)[0]), dtype)
    compiled = copy.deepcopy(packed)
    compile_steps(compiled, "eager")
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    return packed, compiled


def graphs() -> int:
    assert not torch._dynamo.utils.counters["graph_break"]
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.slow
@pytest.mark.parametrize("architecture, dtype", [("gpt2", "float32"), ("llama", "int8"), ("marian", "bfloat16")])
def test_same_tokens(architecture, dtype):
    packed, compiled = twins(architecture, dtype)
    assert "static" in compiled.generation_config.to_json_string()  # which saving a model writes
    for options in ({}, {"do_sample": True}, {"max_new_tokens": 5}):
        made, wanted = (generate(model, prompts(), **options) for model in (compiled, packed))
        assert made.sequences.equal(wanted.sequences)
    assert graphs() == 1
    made, wanted = (generate(model, prompts(), num_beams=3).sequences for model in (compiled, packed))
    assert made.equal(wanted)  # beams are not compiled
    assert graphs() == 1
    assert isinstance(compiled, type(packed)) and type(compiled).__name__ == type(packed).__name__


@pytest.mark.slow
def test_caches_are_as_long_as_their_room(monkeypatch):
    """A long generation takes another graph, and those after it take the first one again."""
    assert [room(positions) for positions in (1, 128, 129, 1000, 1024)] == [128, 128, 256, 1024, 1024]
    monkeypatch.setattr(compiling, "SHORTEST", 16)
    packed, compiled = twins("llama", "float32")
    for new, count in ((4, 1), (6, 1), (12, 2), (5, 2)):
        made, wanted = (generate(model, prompts(), max_new_tokens=new) for model in (compiled, packed))
        assert made.sequences.equal(wanted.sequences)
        assert made.past_key_values.layers[0].max_cache_len == room(9 + new - 1)
        assert graphs() == count


def with_adapter(**options):
    """A packed model with an adapter, what it reads, and the tokens of the model before it was packed."""
    peft = pytest.importorskip("peft")
    model = tiny_decoder(num_hidden_layers=1, mlp_type="gated")
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False)).eval()
    source = {name: value.clamp(max=60) for name, value in prompts().items()}
    wanted = generate(adapted, source).sequences
    return pack_weights(adapted, "float32", **options), source, wanted


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_generated_code(caplog):
    """`compile=True`, with adapters too; how long compiling took is said once."""
    compiled, source, wanted = with_adapter(compile=True)
    torch.compiler.reset()
    made = [generate(compiled, source).sequences for _ in range(2)]
    assert made[0].equal(wanted) and made[1].equal(wanted)
    assert caplog.text.count("Compiled the decoding step") == 1


@pytest.mark.slow
def test_a_step_is_used_for_its_own_weights_alone():
    """Not with an adapter that is turned off, and not for a copy whose embeddings are others."""
    packed, source, _ = with_adapter()
    compiled = copy.deepcopy(packed)
    compile_steps(compiled, "eager")
    torch.compiler.reset()
    made, wanted = (generate(model, source).sequences for model in (compiled, packed))
    assert made.equal(wanted)
    with compiled.disable_adapter(), packed.disable_adapter():
        made, other = (generate(model, source).sequences for model in (compiled, packed))
    assert made.equal(other) and not made.equal(wanted)
    twins = [copy.deepcopy(each) for each in (compiled, packed)]
    for twin in twins:
        table = twin.get_input_embeddings().weight
        table.data = table.flip(0)
    made, other = (generate(twin, source).sequences for twin in twins)
    assert made.equal(other) and not made.equal(wanted)


def test_what_cannot_be_compiled(monkeypatch):
    with pytest.raises(ValueError, match="TfmBertForMaskedLM does not generate"):
        pack_weights(tiny_model(TfmBertForMaskedLM), "int8", compile=True)
    with pytest.raises(ValueError, match="layers without a window"):
        pack_weights(tiny_decoder(sliding_window=4), "int8", compile=True)
    monkeypatch.setenv("CXX", "no-such-compiler")
    model = copy.deepcopy(pair("gpt2")[0])
    with pytest.raises(ValueError, match="there is no no-such-compiler"):
        pack_weights(model, "int8", compile=True)
    assert isinstance(model.lm_head, torch.nn.Linear)  # refused before any work is done
    assert model.generation_config.cache_implementation is None
