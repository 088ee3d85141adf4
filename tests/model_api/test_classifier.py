"""The classifier of sequences: one module that serving engines run by itself, and the names of its tensors.

Version 0.1 had the dense layer in a pooler of the base model; `tests/hub/test_earlier_versions.py` has its checkpoints.
"""

import pytest
import torch
from safetensors import safe_open
from torch import nn
from transformers import AutoModelForSequenceClassification

import tfm_zoo
from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmBertForPreTraining,
    TfmBertForSequenceClassification,
    TfmBertModel,
    TfmBertPreTrainedModel,
)

from ..precision import assert_same
from ..tiny import ragged_batch, tiny_config, tiny_model

pytestmark = pytest.mark.usefixtures("double")

NEW = {f"classifier.{layer}.{leaf}" for layer in ("dense", "out_proj") for leaf in ("weight", "bias")}


def named_as_in_0_1(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    names = {"classifier.dense.": "model.pooler.dense.", "classifier.out_proj.": "classifier."}
    for new, old in names.items():
        tensors = {name.replace(new, old): tensor for name, tensor in tensors.items()}
    return tensors


def saved_names(folder) -> set[str]:
    return {name for file in folder.glob("*.safetensors") for name in safe_open(file, "pt").keys()}  # noqa: SIM118


@pytest.fixture
def model():
    return tiny_model(TfmBertForSequenceClassification, num_labels=3)


@pytest.fixture
def old_folder(model, tmp_path):
    folder = tmp_path / "old"
    model.save_pretrained(folder, state_dict=named_as_in_0_1(model.state_dict()))
    assert {"model.pooler.dense.weight", "classifier.bias"} < saved_names(folder)
    return folder


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "attention"])
@pytest.mark.parametrize("dense", [True, False])
@torch.no_grad()
def test_it_makes_logits_of_pooled_states(pooling, dense, side):
    fields = {"classifier_pooling": pooling, "classifier_dense": dense, "num_labels": 3}
    model = tiny_model(TfmBertForSequenceClassification, **fields)
    batch = ragged_batch(TfmBertForSequenceClassification, side)
    base = tiny_model(TfmBertModel, classifier_pooling=pooling, skip_padding=False)
    base.load_state_dict(model.model.state_dict(), strict=False)
    states, real = base(**batch).last_hidden_state, batch["attention_mask"].unsqueeze(-1)
    if pooling == "attention":
        scores = states @ model.model.pooler_query.weight.T
        real = scores.masked_fill(real == 0, -torch.inf).softmax(dim=1)
    pooled = states[:, 0] if pooling == "cls" else (states * real).sum(1) / real.sum(1)
    logits = model(**batch).logits
    assert_same(model.classifier(pooled.unsqueeze(1)), logits)  # as vLLM calls it
    assert_same(model.classifier(pooled), logits)
    assert model.model.pooler is None and model.base_model(**batch).pooler_output is None


def test_engines_make_it_on_the_meta_device():
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(tiny_config(num_labels=3))
    assert model.classifier(torch.empty(2, 1, 32, device="meta")).shape == (2, 3)


