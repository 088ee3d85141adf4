"""PEFT's low-rank adapters: trained, saved, loaded and merged."""

import pytest
import torch

from tfm_zoo import (
    TfmBertForSequenceClassification,
    TfmEncoderDecoderForConditionalGeneration,
    TfmGPTForCausalLM,
)

from ..tiny import NO_DROPOUT, ragged_batch, tiny_model


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
