"""Attention computes what eager attention does: where dropout keeps less, and in DeBERTa; what it cannot is refused."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import DynamicCache, StaticCache

from tfm_zoo import TfmBertModel, TfmDebertaModel, TfmEncoderDecoderModel, TfmGPTModel
from tfm_zoo.models.kernels import dropped_attention_forward
from tfm_zoo.models.position_bias import TfmAlibi

from ..official_models import both
from ..precision import assert_same
from ..tiny import ragged_batch, tiny_decoder, tiny_model, without_kernels

pytestmark = pytest.mark.usefixtures("double")

ALIBI = {"position_embedding_type": "alibi"}


@pytest.mark.parametrize("fields", [ALIBI, {"num_key_value_heads": 2}, {"sliding_window": 3}])
def test_training_with_dropout_is_that_of_eager_attention(fields):
    """The same seed drops the same weights, whichever function attends."""
    model = tiny_decoder(hidden_dropout=0.0, attention_dropout=0.3, **fields).train()
    for length in (9, 6):  # of the first sequence
        ids, mask = torch.randint(0, 61, (2, 9)), torch.ones(2, 9).long()
        mask[0, length:] = 0
        results = []
        for implementation in ("eager", "sdpa"):
            model.set_attn_implementation(implementation)
            torch.manual_seed(1)
            loss = model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
            results.append((loss, torch.autograd.grad(loss, [*model.model.layers.parameters()])))
        assert_same(*results)


@torch.no_grad()
def test_a_cached_step_with_dropout_sees_all_that_came_before():
    """In training mode, with dropout so rare that it strikes nothing."""
    model, ids = tiny_decoder(hidden_dropout=0.0, attention_dropout=1e-14).train(), torch.arange(10).view(1, 10)
    for cache in (DynamicCache(config=model.config), StaticCache(config=model.config, max_cache_len=16)):
        steps = [model(part, past_key_values=cache, use_cache=True).logits for part in ids.split([7, 2, 1], dim=1)]
        assert_same(torch.cat(steps, dim=1), model(ids).logits)


@pytest.mark.parametrize("head", [TfmBertModel, TfmDebertaModel, TfmEncoderDecoderModel])
@torch.no_grad()
def test_every_dropout_is_a_module(head):
    """Setting the rate of all of them to 0, as trl does, or evaluating them alone, turns dropout off; a rate that is
    set later counts, that of attention weights too."""
    rates = dict.fromkeys(("hidden_dropout", "attention_dropout", "activation_dropout"), 0.4)
    for implementation in ("eager", "sdpa"):
        model, batch = tiny_model(head, attn_implementation=implementation, **rates).train(), ragged_batch(head)
        dropouts = {name: part for name, part in model.named_modules() if isinstance(part, nn.Dropout)}

        def varies(model=model, batch=batch) -> bool:
            return not model(**batch).last_hidden_state.equal(model(**batch).last_hidden_state)

        assert varies()
        for dropout in dropouts.values():
            dropout.eval()
        assert not varies()
        for dropout in dropouts.values():
            dropout.train().p = 0
        assert not varies()
        for name in ("layers.1.self_attn.attention_dropout", "layers.1.encoder_attn.attention_dropout"):
            for each in (dropout for other, dropout in dropouts.items() if other.endswith(name)):
                each.p = 0.4
                assert varies(), (implementation, name)
                each.p = 0


#: of the first sequence nothing is padding; the second has some before, between and behind its tokens
HOLES = torch.tensor([[1] * 13, [0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0]])
IDS = torch.arange(1, 27).view(2, 13)


@torch.no_grad()
def test_padding_between_tokens_counts_in_distances_of_deberta(monkeypatch):
    """Also where the places of a text are read in several parts."""
    monkeypatch.setattr("tfm_zoo.models.modeling_tfm_deberta.PLACES", 5)
    expected, states = (model(IDS, attention_mask=HOLES).last_hidden_state for model in both("DebertaV2Model"))
    assert_same(states[HOLES == 1], expected[HOLES == 1])


@torch.no_grad()
@without_kernels
def test_flex_attention_of_deberta():
    fields = {"position_buckets": 4, "max_relative_positions": 6, "conv_kernel_size": 3}
    model, mask = tiny_model(TfmDebertaModel, **fields), (torch.arange(13) < torch.tensor([[13], [5]])).long()
    wanted = model(IDS, attention_mask=mask)[0]
    model.set_attn_implementation("flex_attention")
    assert_same(model(IDS, attention_mask=mask)[0], wanted)


@pytest.mark.parametrize(
    ("head", "fields", "attention", "message"),
    [
        *((TfmGPTModel, {"relative_attention_num_buckets": 8}, name, "buckets=8") for name in ("paged|sdpa", "vllm")),
        (TfmDebertaModel, {}, "flash_attention_2", "takes no bias"),
        (TfmGPTModel, ALIBI, "vllm", "takes no bias .*'alibi'"),
    ],
)
def test_attention_that_takes_no_bias(head, fields, attention, message):
    model = tiny_model(head, **fields)
    model.config._attn_implementation = attention
    with pytest.raises(ValueError, match=f"'{attention[:5]}.*{message}.* eager, sdpa"):
        model(IDS)


def test_a_bias_of_ones_own():
    """It may take the place of a counted ALiBi. The configuration has to say that there is one."""
    model = tiny_model(TfmGPTModel, **ALIBI, position_ids_from_mask=True)
    model.position_bias = TfmAlibi(model.config, is_causal=True)
    model(IDS)
    model.config.position_embedding_type = "none"
    with pytest.raises(ValueError, match="has a position_bias, and TfmGPTConfig has has_position_bias=False"):
        model(IDS)


def test_no_kernel_of_a_cpu_leaves_out_a_soft_cap():
    """transformers refuses a cap for `"sdpa"` where a model is made; `"varlen"` is sdpa on a CPU."""
    model = tiny_decoder(attn_logit_softcapping=5.0, attention_dropout=0.1, num_key_value_heads=2)
    model.set_attn_implementation("varlen")
    for training, length in ((True, 9), (False, 1)):
        with pytest.raises(ValueError, match=r"attn_logit_softcapping=5\.0: 'varlen' has no soft cap; choose 'eager'"):
            model.train(training)(torch.randint(0, 61, (2, length)))


def test_dropped_attention_has_its_own_gradients():
    """The first and the second."""
    states = [torch.randn(1, 2, 3, 4, dtype=torch.double, requires_grad=True) for _ in range(3)]
    module = SimpleNamespace(num_key_value_groups=1, is_causal=True)

    def attend(*states: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return dropped_attention_forward(module, *states, None, 0.5, dropout=0.3)[0]

    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(attend, states)


def test_weights_that_are_shown_have_gradients_in_training():
    """They are those that the output is made of, with dropout, too."""
    for model_class in (TfmGPTModel, TfmBertModel):
        model = tiny_model(model_class, attention_dropout=0.3)
        model.set_attn_implementation("eager")
        outputs = model.train()(torch.randint(0, 61, (2, 9)), output_attentions=True)
        for weights in outputs.attentions:
            weights.retain_grad()
        outputs[0].sum().backward()
        assert all(weights.grad is not None and 0 in weights[..., -1, :] for weights in outputs.attentions)
