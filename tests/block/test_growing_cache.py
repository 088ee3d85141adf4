"""The cache that copies less holds what transformers' own holds."""

import copy

import pytest
import torch
from transformers import DynamicCache

from tfm_zoo import TfmGPTConfig
from tfm_zoo.models.cache import TfmGrowingLayer, use_own_layers

from ..precision import assert_same
from ..tiny import tiny_config, tiny_decoder

pytestmark = pytest.mark.usefixtures("double")


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch):
    """The tiny tensors of these tests are not copied, as small ones otherwise are."""
    monkeypatch.setattr("tfm_zoo.models.cache.SMALL", 1)


def states(length: int, seed: int, batch: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(batch, 3, length, 4, generator=generator) for _ in range(2))


CHANGES = {"crop": (-2,), "reorder_cache": (torch.tensor([1, 1]),), "batch_repeat_interleave": (2,), "reset": ()}
CHANGES["batch_select_indices"] = (torch.tensor([1]),)


@pytest.mark.parametrize("change", CHANGES)
def test_a_growing_layer_holds_what_a_dynamic_one_does(change):
    """After a change too, and after a hundred steps; keys that somebody kept before are not written over."""
    mine, its = TfmGrowingLayer(), DynamicCache(config=tiny_config(TfmGPTConfig, use_cache=True)).layers[0]
    for layer in (mine, its):
        layer.update(*states(4, 0))
        layer.update(*states(2, 1))
    kept, before = mine.keys, mine.keys.clone()
    for layer in (mine, its):
        getattr(layer, change)(*CHANGES[change])
    batch = 2 if its.keys is None else len(its.keys)
    for step in range(1, 100):
        assert all(map(torch.equal, *[layer.update(*states(1, step, batch)) for layer in (mine, its)]))
        assert torch.equal(mine.keys, its.keys) and torch.equal(mine.values, its.values)
        assert mine.get_seq_length() == its.get_seq_length()
    assert kept.equal(before)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_copies_of_a_cache_grow_apart_in_whatever_mode_it_was_filled(mode):
    first = TfmGrowingLayer()
    with mode():
        first.update(*states(4, 0))
        first.update(*states(1, 1))
    layers = (first, copy.deepcopy(first))
    for seed, layer in enumerate(layers, start=2):
        layer.update(*states(1, seed))
    for seed, layer in enumerate(layers, start=2):
        assert layer.keys.equal(torch.cat([states(4, 0)[0], states(1, 1)[0], states(1, seed)[0]], dim=2))


def test_gradients_flow_through_a_cache():
    model, ids = tiny_decoder(), torch.arange(8).view(1, 8)
    cached = model(ids[:, :5], use_cache=True).past_key_values
    rest, whole = model(ids[:, 5:], past_key_values=cached).logits, model(ids).logits[:, 5:]
    weight = model.model.layers[0].self_attn.k_proj.weight
    assert_same(*(torch.autograd.grad(logits.sum(), weight) for logits in (rest, whole)))


def test_only_an_empty_dynamic_cache_is_made_to_grow():
    sliding = tiny_config(TfmGPTConfig, sliding_window=4, layer_types=["full_attention", "sliding_attention"])
    first, second = use_own_layers(DynamicCache(config=sliding), sliding).layers
    assert type(first) is TfmGrowingLayer and second.is_sliding
    offloaded = DynamicCache(config=sliding)
    # `DynamicCache(offloading=True)` makes a stream, which fails where torch is built for CUDA and there is no GPU.
    offloaded.offloading = True
    assert not isinstance(use_own_layers(offloaded, sliding).layers[0], TfmGrowingLayer)
