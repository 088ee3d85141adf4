"""Models that something else has taken hold of: autocast, offloading, adapters, quantisers, tensor parallelism."""

import subprocess
import sys
from pathlib import Path

import accelerate
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, TorchAoConfig

import tfm_zoo
from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmBertForSequenceClassification,
    TfmEncoderDecoderForConditionalGeneration,
    TfmGPTForCausalLM,
)

from ..tiny import HEADS, ragged_batch, tiny_model

NO_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
EVERY_HEAD = pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)


@EVERY_HEAD
@pytest.mark.parametrize("skip_padding", [True, False])
def test_autocast(head, skip_padding):
    """In bfloat16, to its precision: outputs, loss and gradients."""
    batch = ragged_batch(head, labels=True)
    results = []
    for low in (True, False):
        model = tiny_model(head, skip_padding=skip_padding, initializer_range=0.1, **NO_DROPOUT)
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            outputs = model(**batch)
            loss = outputs.loss if "loss" in outputs else outputs[-1].float().square().sum()
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        assert {gradient.dtype for gradient in gradients} == {torch.float32}
        results.append((loss.item(), torch.cat([gradient.flatten() for gradient in gradients])))
    (loss, gradient), (wanted_loss, wanted_gradient) = results
    assert loss == pytest.approx(wanted_loss, rel=0.03)
    assert 0 < (gradient - wanted_gradient).norm() < 0.1 * wanted_gradient.norm()


@EVERY_HEAD
def test_offloaded(head, tmp_path):
    """Weights that are fetched for each module's call, from memory or from a file."""
    batch = ragged_batch(head, labels=True)
    wanted = dict(tiny_model(head)(**batch))
    in_memory = accelerate.cpu_offload(tiny_model(head), execution_device="cpu")
    on_disk = accelerate.disk_offload(tiny_model(head), tmp_path, execution_device="cpu")
    for model in (in_memory, on_disk):
        assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
        torch.testing.assert_close(dict(model(**batch)), wanted)


@EVERY_HEAD
def test_replica_of_data_parallel(head):
    """What `nn.DataParallel` makes on each GPU (and the Trainer, of several): a module that owns no parameter."""

    def replicate(module: nn.Module) -> nn.Module:
        replica = module._replicate_for_data_parallel()
        for name, parameter in module._parameters.items():  # a bias that is not there is None
            setattr(replica, name, None if parameter is None else parameter.clone())
        for name, child in module.named_children():
            setattr(replica, name, replicate(child))
        return replica

    model, batch = tiny_model(head, **NO_DROPOUT), ragged_batch(head, labels=True)
    replica = replicate(model)
    assert not list(replica.parameters())
    torch.testing.assert_close(dict(replica(**batch)), dict(model(**batch)))


def test_a_head_that_is_not_plain_is_called():
    """The chunked loss reads the head's weight; where calling the head does more, it is called."""

    class Scaled(nn.Linear):
        def forward(self, states):
            return 2 * super().forward(states)

    batch = ragged_batch(TfmBertForMaskedLM, labels=True)
    hooked, subclassed, wrapped = (tiny_model(TfmBertForMaskedLM) for _ in range(3))
    hooked.lm_head.register_forward_hook(lambda module, inputs, output: 2 * output)
    subclassed.lm_head.__class__ = Scaled
    plain = wrapped.lm_head
    wrapped.lm_head.forward = lambda states: 2 * nn.functional.linear(states, plain.weight, plain.bias)
    for model in (hooked, subclassed, wrapped):
        outputs = model(**batch)
        wanted = nn.functional.cross_entropy(outputs.logits.flatten(0, 1), batch["labels"].flatten())
        torch.testing.assert_close(outputs.loss, wanted)


def test_adapters():
    peft = pytest.importorskip("peft")
    batch = ragged_batch(TfmBertForSequenceClassification, labels=True)
    model = tiny_model(TfmBertForSequenceClassification, **NO_DROPOUT)
    wanted = model(**batch).logits
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["q_proj", "v_proj"], r=2)
    adapted = peft.get_peft_model(model, config)
    torch.testing.assert_close(adapted(**batch).logits, wanted)  # an adapter starts at zero
    adapted(**batch).loss.backward()
    trained = {name for name, parameter in adapted.named_parameters() if parameter.grad is not None}
    assert trained and all("lora_" in name or "classifier" in name for name in trained)


