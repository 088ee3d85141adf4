"""Two models side by side: the first layer that differs is named, and what it does otherwise."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import tfm_zoo
from tfm_zoo import compare
from tfm_zoo.proof.side_by_side import hints_of_calls

from .. import tutorials
from ..official_models import BY_NAME, both, build_tiny

IDS = torch.arange(1, 19).view(2, 9)
MASK = (torch.arange(9) < torch.tensor([9, 5])[:, None]).long()
BATCH = {"input_ids": IDS, "attention_mask": MASK}
OF_TUTORIAL = (IDS, torch.zeros_like(IDS), MASK)


def test_the_zoo_and_the_official_class():
    """Of other names, and without padding in the zoo's layers; and one that skips padding itself."""
    official, model = both("BertModel")
    comparison = compare(official, tfm_zoo.speed_up(deepcopy(official)), BATCH)
    assert comparison.first is None and "embeddings.position_embeddings" in {step.one for step in comparison.steps}
    comparison = compare(official, model, BATCH)
    assert comparison.first is None and len(comparison.steps) == 3 + 2  # layers, what they are given, the output
    model.layers[1].mlp.act_fn = nn.ReLU()
    comparison = compare(official, model, BATCH)
    assert (comparison.first.one, comparison.first.other) == ("encoder.layer.1", "layers.1")
    assert "one calls silu, the other relu" in comparison.hints
    (line,) = (line for line in str(comparison).splitlines() if "<- differs first" in line)
    assert "encoder.layer.1 / layers.1" in line


def test_packed_products():
    official = build_tiny(BY_NAME["BertModel"], hidden_act="gelu")
    packed = tfm_zoo.pack_weights(tfm_zoo.from_official(official), "float32")
    assert type(packed.layers[1].mlp.act_fn) is nn.Identity
    nn.init.normal_(official.encoder.layer[1].output.dense.bias)
    comparison = compare(official, packed, BATCH)
    assert comparison.first.other == "layers.1" and comparison.hints == []
    (hint,) = compare(official, tfm_zoo.pack_weights(tfm_zoo.from_official(official), "int8"), BATCH).hints
    assert hint == "one multiplies by unrounded weights, the other by int8 weights, which are rounded"


def test_a_tutorial_in_which_somebody_changed_an_epsilon():
    model = tutorials.BERT()
    other = deepcopy(model)
    other.layers[1].norm2.eps = 0.1
    comparison = compare(model, other, OF_TUTORIAL)
    assert comparison.first.one == "layers.1.norm2"
    assert "one calls layer_norm(eps=1e-05), the other layer_norm(eps=0.1)" in comparison.hints[0]


def test_norms_in_another_place():
    """And one of two that has another epsilon. One that is written out in other functions does not show its own."""
    assert hints_of_calls(["layer_norm(eps=1)", "layer_norm(eps=2)"], ["layer_norm(eps=1)"])
    assert hints_of_calls(["rsqrt", "linear"], ["rms_norm(eps=1)", "linear"]) == []
    hints = hints_of_calls(["layer_norm", "linear"], ["linear", "layer_norm"])
    assert hints[0] == "one has its norms before its parts (pre-norm), the other after its parts (post-norm)"


def test_states_that_are_no_numbers():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4)) for _ in range(3)))
    other = deepcopy(model)
    nn.init.constant_(other[1][0].bias, torch.nan)
    assert compare(model, other, torch.ones(2, 3, 4)).first.one.startswith("1")
    assert compare(other, deepcopy(other), torch.ones(2, 3, 4)).first is None


def test_what_cannot_be_paired():
    with pytest.raises(ValueError, match="Models of 2 and 3 layers cannot be paired"):
        compare(tutorials.BERT(), tutorials.BERT(n_layers=3), OF_TUTORIAL)
