"""Compiled decoding steps: the same tokens as without, and one graph for all lengths that have room in one cache."""

import copy
import shutil
from collections.abc import Callable

import pytest
import torch

from tfm_zoo import TfmBertForMaskedLM, pack_weights
from tfm_zoo.packing import compiling, products
from tfm_zoo.packing.compiling import beyond_packed, compile_steps, room
from tfm_zoo.packing.linear import LinearPart, PackedLinear

from ..generation.models import generate, pair, prompts
from ..tiny import tiny_decoder, tiny_model

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")


def twins(architecture: str, dtype: str, backend: str | Callable):
    """A packed model, and one that compiles its steps, too."""
    packed = pack_weights(copy.deepcopy(pair(architecture)[0]), dtype)
    compiled = copy.deepcopy(packed)
    compile_steps(compiled, backend)
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    return packed, compiled


def graphs() -> int:
    assert not torch._dynamo.utils.counters["graph_break"]
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.slow
@pytest.mark.parametrize("architecture, dtype", [("gpt2", "float32"), ("llama", "int8"), ("marian", "bfloat16")])
def test_same_tokens(architecture, dtype):
    packed, compiled = twins(architecture, dtype, "eager")
    assert "static" in compiled.generation_config.to_json_string()  # which saving a model writes
    for options in ({}, {"do_sample": True}, {"max_new_tokens": 5}):
        made, wanted = (generate(model, prompts(), **options) for model in (compiled, packed))
        assert made.sequences.equal(wanted.sequences)
    assert graphs() == 1
    made, wanted = (generate(model, prompts(), num_beams=3).sequences for model in (compiled, packed))
    assert made.equal(wanted)  # beams are not compiled
    assert graphs() == 1
    assert isinstance(compiled, type(packed)) and type(compiled).__name__ == type(packed).__name__


def test_room():
    assert [room(positions) for positions in (1, 127, 128, 129, 1000, 1024)] == [128, 128, 128, 256, 1024, 1024]


@pytest.mark.slow
def test_caches_are_as_long_as_their_room(monkeypatch):
    """A long generation takes another graph, and those after it take the first one again."""
    monkeypatch.setattr(compiling, "SHORTEST", 16)
    packed, compiled = twins("llama", "float32", "eager")
    for new, count in ((4, 1), (6, 1), (12, 2), (5, 2)):
        made, wanted = (generate(model, prompts(), max_new_tokens=new) for model in (compiled, packed))
        assert made.sequences.equal(wanted.sequences)
        assert made.past_key_values.layers[0].max_cache_len == room(9 + new - 1)
        assert graphs() == count


@pytest.mark.slow
@needs_compiler
def test_generated_code(caplog):
    """`compile=True`, with adapters too; how long compiling took is said once."""
    peft = pytest.importorskip("peft")
    model = tiny_decoder(num_hidden_layers=1, mlp_type="gated")
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False)).eval()
    source = {name: value.clamp(max=60) for name, value in prompts().items()}
    wanted = generate(adapted, source).sequences
    compiled = pack_weights(adapted, "float32", compile=True)
    torch.compiler.reset()
    made = [generate(compiled, source).sequences for _ in range(2)]
    assert made[0].equal(wanted) and made[1].equal(wanted)
    assert caplog.text.count("Compiled the decoding step") == 1


@pytest.mark.slow
def test_what_a_step_repeats():
    """Not the heads that query heads share, which the kernel reads as they are; but rows, for the kernel's sake."""
    steps = []

    def backend(graph, inputs):
        steps.append(graph)
        return graph

    packed, compiled = twins("llama", "float32", backend)
    one = {name: value[:1] for name, value in prompts().items()}
    made, wanted = (generate(model, one).sequences for model in (compiled, packed))
    assert made.equal(wanted)
    calls = [node for step in steps for node in step.graph.nodes if node.op == "call_function"]
    attended = [node for node in calls if node.target is torch.nn.functional.scaled_dot_product_attention]
    heads, shared = (attended[0].args[place].meta["example_value"].shape[1] for place in (0, 1))
    assert len(steps) == 1 and heads > shared
    multiplied = [node.args[0] for node in calls if node.target is torch.ops.tfm_zoo.product]
    assert {node.meta["example_value"].shape[0] for node in multiplied} == {products.OneDNNProduct.FEWEST}


@pytest.mark.slow
def test_guards(monkeypatch):
    """Packed layers are guarded by number alone; adapters are guarded: one that is turned off is not applied."""
    peft = pytest.importorskip("peft")
    model = tiny_decoder(num_hidden_layers=1, mlp_type="gated")
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False)).eval()
    packed = pack_weights(adapted, "float32")
    compiled = copy.deepcopy(packed)
    compile_steps(compiled, "eager")
    torch.compiler.reset()
    seen = []

    def watched(guards: list) -> list[bool]:
        flags = beyond_packed(guards)
        seen.extend(zip(guards, flags, strict=True))
        return flags

    monkeypatch.setattr(compiling, "beyond_packed", watched)
    source = {name: value.clamp(max=60) for name, value in prompts().items()}
    made, wanted = (generate(model, source).sequences for model in (compiled, packed))
    assert made.equal(wanted)
    packed_layers = tuple({guard.name for guard, _ in seen if isinstance(guard.value, PackedLinear | LinearPart)})
    inside = [(guard.name, is_kept) for guard, is_kept in seen if guard.name.startswith(packed_layers)]
    assert all(is_kept == name.endswith(".number") for name, is_kept in inside)
    assert all(is_kept for guard, is_kept in seen if not guard.name.startswith(packed_layers))
    assert 0 < len(inside) < len(seen)
    with compiled.disable_adapter(), packed.disable_adapter():
        made, other = (generate(model, source).sequences for model in (compiled, packed))
    assert made.equal(other) and not made.equal(wanted)
    twins = [copy.deepcopy(each) for each in (compiled, packed)]
    for twin in twins:
        table = twin.get_input_embeddings().weight
        table.data = table.flip(0)
    made, other = (generate(twin, source).sequences for twin in twins)
    assert made.equal(other) and not made.equal(wanted)  # with a step of its own


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