def test_adapted_generation(tmp_path):
    """A low-rank adapter of the decoder: trained, saved, put on a fresh model, and merged into its weights."""
    peft = pytest.importorskip("peft")
    model, batch = tiny_model(TfmGPTForCausalLM, **NO_DROPOUT), ragged_batch(TfmGPTForCausalLM, side="left")
    prompt = {"inputs": batch["input_ids"], "attention_mask": batch["attention_mask"], "max_new_tokens": 8}
    options = {"do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    before = model.generate(**prompt, **options)
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", r=4)
    adapted = peft.get_peft_model(model, config).train()
    assert len([name for name, _ in adapted.named_modules() if name.endswith("lora_A")]) == 2 * 6
    optimizer = torch.optim.SGD([weight for weight in adapted.parameters() if weight.requires_grad], lr=1.0)
    losses = []
    for _ in range(4):
        outputs = adapted(**batch, labels=batch["input_ids"].where(batch["attention_mask"] == 1, -100))
        optimizer.zero_grad()
        outputs.loss.backward()
        optimizer.step()
        losses.append(outputs.loss.item())
    assert losses[-1] < losses[0]
    after = adapted.eval().generate(**prompt, **options)
    assert not after.logits[0].allclose(before.logits[0])

    adapted.save_pretrained(tmp_path / "adapter")
    reloaded = peft.PeftModel.from_pretrained(tiny_model(TfmGPTForCausalLM, **NO_DROPOUT), tmp_path / "adapter").eval()
    again = reloaded.generate(**prompt, **options)
    merged = reloaded.merge_and_unload()
    assert type(merged) is TfmGPTForCausalLM
    merged.save_pretrained(tmp_path / "merged")
    whole = TfmGPTForCausalLM.from_pretrained(tmp_path / "merged")
    for made in (again, merged.generate(**prompt, **options), whole.generate(**prompt, **options)):
        assert made.sequences.equal(after.sequences)
        torch.testing.assert_close(made.logits, after.logits, rtol=1e-4, atol=1e-5)


def test_adapted_translation(tmp_path):
    """Low-rank adapters in both stacks and between them: trained, saved, put on a fresh model, and merged."""
    peft = pytest.importorskip("peft")
    head = TfmEncoderDecoderForConditionalGeneration
    model, batch = tiny_model(head, **NO_DROPOUT), ragged_batch(head, labels=True)
    prompt = {name: batch[name] for name in ("input_ids", "attention_mask")} | {"max_new_tokens": 6, "num_beams": 2}
    config = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", target_modules=["q_proj", "v_proj"], r=4)
    adapted = peft.get_peft_model(model, config).train()
    assert len([name for name, _ in adapted.named_modules() if name.endswith("lora_A")]) == 2 * 2 + 3 * 4
    optimizer = torch.optim.SGD([weight for weight in adapted.parameters() if weight.requires_grad], lr=1.0)
    losses = []
    for _ in range(4):
        outputs = adapted(**batch)
        optimizer.zero_grad()
        outputs.loss.backward()
        optimizer.step()
        losses.append(outputs.loss.item())
    assert losses[-1] < losses[0]
    after, logits = adapted.eval().generate(**prompt), adapted(**batch).logits
    adapted.save_pretrained(tmp_path)
    reloaded = peft.PeftModel.from_pretrained(tiny_model(head, **NO_DROPOUT), tmp_path).eval()
    assert reloaded.generate(**prompt).equal(after)
    merged = reloaded.merge_and_unload()
    assert type(merged) is head
    torch.testing.assert_close(merged(**batch).logits, logits, rtol=1e-4, atol=1e-4)
    assert not logits.allclose(tiny_model(head, **NO_DROPOUT)(**batch).logits, atol=1e-2)


def test_translation_in_eight_bits():
    """`quantize_int8`: every projection, the head with its untrained bias too."""
    head = TfmEncoderDecoderForConditionalGeneration
    model, batch = tiny_model(head, final_logits_bias=True, initializer_range=0.1), ragged_batch(head)
    model.lm_head.bias.normal_()
    wanted = model(**batch).logits
    quantised = tfm_zoo.quantize_int8(model)
    assert not [name for name, module in quantised.named_modules() if type(module) is nn.Linear]
    difference = (quantised(**batch).logits - wanted).norm() / wanted.norm()
    assert 0 < difference < 0.05
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    made = quantised.generate(**source, max_new_tokens=5, num_beams=3)
    assert len(made) == 4 and made.shape[1] <= 6 and made[:, 1:].unique().numel() > 1


def test_int8_weights(tmp_path):
    """torchao's weight-only quantisation on loading: eight-bit weights, and nearly the same scores."""
    torchao = pytest.importorskip("torchao.quantization")
    model, batch = tiny_model(TfmGPTForCausalLM), ragged_batch(TfmGPTForCausalLM, side="left")
    model.save_pretrained(tmp_path)
    config = TorchAoConfig(torchao.Int8WeightOnlyConfig())
    quantised = AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True, quantization_config=config)
    projections = [module for module in quantised.model.layers.modules() if isinstance(module, nn.Linear)]
    assert len(projections) == 2 * 6
    assert not [projection for projection in projections if type(projection.weight) is nn.Parameter]
    wanted = model(**batch).logits
    difference = (quantised(**batch).logits - wanted).norm() / wanted.norm()
    assert 0 < difference < 0.05
    prompt = {"inputs": batch["input_ids"], "attention_mask": batch["attention_mask"], "max_new_tokens": 8}
    assert quantised.generate(**prompt, do_sample=False).shape == (4, 9 + 8)


def test_quantised():
    """Dynamic quantisation replaces every linear layer, and the model still computes nearly the same."""
    batch = ragged_batch()
    model = tiny_model(TfmBertForMaskedLM)
    wanted = model(**batch).logits
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert not [name for name, module in quantised.named_modules() if type(module) is nn.Linear]
    difference = (quantised(**batch).logits - wanted).norm() / wanted.norm()
    assert 0 < difference < 0.2
    assert quantised(**batch, labels=batch["input_ids"]).loss.isfinite()


@pytest.mark.parametrize("head", [TfmBertForMaskedLM, TfmGPTForCausalLM], ids=lambda head: head.__name__)
def test_tensor_parallel(head, tmp_path):
    """Two processes hold half of every layer each, and have the outputs and gradients of the whole."""
    fields = {"vocab_size": 60, "mlp_type": "gated", "num_key_value_heads": 2} | NO_DROPOUT
    tiny_model(head, **fields).save_pretrained(tmp_path)
    batch = ragged_batch(head, labels=True)
    torch.save({name: value.clamp(max=59) for name, value in batch.items()}, tmp_path / "batch.pt")
    script = Path(__file__).with_name("tensor_parallel.py")
    subprocess.run([sys.executable, script, tmp_path, head.__name__], check=True, timeout=300)
