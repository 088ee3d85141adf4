"""The classifier of sequences: one module that serving engines run by itself, and the names of its tensors.

Version 0.1 had the dense layer in a pooler of the base model; `tests/hub/test_earlier_versions.py` has its checkpoints.
"""

import pytest
import torch
from torch import nn

import tfm_zoo
from tfm_zoo import TfmBertForSequenceClassification, TfmBertModel

from ..precision import assert_same
from ..tiny import ragged_batch, tiny_model

pytestmark = pytest.mark.usefixtures("double")


def named_as_in_0_1(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    for new, old in {"classifier.dense.": "model.pooler.dense.", "classifier.out_proj.": "classifier."}.items():
        tensors = {name.replace(new, old): tensor for name, tensor in tensors.items()}
    return tensors


@pytest.mark.parametrize("pooling", ["cls", "mean", "attention"])
@torch.no_grad()
def test_it_makes_logits_of_pooled_states(pooling):
    base = tiny_model(TfmBertModel, classifier_pooling=pooling, skip_padding=False)
    for side, dense in (("right", True), ("left", False)):
        fields = {"classifier_pooling": pooling, "classifier_dense": dense, "num_labels": 3}
        model, batch = tiny_model(TfmBertForSequenceClassification, **fields), ragged_batch(side=side)
        base.load_state_dict(model.model.state_dict(), strict=False)
        states, real = base(**batch).last_hidden_state, batch["attention_mask"].unsqueeze(-1)
        if pooling == "attention":
            real = (states @ model.model.pooler_query.weight.T).masked_fill(real == 0, -torch.inf).softmax(dim=1)
        pooled = states[:, 0] if pooling == "cls" else (states * real).sum(1) / real.sum(1)
        logits = model(**batch).logits
        for given in (pooled, pooled.unsqueeze(1)):  # as vLLM calls it
            assert_same(model.classifier(given), logits, side)
        masks = (None, torch.ones_like(batch["attention_mask"]))  # which say the same
        assert_same(*(model(**batch | {"attention_mask": mask}).logits for mask in masks))
        assert model.model.pooler is None and model.base_model(**batch).pooler_output is None


@pytest.mark.parametrize("head", [TfmBertModel, tfm_zoo.TfmBertForMultipleChoice])
def test_a_classifier_and_a_pooler_take_each_others_place(head, tmp_path):
    """By the old names and by the new."""
    model, source = tiny_model(TfmBertForSequenceClassification, num_labels=3), tiny_model(head)
    source.save_pretrained(tmp_path / "source")
    made, loading = TfmBertForSequenceClassification.from_pretrained(
        tmp_path / "source", output_loading_info=True, ignore_mismatched_sizes=True
    )
    assert loading["missing_keys"] <= {"classifier.out_proj.weight", "classifier.out_proj.bias"}
    assert torch.equal(made.classifier.dense.weight, source.base_model.pooler.dense.weight)
    for state in (model.state_dict(), named_as_in_0_1(model.state_dict())):
        model.save_pretrained(tmp_path / "classifier", state_dict=state)
        other = head.from_pretrained(tmp_path / "classifier", ignore_mismatched_sizes=True)
        for leaf in ("weight", "bias"):
            pooled, dense = (getattr(layer.dense, leaf) for layer in (other.base_model.pooler, model.classifier))
            assert torch.equal(pooled, dense)


def test_a_run_that_resumes_loads_old_names():
    """Trainer and Accelerate call `load_state_dict`, perhaps of a wrapper."""
    model = tiny_model(TfmBertForSequenceClassification, num_labels=3)
    wanted = {name: torch.randn_like(tensor) for name, tensor in model.state_dict().items()}
    for prefix, wrapper in (("", model), ("0.", nn.Sequential(model))):
        for tensors in (named_as_in_0_1(wanted), wanted):
            model.classifier.dense.weight.data.zero_()
            wrapper.load_state_dict({prefix + name: tensor for name, tensor in tensors.items()})
            assert all(torch.equal(tensor, wanted[name]) for name, tensor in model.state_dict().items())


def test_tensors_that_a_user_has_named_so_stay():
    """Where a classifier was replaced, and where it is a part of something larger."""
    replaced = tiny_model(TfmBertForSequenceClassification)
    replaced.classifier = nn.Linear(32, 2)
    whole = nn.ModuleDict({"first": tiny_model(TfmBertForSequenceClassification), "pooler": nn.Linear(2, 2)})
    for model in (replaced, whole):
        assert model.load_state_dict(model.state_dict()).missing_keys == []
