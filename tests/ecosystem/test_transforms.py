"""`torch.func`: gradients as functions, of batches and of examples; second derivatives; double precision."""

import pytest
import torch
from torch.func import functional_call, grad, vmap

from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmEncoderDecoderForConditionalGeneration,
    TfmGPTForCausalLM,
    from_official,
)
from tfm_zoo.models.kernels import eager_attention_forward

from ..official_models import BY_NAME, build_tiny
from ..tiny import NO_DROPOUT, ragged_batch, tiny_model

HEADS = [TfmBertForMaskedLM, TfmGPTForCausalLM, TfmEncoderDecoderForConditionalGeneration]


def loss_of(model):
    """The loss as a function of the parameters, and the parameters."""
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    return lambda values, batch: functional_call(model, values, kwargs=batch).loss, parameters


def gradients(model, batch) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(**batch).loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("head", HEADS)
def test_gradient_of_a_loss(head):
    model, batch = tiny_model(head, **NO_DROPOUT).train(), ragged_batch(head, labels=True)
    loss, parameters = loss_of(model)
    torch.testing.assert_close(grad(loss)(parameters, batch), gradients(model, batch))


@pytest.mark.parametrize("head", [TfmBertForMaskedLM, TfmGPTForCausalLM])
def test_gradients_of_each_example(head):
    model, batch = tiny_model(head, **NO_DROPOUT).train(), ragged_batch(head, labels=True)
    batch.pop("attention_mask", None)
    loss, parameters = loss_of(model)
    examples = {name: values[:, None] for name, values in batch.items()}
    found = vmap(grad(loss), in_dims=(None, 0))(parameters, examples)
    for index in range(2):
        wanted = gradients(model, {name: values[index : index + 1] for name, values in batch.items()})
        torch.testing.assert_close({name: values[index] for name, values in found.items()}, wanted)


def length(gradients: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.stack([gradient.norm() for gradient in gradients.values()]).norm()


@pytest.mark.parametrize("name", ["BertForMaskedLM", "LlamaForCausalLM", "MarianMTModel"])
def test_gradients_of_official_classes(name):
    """Of a batch, and of each of its examples (but for an encoder-decoder, whose mask is made of the ids)."""
    official = build_tiny(BY_NAME[name])
    batch = {"input_ids": torch.arange(4, 22).view(3, 6), "labels": torch.arange(7, 25).view(3, 6)}
    examples, found = {name: values[:, None] for name, values in batch.items()}, []
    for model in (official.train(), from_official(official).train()):
        loss, parameters = loss_of(model)
        found.append([length(grad(loss)(parameters, batch))])
        if not model.config.is_encoder_decoder:
            found[-1].append(length(vmap(grad(loss), in_dims=(None, 0))(parameters, examples)))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=0)


def test_dropout_of_attention_under_a_gradient():
    """The attention with dropout of its own steps aside, and torch's takes its place."""
    model, batch = (
        tiny_model(TfmGPTForCausalLM, attention_dropout=0.5).train(),
        ragged_batch(TfmGPTForCausalLM, labels=True),
    )
    loss, parameters = loss_of(model)
    assert all(value.isfinite().all() for value in grad(loss)(parameters, batch).values())


@pytest.mark.parametrize(
    "name", ["BertForSequenceClassification", "BertForMaskedLM", "LlamaForCausalLM", "MarianMTModel"]
)
def test_gradient_penalty(name):
    """A gradient that is differentiated again, in training mode on a ragged batch: as of the official class without
    dropout, and with dropout (drawn in another order there) of sdpa as of eager attention."""

    def penalty(model) -> torch.Tensor:
        torch.manual_seed(0)
        ids = torch.arange(4, 31).view(3, 9)
        mask = (torch.arange(9) < torch.tensor([[4], [6], [9]])).long()
        labels = torch.tensor([0, 1, 2]) if "Sequence" in name else ids.where(mask == 1, -100)
        embeddings = torch.randn(3, 9, 32, requires_grad=True)
        target = {"decoder_input_ids": ids} if "Marian" in name else {}
        loss = model.train()(inputs_embeds=embeddings, attention_mask=mask, labels=labels, **target).loss
        (gradient,) = torch.autograd.grad(loss, embeddings, create_graph=True)
        model.zero_grad()
        gradient.square().sum().backward()
        return torch.stack([weight.grad.norm() for weight in model.parameters() if weight.grad is not None]).norm()

    official, dropping = build_tiny(BY_NAME[name]), build_tiny(BY_NAME[name], dropout=True)
    zoo, zoo_dropping = from_official(official), from_official(dropping)
    assert penalty(dropping) > 0
    fused = penalty(zoo_dropping)
    for model in (official, zoo, zoo_dropping):  # (torch's fused kernel, without dropout, has no second derivative)
        model.set_attn_implementation("eager")
    torch.testing.assert_close(penalty(zoo), penalty(official), rtol=1e-4, atol=0)
    torch.testing.assert_close(fused, penalty(zoo_dropping), rtol=1e-4, atol=0)


def test_double_precision():
    """Half precision is promoted to float32; float64 is left alone."""
    attention = tiny_model(TfmBertForMaskedLM, **NO_DROPOUT).model.layers[0].self_attn
    query, key, value = torch.randn(3, 2, 4, 5, 8, dtype=torch.double).unbind()
    wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
    output, weights = eager_attention_forward(attention, query, key, value, None, scaling=8**-0.5)
    torch.testing.assert_close(output, wanted, rtol=1e-12, atol=1e-12)
    assert weights.dtype == torch.double

    official = build_tiny(BY_NAME["BertModel"]).double()
    ids, outputs = torch.arange(4, 22).view(3, 6), []
    for model in (official, from_official(official)):
        model.set_attn_implementation("eager")
        outputs.append(model.double()(ids).last_hidden_state)
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-11, atol=1e-11)
