"""PEFT's low-rank adapters: trained, saved, loaded and merged; those of a converted model, with their base."""

import json

import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer

import tfm_zoo
from tfm_zoo import (
    TfmBertForSequenceClassification,
    TfmBertModel,
    TfmEncoderDecoderForConditionalGeneration,
    TfmGPTForCausalLM,
)

from ..forks import with_transformers
from ..official_models import BY_NAME, build_tiny
from ..tiny import NO_DROPOUT, ragged_batch, tiny_model
from ..words import SENTENCES, make_tokenizer

peft = pytest.importorskip("peft")


def test_adapters():
    batch = ragged_batch(TfmBertForSequenceClassification, labels=True)
    model = tiny_model(TfmBertForSequenceClassification, **NO_DROPOUT)
    wanted = model(**batch).logits
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["q_proj", "v_proj"], r=2)
    adapted = peft.get_peft_model(model, config)
    torch.testing.assert_close(adapted(**batch).logits, wanted)  # an adapter starts at zero
    adapted(**batch).loss.backward()
    trained = {name for name, parameter in adapted.named_parameters() if parameter.grad is not None}
    assert trained and all("lora_" in name or "classifier" in name for name in trained)


@pytest.mark.parametrize("model_class", [TfmBertModel, TfmBertForSequenceClassification])
def test_one_layer_alone(model_class):
    """`layers_to_transform` finds a layer if `layers` has a name before it; without, a pattern names the layer."""
    pattern = r"(model\.)?layers\.0\.self_attn\.[qv]_proj"
    adapted = peft.get_peft_model(tiny_model(model_class), peft.LoraConfig(target_modules=pattern, r=2))
    found = {name for name, module in adapted.named_modules() if name.endswith("lora_A")}
    assert {name.partition("layers.")[2] for name in found} == {f"0.self_attn.{x}_proj.lora_A" for x in "qv"}
    by_number = peft.LoraConfig(target_modules=["q_proj", "v_proj"], layers_to_transform=[0], r=2)
    if model_class is TfmBertModel:
        with pytest.raises(ValueError, match="not found in the base model"):  # once PEFT finds it, tools.md is wrong
            peft.get_peft_model(tiny_model(model_class), by_number)
    else:
        named = peft.get_peft_model(tiny_model(model_class), by_number).named_modules()
        assert {name for name, _ in named if name.endswith("lora_A")} == found


def test_adapted_generation(tmp_path):
    """A low-rank adapter of the decoder: trained, saved, put on a fresh model, and merged into its weights."""
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


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    """The folder of a tiny official model, and of a tokenizer."""
    folder, tokenizer = tmp_path_factory.mktemp("official"), make_tokenizer()
    tokenizer.eos_token = "[SEP]"
    tokenizer.save_pretrained(folder)
    build_tiny(BY_NAME["GPT2LMHeadModel"]).save_pretrained(folder)
    return folder


def trainer(model, folder):
    """trl's, for one step of adapters, which it saves."""
    from trl import SFTConfig, SFTTrainer

    rows = Dataset.from_list([{"text": sentence} for sentence in SENTENCES])
    options = {"max_steps": 1, "save_steps": 1, "learning_rate": 0.1, "bf16": False, "use_cpu": True, "report_to": []}
    arguments = SFTConfig(folder, max_length=16, gradient_checkpointing=False, **options)
    lora = peft.LoraConfig(task_type="CAUSAL_LM")
    return SFTTrainer(model=model, args=arguments, train_dataset=rows, peft_config=lora)


def by_peft(model, folder):
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False))
    adapted.save_pretrained(folder)
    return adapted


def by_prompts(model, folder):
    adapted = peft.get_peft_model(model, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    adapted.save_pretrained(folder)
    return adapted


def by_transformers(model, folder):
    model.add_adapter(peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False))
    model.save_pretrained(folder)
    return model


def by_trl(model, folder):
    tuned = trainer(model, folder / "run")
    tuned.train()
    (folder / "run" / "checkpoint-1").rename(folder / "checkpoint-1")  # what was saved on the way
    for file in (folder / "checkpoint-1").iterdir():
        file.rename(folder / file.name)
    return tuned.model


WAYS = pytest.mark.parametrize("way", [by_peft, by_prompts, by_transformers, by_trl])
TRL_WARNS = pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")  # it sets it
LOAD = """
import sys, torch, transformers, peft
folder, result = sys.argv[1:]
options = {"trust_remote_code": True}
loaded = [peft.AutoPeftModelForCausalLM.from_pretrained(folder, **options)]
if "PROMPT" not in open(f"{folder}/adapter_config.json").read():
    loaded.append(transformers.AutoModelForCausalLM.from_pretrained(folder, **options))
with torch.no_grad():
    torch.save([model.eval()(torch.arange(3, 11)[None]).logits for model in loaded], result)
"""


@pytest.mark.slow
@TRL_WARNS
@WAYS
def test_an_adapter_of_a_converted_model_is_found_with_its_base(way, official, tmp_path):
    """It is saved, and loads in a fresh process, where there is the base's own code and no zoo."""
    tfm_zoo.from_official(official).save_pretrained(tmp_path / "base")
    AutoTokenizer.from_pretrained(official).save_pretrained(tmp_path / "base")
    adapted = way(TfmGPTForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter").eval()
    ids = torch.arange(3, 11)[None]
    with torch.no_grad():
        wanted = adapted(ids).logits
        before = tfm_zoo.from_official(official)(ids).logits
    assert not wanted[:, -8:].allclose(before, atol=1e-2)  # before them may stand prompts
    with_transformers().run(["", "-c", LOAD, tmp_path / "adapter", tmp_path / "logits.pt"], check=True)
    for logits in torch.load(tmp_path / "logits.pt"):
        torch.testing.assert_close(logits, wanted)
    # The weights of the base are those of the official model: the adapter goes with a model that was just converted.
    again = peft.PeftModel.from_pretrained(tfm_zoo.from_official(official), tmp_path / "adapter").eval()
    torch.testing.assert_close(again(ids).logits, wanted)


@TRL_WARNS
@WAYS
def test_an_adapter_without_a_base_is_refused_before_training(way, official, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.Trainer.train", lambda *_: pytest.fail("It trains."))
    model = tfm_zoo.from_official(official)
    with pytest.raises(ValueError, match=rf"converted from '{official}' and lies in no folder.*save_pretrained\("):
        way(model, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists() or not [*(tmp_path / "adapter").rglob("*.safetensors")]
    assert not any("lora" in name for name, _ in model.named_parameters())


def test_an_official_model_has_no_base_in_the_zoo(official, tmp_path):
    """The base of its adapters is not the zoo's folder, which holds another class."""
    tfm_zoo.from_official(official).save_pretrained(tmp_path / "base")
    back = tfm_zoo.to_official(TfmGPTForCausalLM.from_pretrained(tmp_path / "base"))
    adapted = peft.get_peft_model(back, peft.LoraConfig(task_type="CAUSAL_LM"))
    adapted.save_pretrained(tmp_path / "adapter")
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"] is None
