"""Experts: by every implementation; their loss; and what else meets them in a model."""

import copy

import pytest
import torch
from transformers import MixtralForCausalLM

from tfm_zoo import TfmGPTForCausalLM, pack_weights
from tfm_zoo.models.experts import TfmSparseMLP

from ..official_models import both
from ..precision import assert_same, in_single
from ..tiny import NO_DROPOUT, recompute_activations, tiny_config, tiny_model

pytestmark = pytest.mark.usefixtures("double")

EXPERTS = NO_DROPOUT | {"mlp_type": "gated", "mlp_bias": False, "hidden_act": "silu", "num_local_experts": 4}
IDS = torch.arange(3, 27).view(3, 8)
MASK = torch.tensor([[1] * 8, [0] * 3 + [1] * 5, [1] * 8])


@torch.no_grad()
def test_implementations_agree():
    model, made = tiny_model(TfmGPTForCausalLM, **EXPERTS, moe_intermediate_size=20), []
    for implementation in ("grouped_mm", "eager", "batched_mm"):
        model.set_experts_implementation(implementation)
        made.append(model(IDS, attention_mask=MASK).logits)
    assert_same(made, made[:1] * 3)


def test_layers_that_have_experts():
    model = tiny_model(TfmGPTForCausalLM, **EXPERTS, mlp_layer_types=["dense", "sparse"])
    assert [isinstance(layer.mlp, TfmSparseMLP) for layer in model.model.layers] == [False, True]
    torch.manual_seed(0)
    experts = TfmGPTForCausalLM(model.config).model.layers[1].mlp.experts
    scaled = model.config.initializer_range / 2  # of two layers, each with two sub-layers
    assert abs(experts.down_proj.std() / scaled - 1) < 0.05 and abs(experts.gate_up_proj.std() / scaled - 2) < 0.1


def test_a_plan_for_experts_as_official():
    official = MixtralForCausalLM.config_class
    config = tiny_config(TfmGPTForCausalLM.config_class, **EXPERTS)
    for kind in ("tp", "ep"):
        plans = (getattr(each, f"base_model_{kind}_plan").items() for each in (config, official))
        ours, theirs = ({name: style for name, style in plan if ".mlp." in name} for plan in plans)
        assert ours == theirs
    assert "base_model_ep_plan" not in config.to_dict()


def test_the_loss_of_the_router():
    """With padding at the left; of a mask that says nothing of padding, all tokens count."""
    official, zoo = both("MixtralForCausalLM", sliding_window=None)
    for mask in (MASK, None):
        outputs, expected = (model(IDS, attention_mask=mask, labels=IDS) for model in (zoo, official))
        assert_same(outputs.aux_loss, expected.aux_loss)
        assert_same(outputs.loss, expected.loss)
    assert zoo(IDS, output_router_logits=False).get("aux_loss") is None
    assert_same(zoo(IDS, attention_mask=torch.ones(3, 1, 8, 8).tril().bool()).aux_loss, official(IDS).aux_loss)
    # A step has the new tokens' logits alone. (The official class fails.)
    first = zoo(IDS[:, :6], attention_mask=MASK[:, :6], use_cache=True)
    step = zoo(IDS[:, 6:], attention_mask=MASK, past_key_values=first.past_key_values)
    assert step.aux_loss.isfinite() and step.router_logits[0].shape == (6, 4)


@in_single()
def test_checkpointed_blocks_route_as_others():
    """Bit for bit: the same is computed again."""
    gradients = []
    for change in (lambda model: None, recompute_activations):
        model = tiny_model(TfmGPTForCausalLM, **EXPERTS, output_router_logits=True).train()
        change(model)
        gradients.append(torch.autograd.grad(model(IDS, labels=IDS).loss, [*model.parameters()]))
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


@in_single()
@torch.no_grad()
def test_packed(caplog):
    """What is packed are linear layers; experts stay as they are."""
    model = tiny_model(TfmGPTForCausalLM, **EXPERTS)
    wanted = model(IDS).logits
    for dtype, bound in {"float32": 1e-5, "bfloat16": 0.05, "int8": 0.15}.items():
        caplog.clear()
        made = pack_weights(copy.deepcopy(model), dtype)(IDS).logits
        assert "Experts stay as they are" in caplog.text and "% of the weights are packed" in caplog.text
        assert (made - wanted).norm() < bound * wanted.norm(), dtype