@pytest.mark.parametrize("shards", [{}, {"max_shard_size": "10KB"}])
@pytest.mark.parametrize("auto_class", [TfmBertForSequenceClassification, AutoModelForSequenceClassification])
def test_old_names_load_and_new_ones_are_saved(model, auto_class, shards, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    model.save_pretrained(old, state_dict=named_as_in_0_1(model.state_dict()), **shards)
    assert (old / "model.safetensors.index.json").exists() == bool(shards)
    assert not NEW & saved_names(old)
    loaded, loading = auto_class.from_pretrained(old, output_loading_info=True)
    assert not any(loading.values())
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    loaded.save_pretrained(new, **shards)
    assert saved_names(new) == model.state_dict().keys() > NEW
    again, loading = auto_class.from_pretrained(new, output_loading_info=True)
    assert not any(loading.values())
    assert torch.equal(again.classifier.dense.weight, model.classifier.dense.weight)


def test_a_callers_own_names_go_with_the_old_ones(model, tmp_path):
    """As in transformers, a save gives the caller's names back."""
    tensors = named_as_in_0_1(model.state_dict())
    tensors = {name.replace("model.layers.", "model.blocks."): tensor for name, tensor in tensors.items()}
    model.save_pretrained(tmp_path / "blocks", state_dict=tensors)
    options = {"key_mapping": {r"\.blocks\.": ".layers."}, "output_loading_info": True}
    loaded, loading = TfmBertForSequenceClassification.from_pretrained(tmp_path / "blocks", **options)
    assert not any(loading.values())
    loaded.save_pretrained(tmp_path / "again")
    assert "model.blocks.0.self_attn.q_proj.weight" in saved_names(tmp_path / "again") > NEW


@pytest.mark.parametrize("head", [TfmBertModel, TfmBertForPreTraining])
def test_a_new_classifier_begins_with_the_pooler(head, tmp_path):
    source = tiny_model(head)
    source.save_pretrained(tmp_path)
    model, loading = TfmBertForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert loading["missing_keys"] == {"classifier.out_proj.weight", "classifier.out_proj.bias"}
    assert torch.equal(model.classifier.dense.weight, source.base_model.pooler.dense.weight)


@pytest.mark.parametrize(
    "head", [TfmBertModel, TfmBertForPreTraining, tfm_zoo.TfmBertForMultipleChoice, TfmBertForMaskedLM]
)
@pytest.mark.parametrize("names", ["old", "new"])
def test_other_heads_take_the_pooler_of_a_classifier(model, old_folder, head, names, tmp_path):
    model.save_pretrained(tmp_path / "new")
    other = head.from_pretrained(tmp_path / names, ignore_mismatched_sizes=True)
    if head is TfmBertForMaskedLM:
        assert other.model.pooler is None
    else:
        assert torch.equal(other.base_model.pooler.dense.weight, model.classifier.dense.weight)
        assert torch.equal(other.base_model.pooler.dense.bias, model.classifier.dense.bias)
    other.save_pretrained(tmp_path / "other")
    assert saved_names(tmp_path / "other") <= other.state_dict().keys()


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_run_that_resumes_loads_old_names(model, wrapped):
    """Trainer and Accelerate call `load_state_dict`, perhaps of a wrapper."""
    wrapper = nn.Sequential(model) if wrapped else model
    prefix = "0." if wrapped else ""
    wanted = {name: torch.randn_like(tensor) for name, tensor in model.state_dict().items()}
    for tensors in (named_as_in_0_1(wanted), wanted):
        with torch.no_grad():
            model.classifier.dense.weight.zero_()
        wrapper.load_state_dict({prefix + name: tensor for name, tensor in tensors.items()})
        assert all(torch.equal(tensor, wanted[name]) for name, tensor in model.state_dict().items())


def test_names_of_a_larger_model_stay():
    """Only the tensors of the classifier are renamed when it is a part of a user's module."""
    whole = nn.ModuleDict({"first": tiny_model(TfmBertForSequenceClassification), "pooler": nn.Linear(2, 2)})
    assert whole.load_state_dict(whole.state_dict()).missing_keys == []


def test_tensors_that_a_user_has_named_so_stay():
    """A head like RoBERTa's beside a pooler, and a classifier that was replaced."""

    class UserHead(TfmBertPreTrainedModel):
        def __init__(self, config):
            super().__init__(config)
            self.model = TfmBertModel(config)
            self.classifier = nn.ModuleDict({"dense": nn.Linear(32, 32), "out_proj": nn.Linear(32, 2)})
            self.post_init()

    head = UserHead(tiny_config())
    assert UserHead.other_names == {}
    assert head.load_state_dict(head.state_dict()).missing_keys == []
    replaced = tiny_model(TfmBertForSequenceClassification)
    replaced.classifier = nn.Linear(32, 2)
    assert replaced.load_state_dict(replaced.state_dict()).missing_keys == []
