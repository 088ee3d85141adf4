"""Decoding with a static cache is one graph, and continuous batching says what `generate` says. (Graphs of a forward
pass, and exports, are in tests/ecosystem.)"""

import pytest
import torch
from transformers import CompileConfig, ContinuousBatchingConfig, GenerationConfig

from ..tiny import tiny_decoder
from . import test_translation as translation
from .models import assert_varied, generate, pair, prompts


def assert_one_graph(model, inputs: dict, **options) -> torch.LongTensor:
    """The same tokens and scores as without a graph. (`generate` compiles a step itself where there is a GPU; here it
    is told to, and a graph break is an error.)"""
    compiled = CompileConfig(backend="eager", fullgraph=True, dynamic=False, mode=None)
    compiled._compile_all_devices = True
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    made = generate(model, inputs, cache_implementation="static", compile_config=compiled, **options)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1, torch._dynamo.utils.counters
    assert not torch._dynamo.utils.counters["graph_break"]
    wanted = generate(model, inputs, **options)
    assert made.sequences.equal(wanted.sequences)
    torch.testing.assert_close(made.scores, wanted.scores, rtol=1e-5, atol=1e-5)
    return made.sequences


# (A static cache with a window is compiled anew at every step by transformers 5.23, for its own classes too.)
@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "LlamaForCausalLM"])
def test_one_graph(architecture):
    assert_varied(assert_one_graph(pair(architecture)[0], prompts()))


# (Beam search is not compiled by transformers 5.23.)
@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, translation.T5_LIKE], ids=["the paper's", "like T5"])
def test_one_graph_with_an_encoder(fields):
    """Which is run before: a compiled step is the decoder's."""
    model = translation.make(num_hidden_layers=1, decoder_layers=1, **fields)  # a graph takes its time for each
    assert_one_graph(model, translation.sources(), **translation.VARIED)


def test_continuous_batching_gives_what_generate_does():
    model = tiny_decoder()
    prompts = [[5, 6, 7, 8], [9, 10]]
    options = GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1, pad_token_id=0)
    sizes = ContinuousBatchingConfig(num_blocks=8, max_batch_tokens=64)
    batched = model.generate_batch(prompts, generation_config=options, continuous_batching_config=sizes)
    for prompt, result in zip(prompts, batched.values(), strict=True):
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=4, do_sample=False, pad_token_id=0)
        assert result.generated_tokens == expected[0, len(prompt) :].tolist()
