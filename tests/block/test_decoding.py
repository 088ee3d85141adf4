"""What makes decoding and training on a CPU fast changes nothing that is computed."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import ContinuousBatchingConfig, DynamicCache, GenerationConfig, StaticCache

from tfm_zoo import TfmGPTConfig, TfmGPTForCausalLM, quantize_int8
from tfm_zoo.models.attention_dropout import DroppedAttention
from tfm_zoo.models.cache import TfmGrowingLayer, grow_in_place
from tfm_zoo.models.losses import vocabulary_loss
from tfm_zoo.quantization import Int8Linear

from .. import tiny

SIZES = tiny.SIZES | {
    "max_position_embeddings": 200,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": None,
}


@pytest.fixture
def model() -> TfmGPTForCausalLM:
    torch.manual_seed(0)
    return TfmGPTForCausalLM(TfmGPTConfig(**SIZES)).eval()


def states(length: int, seed: int, batch: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(batch, 3, length, 4, generator=generator) for _ in range(2))


def both_layers() -> tuple[TfmGrowingLayer, object]:
    return TfmGrowingLayer(), DynamicCache(config=TfmGPTConfig(**SIZES)).layers[0]


def assert_same(mine: TfmGrowingLayer, its) -> None:
    assert mine.get_seq_length() == its.get_seq_length()
    assert torch.equal(mine.keys, its.keys) and torch.equal(mine.values, its.values)


def test_a_growing_layer_holds_what_a_dynamic_one_does():
    mine, its = both_layers()
    for step in range(150):
        for layer in (mine, its):
            keys, values = layer.update(*states(5 if step == 0 else 1, step))
        assert torch.equal(keys, its.keys) and torch.equal(values, its.values)
        assert_same(mine, its)


def test_a_growing_layer_does_not_move_what_it_holds():
    layer = TfmGrowingLayer()
    layer.update(*states(5, 0))
    places = {layer.update(*states(1, step))[0].data_ptr() for step in range(40)}
    assert len(places) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.crop(-2),
        lambda layer: layer.reorder_cache(torch.tensor([1, 1])),
        lambda layer: layer.batch_repeat_interleave(2),
        lambda layer: layer.batch_select_indices(torch.tensor([1])),
        lambda layer: layer.reset(),
    ],
    ids=["crop", "reorder", "repeat", "select", "reset"],
)
def test_a_growing_layer_after_a_change(change):
    mine, its = both_layers()
    for layer in (mine, its):
        layer.update(*states(6, 0))
        change(layer)
    batch = 2 if its.keys is None else len(its.keys)
    for step in range(3):
        for layer in (mine, its):
            layer.update(*states(1, step + 1, batch))
        assert_same(mine, its)


def test_keys_that_somebody_kept_are_not_written_over():
    layer = TfmGrowingLayer()
    kept, _ = layer.update(*states(6, 0))
    before = kept.clone()
    layer.crop(-3)
    layer.update(*states(2, 1))
    assert torch.equal(kept, before)


def test_copies_of_a_cache_grow_apart():
    first = TfmGrowingLayer()
    first.update(*states(4, 0))
    second = copy.deepcopy(first)
    first.update(*states(1, 1))
    second.update(*states(1, 2))
    assert torch.equal(first.keys[:, :, -1:], states(1, 1)[0])
    assert torch.equal(second.keys[:, :, -1:], states(1, 2)[0])


def test_a_cache_filled_in_inference_mode_goes_on_outside_it():
    layer = TfmGrowingLayer()
    with torch.inference_mode():
        layer.update(*states(4, 0))
        layer.update(*states(1, 1))
    keys, _ = layer.update(*states(1, 2))
    assert torch.equal(keys, torch.cat([states(4, 0)[0], states(1, 1)[0], states(1, 2)[0]], dim=2))


def test_gradients_flow_through_a_cache(model):
    ids = torch.arange(8).view(1, 8)
    cached = model(ids[:, :5], use_cache=True).past_key_values
    rest = model(ids[:, 5:], past_key_values=cached).logits.sum()
    whole = model(ids).logits[:, 5:].sum()
    weight = model.model.layers[0].self_attn.k_proj.weight
    (mine,), (its,) = torch.autograd.grad(rest, weight), torch.autograd.grad(whole, weight)
    assert (mine - its).norm() <= 1e-5 * its.norm()


def test_only_an_empty_dynamic_cache_is_made_to_grow():
    sliding = TfmGPTConfig(**SIZES, sliding_window=4, layer_types=["full_attention", "sliding_attention"])
    first, second = grow_in_place(DynamicCache(config=sliding)).layers
    assert type(first) is TfmGrowingLayer and first is not second and second.is_sliding
    offloaded = DynamicCache(config=sliding, offloading=True)
    assert not isinstance(grow_in_place(offloaded).layers[0], TfmGrowingLayer)


def test_dropped_attention_is_torchs():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 3, 5, 7, generator=generator, requires_grad=True)
    value = torch.randn(2, 3, 7, 4, generator=generator, requires_grad=True)
    results = []
    for attend in (DroppedAttention.apply, lambda s, v, p: F.dropout(s.softmax(dim=-1), p) @ v):
        torch.manual_seed(1)
        output = attend(scores, value, 0.3)
        results.append((output, *torch.autograd.grad(output.square().sum(), (scores, value))))
    for mine, its in zip(*results, strict=True):
        assert (mine - its).abs().max() < 1e-5


@pytest.mark.parametrize("fields", [{}, {"num_key_value_heads": 2}, {"sliding_window": 3}])
@pytest.mark.parametrize("padded", [False, True])
def test_training_with_dropout_is_that_of_eager_attention(fields, padded):
    """The same seed drops the same weights, whichever function attends."""
    rates = {"hidden_dropout": 0.0, "attention_dropout": 0.3}
    torch.manual_seed(0)
    model = TfmGPTForCausalLM(TfmGPTConfig(**SIZES, **rates, **fields)).train()
    ids = torch.randint(0, 61, (2, 9))
    mask = torch.ones_like(ids)
    mask[0, 6:] = 1 - padded
    results = []
    for implementation in ("eager", "sdpa"):
        model.set_attn_implementation(implementation)
        torch.manual_seed(1)
        loss = model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
        results.append((loss, torch.autograd.grad(loss, model.model.layers[0].self_attn.q_proj.weight)[0]))
    (loss, gradient), (other_loss, other_gradient) = results
    assert abs(loss - other_loss) <= 1e-6 * loss
    assert (gradient - other_gradient).norm() <= 1e-5 * gradient.norm()


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_cached_step_with_dropout_sees_all_that_came_before(implementation):
    """In training mode, with dropout so rare that it strikes nothing."""
    torch.manual_seed(0)
    config = TfmGPTConfig(**SIZES, hidden_dropout=0.0, attention_dropout=1e-12)
    model = TfmGPTForCausalLM(config).train()
    model.set_attn_implementation(implementation)
    ids = torch.arange(10).view(1, 10)
    whole = model(ids).logits
    for cache in (DynamicCache(config=config), StaticCache(config=config, max_cache_len=16)):
        for first, last in ((0, 7), (7, 9), (9, 10)):
            with torch.no_grad():
                step = model(ids[:, first:last], past_key_values=cache, use_cache=True).logits
            assert (step - whole[:, first:last]).abs().max() < 1e-4


def test_the_number_of_layers_can_be_changed_before_the_model_is_made():
    for layers in (1, 3):
        config = TfmGPTConfig(**SIZES)
        config.num_hidden_layers = layers
        model = TfmGPTForCausalLM(config).eval()
        ids = torch.arange(6).view(1, 6)
        assert len(model.model.layers) == layers == len(model(ids).past_key_values.layers)


def test_layers_that_are_alike_follow_what_is_changed_later(tmp_path):
    """As in the native configurations, where nothing else says which layers slide."""
    config = TfmGPTConfig(**SIZES)
    config.sliding_window = 4
    assert config.layer_types == ["sliding_attention"] * 2
    config.num_hidden_layers = 3
    model = TfmGPTForCausalLM(config).eval()
    model.model.layers = model.model.layers[:1]
    config.num_hidden_layers = 1
    model.save_pretrained(tmp_path)
    loaded = TfmGPTForCausalLM.from_pretrained(tmp_path)
    assert loaded.config.layer_types == ["sliding_attention"]
    config.sliding_window = None
    model = TfmGPTForCausalLM(config).eval()
    assert model.generate(torch.arange(6).view(1, 6), max_new_tokens=3).shape == (1, 9)
    mixed = TfmGPTConfig(**SIZES, sliding_window=4, layer_types=["full_attention", "sliding_attention"])
    mixed.sliding_window = 5
    assert mixed.layer_types == ["full_attention", "sliding_attention"]


def test_packed_sequences_do_not_see_each_other_in_evaluation_either(model):
    first, second = torch.arange(6).view(1, 6), torch.arange(10, 15).view(1, 5)
    positions = torch.cat([torch.arange(6), torch.arange(5)]).view(1, 11)
    packed = model(torch.cat([first, second], dim=1), position_ids=positions)
    assert packed.past_key_values is None
    apart = torch.cat([model(first).logits, model(second).logits], dim=1)
    assert (packed.logits - apart).abs().max() < 1e-5


def test_the_loss_is_the_same_with_logits_and_without(model):
    ids = torch.arange(12).view(2, 6)
    losses = [
        model(ids, labels=ids, **options).loss for options in ({}, {"return_logits": False}, {"logits_to_keep": 1})
    ]
    assert max(losses) - min(losses) < 1e-5


def test_continuous_batching_gives_what_generate_does(model):
    prompts = [[5, 6, 7, 8], [9, 10]]
    options = GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1, pad_token_id=0)
    sizes = ContinuousBatchingConfig(num_blocks=8, max_batch_tokens=64)
    batched = model.generate_batch(prompts, generation_config=options, continuous_batching_config=sizes)
    for prompt, result in zip(prompts, batched.values(), strict=True):
        ids = torch.tensor([prompt])
        expected = model.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0)[0, len(prompt) :]
        assert result.generated_tokens == expected.tolist()


def test_int8_projection_is_near_the_projection():
    torch.manual_seed(0)
    linear, inputs = nn.Linear(64, 33), torch.randn(3, 64)
    expected = linear(inputs)
    assert (Int8Linear(linear)(inputs) - expected).norm() < 0.02 * expected.norm()


def test_int8_model_speaks_but_is_not_saved(model, tmp_path):
    ids = torch.arange(12).view(2, 6)
    with torch.no_grad():
        expected = model(ids).logits
        quantized = quantize_int8(model)
        assert (quantized(ids).logits - expected).norm() < 0.1 * expected.norm()
    assert all(type(module) is not nn.Linear for module in quantized.modules())
    assert not any(parameter.requires_grad for parameter in quantized.parameters())
    assert quantized.generate(ids, max_new_tokens=5, pad_token_id=0).shape == (2, 11)
    with pytest.raises(ValueError, match="not saved"):
        quantized.save_pretrained(tmp_path / "int8")
    assert not (tmp_path / "int8").exists()


def test_int8_is_for_inference(model):
    with pytest.raises(ValueError, match="training mode"):
        quantize_int8(model.train())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("num_items", [None, 700])
def test_the_loss_is_summed_in_single_precision(dtype, num_items):
    """That of all logits at once, in every type, over more than one chunk; gradients too."""
    torch.manual_seed(0)
    head, labels = nn.Linear(16, 50, bias=False).to(dtype), torch.randint(0, 50, (1100,))
    labels[::7] = -100
    states = torch.randn(1100, 16, dtype=dtype, requires_grad=True)
    loss = vocabulary_loss(states, head, labels, num_items)
    expected = F.cross_entropy(head(states).float(), labels, reduction="mean" if num_items is None else "sum")
    expected = expected if num_items is None else expected / num_items
    assert loss.dtype == torch.float32
    assert abs(loss - expected) <= 1e-6 * expected
    gradient, its = (torch.autograd.grad(value, states)[0].float() for value in (loss, expected))
    assert (gradient - its).norm() <= (1e-5 if dtype == torch.float32 else 1e-2) * its.norm()
