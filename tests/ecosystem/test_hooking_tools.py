"""captum and Opacus, which hook submodules, find for a converted model what they find for the official one."""

from functools import partial

import pytest
import torch
from captum.attr import IntegratedGradients, LayerIntegratedGradients, Saliency
from opacus import GradSampleModule, PrivacyEngine
from torch import nn

from tfm_zoo import TfmBertForMaskedLM, TfmEncoderDecoderForConditionalGeneration, from_official

from ..official_models import BY_NAME, build_tiny
from ..tiny import NO_DROPOUT, tiny_model

MASK = torch.tensor([[1] * 4 + [0] * 5, [1] * 6 + [0] * 3, [1] * 9])
IDS = torch.arange(4, 31).view(3, 9) * MASK
LAYER, DECODER_LAYER = "model.layers.0", "model.decoder.layers.0"
POSITIONS = torch.arange(9).expand(3, 9)  # Opacus takes the first dimension of whatever a layer reads for the batch


@pytest.fixture
def both() -> tuple[nn.Module, nn.Module]:
    official = build_tiny(BY_NAME["BertForSequenceClassification"])
    return official, from_official(official)


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("BertForSequenceClassification", [("bert.embeddings", "model.embeddings"), ("bert.encoder.layer.0", LAYER)]),
        ("LlamaForSequenceClassification", [("model.embed_tokens", "model.embeddings"), ("model.layers.0", LAYER)]),
        ("MarianMTModel", [("model.encoder.layers.0", "model.encoder.layers.0"), (DECODER_LAYER, DECODER_LAYER)]),
    ],
)
def test_attributions_of_layers(name, layers):
    """The gradients at a layer's output, integrated from a baseline, on a ragged batch."""
    official, has_target = build_tiny(BY_NAME[name]), name.startswith("Marian")

    def logits(model, ids, mask):
        target = {"decoder_input_ids": IDS[:1, :3].expand(len(ids), -1)} if has_target else {}
        return model(input_ids=ids, attention_mask=mask, **target).logits

    for pair in layers:
        wanted, found = (
            LayerIntegratedGradients(partial(logits, model), model.get_submodule(layer)).attribute(
                IDS,
                baselines=IDS.where(MASK == 0, 7),
                additional_forward_args=MASK,
                target=(2, 5) if has_target else 1,
                n_steps=4,
            )
            for model, layer in zip((official, from_official(official)), pair, strict=True)
        )
        seen = torch.ones(3, 3) if "decoder" in pair[0] else MASK
        torch.testing.assert_close(found[seen == 1], wanted[seen == 1], rtol=1e-4, atol=1e-6)
        assert found[seen == 1].norm() > 0


@pytest.mark.parametrize("method", [Saliency, IntegratedGradients])
def test_attributions_of_embeddings(method, both):
    found = []
    for model in both:
        embeddings = model.get_input_embeddings()(IDS).detach()
        scores = method(lambda states, mask, model=model: model(inputs_embeds=states, attention_mask=mask).logits)
        found.append(scores.attribute(embeddings, target=1, additional_forward_args=(MASK,)))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)


def gradients_of_examples(model: nn.Module, **batch) -> dict[str, torch.Tensor]:
    """Opacus's `(batch, ...)` gradient of each parameter."""
    wrapped = GradSampleModule(model.train(), loss_reduction="mean")
    wrapped(**batch).loss.backward()
    return {name: weight.grad_sample for name, weight in model.named_parameters()}


def gradients_one_by_one(model: nn.Module, **batch) -> dict[str, torch.Tensor]:
    found = []
    for index in range(3):
        model.zero_grad()
        model(**{name: values[index : index + 1] for name, values in batch.items()}).loss.backward()
        found.append({name: weight.grad for name, weight in model.named_parameters()})
    model.zero_grad()
    return {name: torch.stack([gradients[name] for gradients in found]) for name in found[0]}


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("BertForSequenceClassification", torch.tensor([0, 1, 2])),
        ("LlamaForSequenceClassification", torch.tensor([0, 1, 2])),
        ("LlamaForCausalLM", IDS.where(POSITIONS % 3 == 0, -100).where(POSITIONS < 4, -100)),
    ],
)
def test_gradients_of_each_example(name, labels):
    batch = {"input_ids": IDS, "attention_mask": MASK, "position_ids": POSITIONS, "labels": labels}
    if name.startswith("Bert"):
        batch["token_type_ids"] = torch.zeros_like(IDS)
    official = build_tiny(BY_NAME[name])
    zoo, wanted = from_official(official).train(), gradients_one_by_one(official.train(), **batch)
    one_by_one = gradients_one_by_one(zoo, **batch)
    for model, right in ((official, wanted), (zoo, one_by_one)):
        torch.testing.assert_close(gradients_of_examples(model, **batch), right, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"return_logits": False}])
@pytest.mark.parametrize("head", [TfmBertForMaskedLM, TfmEncoderDecoderForConditionalGeneration])
def test_gradients_of_each_example_where_official_classes_have_none(head, options):
    """Opacus fails on BERT's and BART's, and finds others than there are for Marian's shared embeddings."""
    model = tiny_model(head, **NO_DROPOUT).train()
    batch = {"input_ids": IDS, "attention_mask": MASK, "labels": IDS.where(POSITIONS < 3, -100)}
    if head is TfmBertForMaskedLM:
        batch |= {"position_ids": POSITIONS, "token_type_ids": IDS * 0}
    else:
        batch["labels"] = IDS[2:].repeat(3, 1)
    wanted = gradients_one_by_one(model, **batch)
    torch.testing.assert_close(gradients_of_examples(model, **batch, **options), wanted, rtol=1e-3, atol=1e-5)


def test_private_training(both):
    """A step of Opacus's engine without noise moves both models alike."""
    labels, batch = torch.tensor([0, 1, 2]), {"input_ids": IDS, "attention_mask": MASK, "position_ids": POSITIONS}
    logits = []
    for model in both:
        examples = torch.utils.data.TensorDataset(IDS)
        private, optimizer, _ = PrivacyEngine().make_private(
            module=model.train(),
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(examples, batch_size=3),
            noise_multiplier=0.0,
            max_grad_norm=0.5,
            poisson_sampling=False,
        )
        private(**batch, token_type_ids=IDS * 0, labels=labels).loss.backward()
        optimizer.step()
        logits.append(private.eval()(**batch, token_type_ids=IDS * 0).logits)
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-4, atol=1e-5)
    assert not logits[1].allclose(build_tiny(BY_NAME["BertForSequenceClassification"])(**batch).logits, atol=1e-4)
