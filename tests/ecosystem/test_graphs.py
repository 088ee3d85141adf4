"""Compiled, exported and traced models compute what the eager ones do. (A graph keeps the padding.)"""

import shutil

import pytest
import torch

from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmBertForMultipleChoice,
    TfmBertForQuestionAnswering,
    TfmBertForSequenceClassification,
    TfmDebertaModel,
    TfmEncoderDecoderForConditionalGeneration,
    TfmEncoderDecoderForSequenceClassification,
    TfmGPTForCausalLM,
    TfmGPTForSequenceClassification,
)

from ..tiny import ENCODER_DECODERS, HEADS, NO_DROPOUT, ragged_batch, ragged_mask, tiny_model

#: Both sides compute in double precision: it is the mathematics that is compared.
SAME = {"rtol": 0, "atol": 1e-10}
ROTARY = {"position_embedding_type": "rotary", "norm_type": "rmsnorm", "mlp_type": "gated", "sliding_window": 3}


def one_layer(head: type) -> dict[str, int]:
    """On each side: a graph repeats what a layer does, and takes its time to make for each of them."""
    return {"num_hidden_layers": 1} | ({"decoder_layers": 1} if head in ENCODER_DECODERS else {})


def real(outputs) -> dict[str, torch.Tensor]:
    """The outputs, at real tokens alone where there is one for each token (of the source)."""
    mask = ragged_mask().bool()
    return {name: value[mask] if value.shape[:2] == mask.shape else value for name, value in outputs.items()}


def train(model, batch: dict) -> tuple[dict, dict]:
    outputs = model(**batch)
    tensors = real(outputs)
    loss = outputs.loss if "loss" in outputs else sum(value.square().sum() for value in tensors.values())
    loss.backward()
    return tensors, {name: parameter.grad for name, parameter in model.named_parameters() if "orig" not in name}


#: each way in which a head reads its base model, in one family or more; what depends on values, and so would break a
#: graph, `test_shapes_without_values` finds in every head
READING = (
    *(TfmBertForMaskedLM, TfmBertForSequenceClassification, TfmBertForMultipleChoice, TfmBertForQuestionAnswering),
    *(TfmGPTForCausalLM, TfmGPTForSequenceClassification),
    *(TfmEncoderDecoderForConditionalGeneration, TfmEncoderDecoderForSequenceClassification),
)
#: of each family one head whose forward and backward pass are captured as every backend is given them
CAPTURED = (TfmBertForMaskedLM, TfmGPTForCausalLM, TfmEncoderDecoderForConditionalGeneration)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "fields", "backend"),
    [
        *[
            pytest.param(head, one_layer(head), "aot_eager" if head in CAPTURED else "eager", id=head.__name__)
            for head in READING
        ],
        pytest.param(TfmBertForMaskedLM, ROTARY, "aot_eager", id="rotary, two layers"),
    ],
)
def test_one_graph_forward_and_backward(head, fields, backend):
    """No head breaks its graph; the time of making code is spared."""
    batch = ragged_batch(head, labels=True)
    results = []
    for compiles in (False, True):
        model = tiny_model(head, **NO_DROPOUT, **fields).double().train()
        if compiles:
            torch.compiler.reset()
            model.compile(backend=backend, fullgraph=True)
        results.append(train(model, batch))
    torch.testing.assert_close(*results, **SAME)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile makes C++, and there is no compiler for it")
