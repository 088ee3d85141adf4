"""The classifier of sequences: one module that serving engines run by itself, and the names of its tensors.

Version 0.1 had the dense layer in a pooler of the base model; `tests/hub/test_earlier_versions.py` has its checkpoints.
"""

import pytest
import torch
from safetensors import safe_open
from torch import nn
from transformers import AutoModelForSequenceClassification

import tfm_zoo
from tfm_zoo import TfmBertForPreTraining, TfmBertForSequenceClassification, TfmBertModel, TfmBertPreTrainedModel

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
            scores = states @ model.model.pooler_query.weight.T
            real = scores.masked_fill(real == 0, -torch.inf).softmax(dim=1)
        pooled = states[:, 0] if pooling == "cls" else (states * real).sum(1) / real.sum(1)
        logits = model(**batch).logits
        for given in (pooled, pooled.unsqueeze(1)):  # as vLLM calls it
            assert_same(model.classifier(given), logits, side)
        assert model.model.pooler is None and model.base_model(**batch).pooler_output is None


def test_engines_make_it_on_the_meta_device():
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(tiny_config(num_labels=3))
    assert model.classifier(torch.empty(2, 1, 32, device="meta")).shape == (2, 3)


@pytest.mark.parametrize("shards", [{}, {"max_shard_size": "10KB"}])
def test_old_names_load_and_new_ones_are_saved(model, shards, tmp_path):
    """A caller's own names go with the old ones; as in transformers, a save gives these back."""
    tensors = named_as_in_0_1(model.state_dict())
    model.save_pretrained(tmp_path / "old", state_dict=tensors, **shards)
    tensors = {name.replace("model.layers.", "model.blocks."): tensor for name, tensor in tensors.items()}
    model.save_pretrained(tmp_path / "blocks", state_dict=tensors, **shards)
    assert (tmp_path / "old" / "model.safetensors.index.json").exists() == bool(shards)
    for folder, options in (("old", {}), ("blocks", {"key_mapping": {r"\.blocks\.": ".layers."}})):
        assert {"model.pooler.dense.weight", "classifier.bias"} < saved_names(tmp_path / folder)
        loaded, loading = AutoModelForSequenceClassification.from_pretrained(
            tmp_path / folder, output_loading_info=True, **options
        )
        assert not any(loading.values())
        assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
        loaded.save_pretrained(tmp_path / "new", **shards)
        assert saved_names(tmp_path / "new") > NEW
        assert folder == "old" or "model.blocks.0.self_attn.q_proj.weight" in saved_names(tmp_path / "new")
        again, loading = type(model).from_pretrained(tmp_path / "new", output_loading_info=True, **options)
        assert not any(loading.values())
        assert torch.equal(again.classifier.dense.weight, model.classifier.dense.weight)


@pytest.mark.parametrize("head", [TfmBertModel, TfmBertForPreTraining, tfm_zoo.TfmBertForMultipleChoice])
def test_a_classifier_and_a_pooler_take_each_others_place(model, head, tmp_path):
    """By the old names and by the new."""
    source = tiny_model(head)
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
        other.save_pretrained(tmp_path / "other")
        assert saved_names(tmp_path / "other") <= other.state_dict().keys()


@pytest.mark.parametrize("prefix", ["", "0."], ids=["itself", "wrapped"])
def test_a_run_that_resumes_loads_old_names(model, prefix):
    """Trainer and Accelerate call `load_state_dict`, perhaps of a wrapper."""
    wrapper = nn.Sequential(model) if prefix else model
    wanted = {name: torch.randn_like(tensor) for name, tensor in model.state_dict().items()}
    for tensors in (named_as_in_0_1(wanted), wanted):
        with torch.no_grad():
            model.classifier.dense.weight.zero_()
        wrapper.load_state_dict({prefix + name: tensor for name, tensor in tensors.items()})
        assert all(torch.equal(tensor, wanted[name]) for name, tensor in model.state_dict().items())


class UserHead(TfmBertPreTrainedModel):
    """A head like RoBERTa's beside a pooler."""

    def __init__(self, config):
        super().__init__(config)
        self.model = TfmBertModel(config)
        self.classifier = nn.ModuleDict({"dense": nn.Linear(32, 32), "out_proj": nn.Linear(32, 2)})
        self.post_init()


def test_tensors_that_a_user_has_named_so_stay():
    """In a head of one's own, where a classifier was replaced, and where it is a part of something larger."""
    replaced = tiny_model(TfmBertForSequenceClassification)
    replaced.classifier = nn.Linear(32, 2)
    whole = nn.ModuleDict({"first": tiny_model(TfmBertForSequenceClassification), "pooler": nn.Linear(2, 2)})
    for model in (UserHead(tiny_config()), replaced, whole):
        assert model.load_state_dict(model.state_dict()).missing_keys == []
    assert UserHead.other_names == {}
