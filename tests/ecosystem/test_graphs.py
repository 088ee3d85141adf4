"""Compiled models compute what eager ones do. A graph keeps padding; blocks compiled one by one never see it."""

import shutil

import pytest
import torch

import tfm_zoo
from benchmarks.gpu import ragged_batches
from tfm_zoo import TfmBertForSequenceClassification, TfmGPTForCausalLM

from ..tiny import ENCODER_DECODERS, HEADS, NO_DROPOUT, ragged_batch, ragged_mask, tiny_model

#: Both sides compute in double precision: it is the mathematics that is compared.
SAME = {"rtol": 0, "atol": 1e-10}
ROTARY = {"position_embedding_type": "rotary", "norm_type": "rmsnorm", "mlp_type": "gated", "sliding_window": 3}
NO_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile makes C++, and nothing compiles it")


def one_layer(head: type, **fields):
    """A graph repeats what a layer does, and takes its time to make for each of them."""
    sizes = {"num_hidden_layers": 1} | ({"decoder_layers": 1} if head in ENCODER_DECODERS else {})
    return tiny_model(head, **NO_DROPOUT | sizes | fields).double()


def computed(model, batch: dict) -> tuple[dict, dict]:
    """The outputs, at real tokens (of the source) where there is one for each token; in training, all gradients."""
    with torch.set_grad_enabled(model.training):
        outputs, mask = model(**batch), ragged_mask().bool()
    if model.training:
        outputs.loss.backward()
    real = {name: value[mask] if value.shape[:2] == mask.shape else value for name, value in outputs.items()}
    return real, {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "backend", "fields"),
    [
        # what depends on values, and so would break a graph, `test_shapes_without_values` finds in every head
        (tfm_zoo.TfmEncoderDecoderForSequenceClassification, "eager", {}),
        # of each family one head whose forward and backward pass are captured as every backend is given them
        (tfm_zoo.TfmBertForMaskedLM, "aot_eager", ROTARY | {"num_hidden_layers": 2}),
        (TfmGPTForCausalLM, "aot_eager", {}),
        (tfm_zoo.TfmEncoderDecoderForConditionalGeneration, "aot_eager", {}),
        # generated code, in evaluation
        pytest.param(TfmBertForSequenceClassification, "inductor", {}, marks=NO_COMPILER),
    ],
)
def test_one_graph(head, backend, fields):
    training = backend != "inductor"
    plain, compiled = (one_layer(head, **fields).train(training) for _ in range(2))
    torch.compiler.reset()
    compiled.compile(backend=backend, fullgraph=True)
    batch = ragged_batch(head, labels=training)
    torch.testing.assert_close(computed(compiled, batch), computed(plain, batch), **SAME)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_shapes_without_values(head):
    """On the meta device, which plans memory. (transformers reads the values of a mask.)"""
    batch = ragged_batch(head, labels=True)
    del batch["attention_mask"]
    outputs = tiny_model(head)(**batch)
    with torch.device("meta"):
        planned = tiny_model(head)(**{name: value.to("meta") for name, value in batch.items()})
    shapes = [[value.shape for value in each.values() if torch.is_tensor(value)] for each in (planned, outputs)]
    assert shapes[0] == shapes[1]


def compile_blocks(model, **options) -> None:
    for layer in [layer for part in model.modules() for layer in getattr(part, "layers", ())]:
        layer.compile(dynamic=True, **options)


def results(model, batches: list[dict]) -> list[torch.Tensor]:
    """The loss and the norm of all gradients in training, of each batch."""
    found = []
    for batch in batches:
        if not isinstance(model, TfmBertForSequenceClassification):
            batch = batch | {"labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}
        model.zero_grad()
        found.append(model.train()(**batch).loss)
        found[-1].backward()
        found.append(torch.stack([each.grad.norm() for each in model.parameters() if each.grad is not None]).norm())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "head", [TfmBertForSequenceClassification, TfmGPTForCausalLM, tfm_zoo.TfmEncoderDecoderForConditionalGeneration]
)
def test_other_lengths_compile_no_block_anew(head):
    torch.compiler.reset()
    plain, model = (tiny_model(head, max_position_embeddings=64, **NO_DROPOUT) for _ in range(2))
    graphs, batches = [], ragged_batches("cpu", 10)
    compile_blocks(model, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    found = results(model, batches[:3])
    made = len(graphs)
    found += results(model, batches[3:])
    assert made > 0 and len(graphs) == made
    torch.testing.assert_close(found, results(plain, batches), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@torch.no_grad()
def test_padding_is_not_computed_in_compiled_blocks():
    """What was dropped is restored as zeros; each block is one graph."""
    model, [batch] = tiny_model(TfmBertForSequenceClassification, max_position_embeddings=64), ragged_batches("cpu", 1)
    compile_blocks(model, backend="eager", fullgraph=True)
    states = model.base_model(batch["input_ids"], batch["attention_mask"]).last_hidden_state
    assert not states[batch["attention_mask"] == 0].any() and states[batch["attention_mask"] == 1].abs().min() > 0