def test_generated_code():
    torch.compiler.reset()
    model, batch = tiny_model(TfmBertForSequenceClassification, num_hidden_layers=1).double(), ragged_batch()
    with torch.no_grad():
        wanted = model(**batch)
        model.compile(fullgraph=True)
        torch.testing.assert_close(model(**batch), wanted, **SAME)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "fields"),
    [(TfmBertForMaskedLM, {}), (TfmBertForMaskedLM, ROTARY), (TfmDebertaModel, {})],
    ids=["bert", "rotary", "deberta"],
)
def test_export_for_any_batch(head, fields):
    model = tiny_model(head, **one_layer(head), **fields).double()
    small, large = ({name: value[:rows] for name, value in ragged_batch().items()} for rows in (2, 4))
    small = {name: value[:, :7].clone() for name, value in small.items()}
    shape = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    program = torch.export.export(model, (), small, dynamic_shapes=dict.fromkeys(small, shape))
    torch.testing.assert_close(real(program.module()(**large)), real(model(**large)), **SAME)


@pytest.mark.parametrize("head", [TfmGPTForSequenceClassification, TfmEncoderDecoderForSequenceClassification])
def test_a_classifier_of_one_position_exports_for_any_batch(head):
    model, large = tiny_model(head, **one_layer(head)).double(), ragged_batch(head)
    small = {name: value[:2] for name, value in large.items()}
    shape = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    program = torch.export.export(model, (), small, dynamic_shapes=dict.fromkeys(small, shape))
    for inputs in (large, {name: value[:3] for name, value in large.items()}):
        exported, wanted = program.module()(**inputs).logits, model(**inputs).logits
        torch.testing.assert_close(exported, wanted, **SAME)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, ROTARY], ids=["paper", "rotary"])
def test_export_for_any_source_and_target(fields):
    head = TfmEncoderDecoderForConditionalGeneration
    model, large = tiny_model(head, **one_layer(head), **fields).double(), ragged_batch(head)
    small = {name: value[:2, : value.shape[1] - 2].clone() for name, value in large.items()}
    batch, source, target = (torch.export.Dim(name, max=64) for name in ("batch", "source", "target"))
    shapes = {name: {0: batch, 1: target if name.startswith("decoder") else source} for name in small}
    program = torch.export.export(model, (), small, dynamic_shapes=shapes)
    for inputs in (small, large):
        exported, wanted = program.module()(**inputs).logits, model(**inputs).logits
        torch.testing.assert_close(exported, wanted, **SAME)


@pytest.mark.slow
def test_one_graph_with_a_cache():
    """A forward pass in evaluation returns a cache by default; here too no value decides what is computed."""
    head = TfmEncoderDecoderForConditionalGeneration
    model, batch = tiny_model(head, use_cache=True, **one_layer(head)).double(), ragged_batch(head)
    with torch.no_grad():
        wanted = model(**batch)
        torch.compiler.reset()
        model.compile(backend="aot_eager", fullgraph=True)
        outputs = model(**batch)
    torch.testing.assert_close(outputs[0], wanted[0], **SAME)
    caches = [each.past_key_values for each in (outputs, wanted)]
    ours, theirs = (cache.self_attention_cache.layers[0].keys for cache in caches)
    torch.testing.assert_close(ours, theirs, **SAME)
    ours, theirs = (cache.cross_attention_cache.layers[0].keys.transpose(1, 2) for cache in caches)
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(ours[real], theirs[real], **SAME)


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


@pytest.mark.parametrize("head", [TfmBertForMaskedLM, TfmGPTForCausalLM])
def test_positions_without_values(head):
    """Whether they begin anew, nobody can tell."""
    with torch.device("meta"):
        ids, positions = torch.ones(2, 7, dtype=torch.long), torch.arange(7).expand(2, -1)
        assert tiny_model(head)(ids, position_ids=positions).logits.shape[:2] == ids.shape


@pytest.mark.slow
# (torch keeps tracing for tools that are built on it, and asks others to export.)
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::UserWarning")
def test_trace():
    model = tiny_model(TfmBertForSequenceClassification, return_dict=False).double()
    batch = ragged_batch()
    traced = torch.jit.trace(model, tuple(batch.values()), check_trace=False)
    other = ragged_batch(seed=1)
    torch.testing.assert_close(traced(*other.values()), model(*other.values()), **SAME)
