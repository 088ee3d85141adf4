"""Attention with dropout that keeps less computes what eager attention does."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import DynamicCache, StaticCache

from tfm_zoo import TfmBertModel, TfmDebertaModel, TfmEncoderDecoderModel, TfmGPTModel
from tfm_zoo.models.kernels import DroppedAttention

from ..precision import assert_same
from ..tiny import ragged_batch, tiny_decoder, tiny_model

pytestmark = pytest.mark.usefixtures("double")


def dropped_attention(scores: torch.Tensor, value: torch.Tensor, dropout: float) -> torch.Tensor:
    return DroppedAttention.apply(scores, value, dropout)[0]


def test_dropped_attention_is_torchs():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 3, 5, 7, generator=generator, requires_grad=True)
    value = torch.randn(2, 3, 7, 4, generator=generator, requires_grad=True)
    results = []
    for attend in (dropped_attention, lambda s, v, p: F.dropout(s.softmax(dim=-1), p) @ v):
        torch.manual_seed(1)
        output = attend(scores, value, 0.3)
        results.append((output, *torch.autograd.grad(output.square().sum(), (scores, value))))
    for mine, its in zip(*results, strict=True):
        assert_same(mine, its)


def test_dropped_attention_is_differentiated_twice():
    def attend(scores, value):
        torch.manual_seed(0)
        return dropped_attention(scores, value, 0.3)

    scores, value = (torch.randn(2, 3, size, dtype=torch.double, requires_grad=True) for size in (3, 4))
    assert torch.autograd.gradcheck(attend, (scores, value))
    assert torch.autograd.gradgradcheck(attend, (scores, value))


@pytest.mark.parametrize("fields", [{}, {"num_key_value_heads": 2}, {"sliding_window": 3}])
@pytest.mark.parametrize("padded", [False, True])
def test_training_with_dropout_is_that_of_eager_attention(fields, padded):
    """The same seed drops the same weights, whichever function attends."""
    rates = {"hidden_dropout": 0.0, "attention_dropout": 0.3}
    torch.manual_seed(0)
    model = tiny_decoder(**rates, **fields).train()
    ids = torch.randint(0, 61, (2, 9))
    mask = torch.ones_like(ids)
    mask[0, 6:] = 1 - padded
    results = []
    for implementation in ("eager", "sdpa"):
        model.set_attn_implementation(implementation)
        torch.manual_seed(1)
        loss = model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
        results.append((loss, torch.autograd.grad(loss, model.model.layers[0].self_attn.q_proj.weight)[0]))
    assert_same(*results)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_cached_step_with_dropout_sees_all_that_came_before(implementation):
    """In training mode, with dropout so rare that it strikes nothing."""
    torch.manual_seed(0)
    model = tiny_decoder(hidden_dropout=0.0, attention_dropout=1e-14).train()
    model.set_attn_implementation(implementation)
    ids = torch.arange(10).view(1, 10)
    whole = model(ids).logits
    for cache in (DynamicCache(config=model.config), StaticCache(config=model.config, max_cache_len=16)):
        for first, last in ((0, 7), (7, 9), (9, 10)):
            with torch.no_grad():
                step = model(ids[:, first:last], past_key_values=cache, use_cache=True).logits
            assert_same(step, whole[:, first:last])


@pytest.mark.parametrize(("training", "length"), [(True, 9), (False, 1)])
def test_no_kernel_of_a_cpu_leaves_out_a_soft_cap(training, length):
    """transformers refuses a cap for `"sdpa"` where a model is made; `"varlen"` is sdpa on a CPU."""
    model = tiny_decoder(attn_logit_softcapping=5.0, attention_dropout=0.1, num_key_value_heads=2).train(training)
    model.set_attn_implementation("varlen")
    with pytest.raises(ValueError, match=r"attn_logit_softcapping=5\.0: 'varlen' has no soft cap; choose 'eager'"):
        model(torch.randint(0, 61, (2, length)))


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("head", [TfmBertModel, TfmDebertaModel, TfmGPTModel, TfmEncoderDecoderModel])
@torch.no_grad()
def test_every_dropout_is_a_module(head, implementation):
    """Setting the rate of all of them to 0, as trl does, or evaluating them alone, turns dropout off; a rate that is
    set later counts, that of attention weights too."""
    rates = dict.fromkeys(("hidden_dropout", "attention_dropout", "activation_dropout"), 0.4)
    model, batch = tiny_model(head, **rates).train(), ragged_batch(head)
    model.set_attn_implementation(implementation)
    dropouts = {name: part for name, part in model.named_modules() if isinstance(part, nn.Dropout)}

    def varies() -> bool:
        return not model(**batch).last_hidden_state.equal(model(**batch).last_hidden_state)

    assert varies()
    for dropout in dropouts.values():
        dropout.eval()
    assert not varies()
    for dropout in dropouts.values():
        dropout.train().p = 0
    assert not varies()
    for name in ("self_attn.attention_dropout", "encoder_attn.attention_dropout"):
        for each in (dropout for other, dropout in dropouts.items() if other.endswith(name)):
            each.p = 0.4
            assert varies()
            each.p = 0
