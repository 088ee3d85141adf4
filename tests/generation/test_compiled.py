"""Decoding with a static cache is one graph, and a forward pass can be exported."""

import pytest
import torch
from transformers import CompileConfig

from . import test_translation as translation
from .models import assert_varied, generate, pair, prompts

pytestmark = pytest.mark.slow


def generate_compiled(model, inputs: dict, **options):
    """`generate` compiles a step itself where there is a GPU; here it is told to, and a graph break is an error."""
    compiled = CompileConfig(backend="eager", fullgraph=True, dynamic=False, mode=None)
    compiled._compile_all_devices = True
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    return generate(model, inputs, cache_implementation="static", compile_config=compiled, **options)


def assert_one_graph(model, inputs: dict, **options) -> torch.LongTensor:
    """The same tokens and scores as without a graph."""
    made, wanted = generate_compiled(model, inputs, **options), generate(model, inputs, **options)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1, torch._dynamo.utils.counters
    assert not torch._dynamo.utils.counters["graph_break"]
    assert made.sequences.equal(wanted.sequences)
    torch.testing.assert_close(made.scores, wanted.scores, rtol=1e-5, atol=1e-5)
    return made.sequences


# (A static cache with a window is compiled anew at every step by transformers 5.23, for its own classes too.)
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_one_graph(architecture):
    assert_varied(assert_one_graph(pair(architecture)[0], prompts()))


# (Beam search is not compiled by transformers 5.23.)
@pytest.mark.parametrize("name", ["the paper's", "modern", "like T5"])
def test_one_graph_with_an_encoder(name):
    """Which is run before: a compiled step is the decoder's."""
    layers = {"num_hidden_layers": 1, "decoder_layers": 1}  # a graph takes its time to make for each
    model = translation.make(**layers, **translation.ARCHITECTURES[name])
    assert_one_graph(model, translation.sources(), **translation.VARIED)


@pytest.mark.parametrize("architecture", ["gpt2", "mistral"])
def test_export(architecture):
    """One pass, for any batch and any length."""
    model, _ = pair(architecture)
    small, large = ({name: value[:rows] for name, value in prompts().items()} for rows in (2, 4))
    small = {name: value[:, -7:].contiguous() for name, value in small.items()}
    shape = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    shapes = dict.fromkeys(small, shape) | {"use_cache": None}
    program = torch.export.export(model, (), small | {"use_cache": False}, dynamic_shapes=shapes)
    real = large["attention_mask"].bool()
    with torch.no_grad():
        exported, wanted = (each(**large, use_cache=False).logits for each in (program.module(), model))
    torch.testing.assert_close(exported[real], wanted[real], rtol=1e-5, atol=1e-5)
