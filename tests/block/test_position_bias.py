"""The bias of relative positions against T5's own and its definition, and where it has no meaning."""

import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

from tfm_zoo import TfmBertModel, TfmEncoderDecoderEncoder, TfmGPTModel
from tfm_zoo.models.position_bias import BiasedLayouts, TfmRelativeBias, distances_to, spread

from ..precision import assert_same
from ..tiny import NO_DROPOUT, ragged_batch, recompute_activations, tiny_config, tiny_model

pytestmark = pytest.mark.usefixtures("double")

RELATIVE = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10}


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 10), (7, 20)])
def test_buckets_of_t5(is_causal, buckets, farthest):
    fields = {"relative_attention_num_buckets": buckets, "relative_attention_max_distance": farthest}
    bias, distances = TfmRelativeBias(tiny_config(**fields), 1, is_causal), torch.arange(-300, 300)
    wanted = T5Attention._relative_position_bucket(distances, not is_causal, buckets, farthest)
    assert bias.bucket_of(distances).equal(wanted)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 6), (4, 4), (3, 7), (5, 2)])
def test_numbers_by_distance_become_those_of_pairs(queries, keys):
    distances = distances_to(keys, queries)
    pairs = spread(torch.stack((distances, -distances)), queries, keys)
    wanted = torch.arange(keys) - torch.arange(queries)[:, None]
    assert pairs.equal(torch.stack((wanted, -wanted))[None])


@pytest.mark.parametrize("head", [TfmBertModel, TfmGPTModel])
def test_one_table_or_one_for_each_layer(head):
    """The same numbers in all tables are one table."""
    shared, each = (tiny_model(head, relative_attention_per_layer=each, **RELATIVE) for each in (False, True))
    assert [len(model.position_bias) for model in (shared, each)] == [1, 2]
    each.load_state_dict(shared.state_dict() | {"position_bias.1.weight": shared.position_bias[0].weight})
    batch = ragged_batch(head)
    assert each(**batch).last_hidden_state.equal(shared(**batch).last_hidden_state)
    with torch.no_grad():
        each.position_bias[1].weight.add_(torch.randn(8, 4))
    assert not torch.allclose(each(**batch).last_hidden_state, shared(**batch).last_hidden_state, atol=1e-2)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("per_layer", [True, False])
def test_gradient_checkpointing(reentrant, per_layer, monkeypatch):
    """All layers have one mask, unless each is run backward by itself: one of each is large."""
    masks, make = [], BiasedLayouts.biased
    monkeypatch.setattr(BiasedLayouts, "biased", lambda *args: masks.append(make(*args)) or masks[-1])

    def gradients(checkpoint: bool) -> list[torch.Tensor]:
        model = tiny_model(TfmBertModel, relative_attention_per_layer=per_layer, **NO_DROPOUT, **RELATIVE).train()
        if checkpoint:
            recompute_activations(model, reentrant)
            model.enable_input_require_grads()
        model(**ragged_batch()).last_hidden_state.square().sum().backward()
        return [table.weight.grad for table in model.position_bias]

    checkpointed, made = gradients(True), len(masks)
    assert made == (2 if per_layer or reentrant else 1)
    assert_same(checkpointed, gradients(False))


@pytest.mark.parametrize("attention", ["flash_attention_2", "paged|sdpa", "vllm"])
def test_attention_that_takes_no_bias(attention):
    model = tiny_model(TfmGPTModel, **RELATIVE)
    model.config._attn_implementation = attention
    with pytest.raises(ValueError, match=f"'{attention[:5]}.*relative_attention_num_buckets=8.* eager, sdpa"):
        model(torch.arange(4, 9)[None])


@pytest.mark.slow
@torch.no_grad()
def test_flex_attention_in_a_graph_reads_each_layers_own_bias():
    model = tiny_model(TfmEncoderDecoderEncoder, hidden_size=64, relative_attention_per_layer=True, **RELATIVE).eval()
    ids, tables = torch.arange(5, 17).view(2, 6), model.encoder.position_bias
    for number, table in enumerate(tables):
        table.weight.copy_(torch.randn(table.weight.shape, generator=torch.Generator().manual_seed(number)))
    wanted = model(ids).last_hidden_state
    model.set_attn_implementation("flex_attention")
    found = torch.compile(model, backend="eager")(ids).last_hidden_state
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
