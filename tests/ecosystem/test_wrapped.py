"""Models compute the same, or nearly, wherever their weights lie and in whatever type: under autocast, offloaded,
replicated, quantised, with a head that somebody has replaced."""

import accelerate
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, TorchAoConfig

from tfm_zoo import TfmBertForMaskedLM, TfmGPTForCausalLM
from tfm_zoo.models import losses

from ..precision import tensors_in
from ..tiny import HEADS, NO_DROPOUT, ragged_batch, tiny_model

EVERY_HEAD = pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)


@EVERY_HEAD
def test_autocast(head):
    """At most twice as far off as the model that is cast to bfloat16 as a whole: a few logits are off by chance."""
    found, fields = [], NO_DROPOUT | {"hidden_act": "gelu"}  # the gradient of a ReLU jumps
    for dtype, is_low in ((torch.float32, False), (torch.float32, True), (torch.bfloat16, False)):
        model = tiny_model(head, initializer_range=0.1, **fields).to(dtype)
        with torch.autocast("cpu", torch.bfloat16, enabled=is_low):
            outputs = model(**ragged_batch(head, labels=True))
        (outputs.loss if "loss" in outputs else outputs[-1].float().square().sum()).backward()
        gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
        assert {each.dtype for each in gradients.values()} == {dtype}
        found.append([joined(outputs), joined(gradients)])
    for exact, made, cast in zip(*found, strict=True):
        assert 0 < (made - exact).norm() <= 2 * (cast - exact).norm() < 0.2 * exact.norm()


def test_float16_in_autocast():
    """As trl trains it. On a CPU, autocast joins no states of float16 (and torch's LayerNorm takes none)."""
    model = tiny_model(TfmGPTForCausalLM, norm_type="rmsnorm", position_embedding_type="rotary").half()
    with torch.autocast("cpu", torch.bfloat16):
        assert model(**ragged_batch(TfmGPTForCausalLM, labels=True)).loss.isfinite()


def joined(tensors: dict) -> torch.Tensor:
    return torch.cat([each.flatten().float() for each in tensors_in(tensors).values()])


def replicate(module: nn.Module) -> nn.Module:
    """What `nn.DataParallel` makes on each GPU (and the Trainer, of several): a module that owns no parameter."""
    replica = module._replicate_for_data_parallel()
    for name, parameter in module._parameters.items():  # a bias that is not there is None
        setattr(replica, name, None if parameter is None else parameter.clone())
    for name, child in module.named_children():
        setattr(replica, name, replicate(child))
    return replica


@EVERY_HEAD
def test_weights_elsewhere(head, tmp_path):
    """Those of replicas, and those that are fetched for each module's call, from memory or from a file."""
    batch, model = ragged_batch(head, labels=True), tiny_model(head, **NO_DROPOUT)
    wanted = dict(model(**batch))
    offloaded = accelerate.cpu_offload(tiny_model(head, **NO_DROPOUT), execution_device="cpu")
    on_disk = accelerate.disk_offload(tiny_model(head, **NO_DROPOUT), tmp_path, execution_device="cpu")
    for other in (replicate(model), offloaded, on_disk):
        assert {parameter.device.type for parameter in other.parameters()} <= {"meta"}
        torch.testing.assert_close(dict(other(**batch)), wanted)


class Scaled(nn.Linear):
    def forward(self, states):
        return 2 * super().forward(states)


def test_a_head_that_is_not_plain_is_called(monkeypatch):
    """A loss that is made in chunks reads the head's parameters; where calling the head does more, it is called."""
    monkeypatch.setattr(losses, "FEW", 0)
    batch = ragged_batch(TfmBertForMaskedLM, labels=True)
    hooked, subclassed, replaced = (tiny_model(TfmBertForMaskedLM) for _ in range(3))
    hooked.lm_head.register_forward_hook(lambda module, inputs, output: 2 * output)
    subclassed.lm_head.__class__ = Scaled
    plain = replaced.lm_head.forward
    replaced.lm_head.forward = lambda states: 2 * plain(states)
    for model in (hooked, subclassed, replaced):
        wanted = nn.functional.cross_entropy(model(**batch).logits.flatten(0, 1), batch["labels"].flatten())
        torch.testing.assert_close(model(**batch, return_logits=False).loss, wanted)


def test_int8_weights_of_torchao(tmp_path):
    """Quantised on loading: all of the blocks' weights, and nearly the same scores."""
    torchao = pytest.importorskip("torchao.quantization")
    model, batch = tiny_model(TfmGPTForCausalLM), ragged_batch(TfmGPTForCausalLM, side="left")
    model.save_pretrained(tmp_path)
    config = TorchAoConfig(torchao.Int8WeightOnlyConfig())
    quantised = AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True, quantization_config=config)
    projections = [module for module in quantised.model.layers.modules() if isinstance(module, nn.Linear)]
    assert len(projections) == 2 * 6
    assert not [projection for projection in projections if type(projection.weight) is nn.Parameter]
    wanted = model(**batch).logits
    assert 0 < (quantised(**batch).logits - wanted).norm() < 0.05 * wanted.norm()
