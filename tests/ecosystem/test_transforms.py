"""What takes a model apart computes of a zoo model what backpropagation does, or what it computes of the official
class: captum, Opacus, `torch.func`, second derivatives."""

from functools import partial

import pytest
import torch
from captum.attr import LayerIntegratedGradients
from opacus import GradSampleModule
from torch import nn
from torch.func import functional_call, grad, vmap

from tfm_zoo import TfmEncoderDecoderForConditionalGeneration

from ..official_models import both
from ..tiny import NO_DROPOUT, tiny_model

MASK = torch.tensor([[1] * 4 + [0] * 5, [1] * 6 + [0] * 3, [1] * 9])
IDS = torch.arange(4, 31).view(3, 9) * MASK
BATCH = {"input_ids": IDS, "attention_mask": MASK}
POSITIONS = torch.arange(9).expand(3, 9)
#: Opacus takes the first dimension of whatever a layer reads for the batch.
ROWS = {"position_ids": POSITIONS}
SEGMENTS = ROWS | {"token_type_ids": torch.zeros_like(IDS)}
SENTENCES = {"labels": torch.tensor([0, 1, 2])}
TOKENS = {"labels": IDS.where(POSITIONS % 3 == 0, -100).where(POSITIONS < 4, -100)}


def gradients(model: nn.Module, **batch) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(**batch).loss.backward()
    found = {name: weight.grad for name, weight in model.named_parameters()}
    model.zero_grad()
    return found


def gradients_one_by_one(model: nn.Module, **batch) -> dict[str, torch.Tensor]:
    found = [gradients(model, **{name: values[row : row + 1] for name, values in batch.items()}) for row in range(3)]
    return {name: torch.stack([each[name] for each in found]) for name in found[0]}


@pytest.mark.parametrize(
    ("name", "layers", "target"),
    [
        ("BertForSequenceClassification", ("bert.encoder.layer.0", "model.layers.0"), 1),
        ("LlamaForSequenceClassification", ("model.embed_tokens", "model.embeddings"), 1),
        ("BartModel", ("decoder.layers.0", "decoder.layers.0"), (2, 5)),
    ],
)
def test_attributions_of_layers(name, layers, target):
    """The gradients at a layer's output, integrated from a baseline, on a ragged batch."""
    found, options = [], {"baselines": IDS.where(MASK == 0, 7), "target": target, "n_steps": 4}
    for model, layer in zip(both(name), layers, strict=True):
        call = partial(lambda model, ids, mask: model(input_ids=ids, attention_mask=mask)[0], model)
        attributed = LayerIntegratedGradients(call, model.get_submodule(layer))
        found.append(attributed.attribute(IDS, **options, additional_forward_args=MASK)[MASK == 1])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)
    assert found[0].norm() > 0


@pytest.mark.parametrize(
    ("name", "more", "options"),
    [
        ("BertForSequenceClassification", SEGMENTS | SENTENCES, {}),
        ("LlamaForCausalLM", ROWS | TOKENS, {}),
        ("BertForMaskedLM", SEGMENTS | TOKENS, {"return_logits": False}),
        # Opacus finds others than there are for Marian's shared embeddings.
        (TfmEncoderDecoderForConditionalGeneration, {"labels": IDS[2:].repeat(3, 1)}, {}),
    ],
)
def test_opacus_finds_the_gradient_of_each_example(name, more, options):
    batch = BATCH | more
    model = both(name)[1] if isinstance(name, str) else tiny_model(name, **NO_DROPOUT)
    wanted = gradients_one_by_one(model.train(), **batch)
    GradSampleModule(model, loss_reduction="mean")(**batch, **options).loss.backward()
    found = {name: weight.grad_sample for name, weight in model.named_parameters()}
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["BertForMaskedLM", "LlamaForCausalLM", "MarianMTModel"])
def test_gradients_as_functions(name):
    """Of a ragged batch, and of each example (without a mask, but for an encoder-decoder, which makes one of ids)."""
    model = both(name)[1].train()
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(values, batch):
        return functional_call(model, values, kwargs=batch).loss

    batch = BATCH | {"labels": TOKENS["labels"].where(POSITIONS > 0, 7)}
    torch.testing.assert_close(grad(loss)(parameters, batch), gradients(model, **batch))
    if not model.config.is_encoder_decoder:
        del batch["attention_mask"]
        found = vmap(grad(loss), in_dims=(None, 0))(parameters, {key: values[:, None] for key, values in batch.items()})
        torch.testing.assert_close(found, gradients_one_by_one(model, **batch))


def test_gradients_as_functions_where_attention_drops():
    model = tiny_model(TfmEncoderDecoderForConditionalGeneration, **NO_DROPOUT | {"attention_dropout": 0.5}).train()
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    batch = dict.fromkeys(("input_ids", "labels"), POSITIONS + 4)  # (where there is padding, they are drawn otherwise)
    torch.manual_seed(0)
    wanted = gradients(model, **batch)
    torch.manual_seed(0)
    found = grad(lambda values: functional_call(model, values, kwargs=batch).loss)(parameters)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", ["BertForMaskedLM", "LlamaForCausalLM", "MarianMTModel"])
def test_gradient_penalty(name):
    """A gradient that is differentiated again, in training mode on a ragged batch."""
    found, embeddings = [], torch.randn(3, 9, 32, requires_grad=True)
    for model in both(name, attn_implementation="eager"):  # (torch's fused kernel has no second derivative)
        loss = model.train()(inputs_embeds=embeddings, attention_mask=MASK, **TOKENS).loss
        (gradient,) = torch.autograd.grad(loss, embeddings, create_graph=True)
        model.zero_grad()
        gradient.square().sum().backward()
        found.append(torch.stack([each.grad.norm() for each in model.parameters() if each.grad is not None]).norm())
    torch.testing.assert_close(*found, rtol=1e-4, atol=0)
