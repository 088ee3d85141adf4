"""Adapters in recipes: what learns, what is saved, and what cannot be adapted."""

import json
import shutil

import peft
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertModel

import tfm_zoo
from tfm_zoo.hub.sharded_models import rebuilt
from tfm_zoo.training.learning_parts import Adapters
from tfm_zoo.training.options import TrainingOptions

from ..official_models import BY_NAME, build_tiny
from .conftest import LORA, history, logged


@pytest.mark.parametrize("model_class", ["zoo", "native"])
def test_adapters_and_the_head_learn_and_are_merged_and_saved(recipe, checkpoint, tmp_path, model_class):
    """Each small step, of all rows that are evaluated, lowers their loss. The folder holds an ordinary model, whose
    figures the results are; the adapters alone give the same on their base."""
    classification, run = recipe("classification"), tmp_path / "run"
    base = {"model_name_or_path": tmp_path / "base"}
    model = BertModel(BertConfig.from_pretrained(checkpoint, initializer_range=0.3))  # whose texts differ
    for each in (model, AutoTokenizer.from_pretrained(checkpoint)):
        each.save_pretrained(tmp_path / "base")
    options = LORA | base | {"model_class": model_class, "num_train_epochs": 6, "learning_rate": 1e-3}
    options |= {"lr_scheduler_type": "constant", "warmup_steps": 0, "metric_for_best_model": "loss"}
    options |= {"per_device_train_batch_size": 61, "validation_file": classification.options["train_file"]}
    loop = classification.prepare(**options)
    learning = {name for name, parameter in loop.task.model.named_parameters() if parameter.requires_grad}
    assert all(".lora_" in name or name.startswith("classifier.") for name in learning)
    results, losses = classification(**options), history(run, "eval_loss")
    assert losses == sorted({*losses}, reverse=True) and len(losses) == 6
    assert results["eval_loss"] == pytest.approx(losses[-1], rel=1e-4)
    tokenizer = AutoTokenizer.from_pretrained(run, trust_remote_code=True)
    inputs = tokenizer(["fine film", "poor town people"], padding=True, return_tensors="pt")
    plain = classification.prepare(**base, model_class=model_class, overwrite_output_dir=True).task.model
    adapted = peft.PeftModel.from_pretrained(plain, run / "adapter")
    merged = AutoModelForSequenceClassification.from_pretrained(run, trust_remote_code=True)
    torch.testing.assert_close(*(each.eval()(**inputs).logits for each in (adapted, merged)), rtol=1e-4, atol=1e-5)
    assert not any("lora" in name for name in load_file(run / "model.safetensors"))
    assert "rank 4, alpha 16, dropout 0, in all linear layers" in (run / "README.md").read_text()
    assert json.loads((run / "adapter" / "adapter_config.json").read_text())["task_type"] == "SEQ_CLS"


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "T5ForConditionalGeneration", "BertForTokenClassification"])
def test_merged_weights_compute_what_the_adapters_do(name):
    """Also where a layer is transposed (GPT-2's), and where the base model has no name of its own (T5's)."""
    torch.manual_seed(0)
    model, ids = build_tiny(BY_NAME[name]).eval(), torch.arange(4, 12)[None]
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if model.config.is_encoder_decoder else {})
    before = model(**inputs).logits
    adapters = Adapters(model, TrainingOptions(model_name_or_path="named", lora_rank=2).with_defaults())
    with torch.no_grad():  # adapters begin at zero
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    expected = model(**inputs).logits
    plain = rebuilt(model, adapters.merged(model.state_dict())).eval()
    torch.testing.assert_close(plain(**inputs).logits, expected, rtol=1e-4, atol=1e-4)
    assert (expected - before).abs().max() > 0.1 and type(plain) is type(model)
    adapters.tuner.unload()
    assert not any("lora" in each for each, _ in model.named_parameters())


def test_a_merged_model_is_exported_and_a_decoder_samples(recipe, tmp_path):
    language = recipe("causal_lm")
    language(output_dir=tmp_path / "base", max_train_steps=2)
    options = {"model_name_or_path": tmp_path / "base", "config_overrides": None, "tokenizer_vocab_size": None}
    loop = language.trained(max_train_steps=3, **options, **LORA, lora_target_modules=["q_proj", "v_proj"])
    assert logged(loop, "samples")
    model = tfm_zoo.TfmGPTForCausalLM.from_pretrained(tmp_path / "run")
    tfm_zoo.to_official(model)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("base", "run"))
    assert {name.split(".")[-2] for name in before if not before[name].equal(after[name])} == {"q_proj", "v_proj"}
    shutil.copytree(tmp_path / "run" / "adapter", tmp_path / "adapter")
    adapted = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")  # it names its base
    ids = torch.arange(9)[None]
    torch.testing.assert_close(adapted(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-5)


def test_without_peft_one_line_says_what_to_install(recipe, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    assert "lora_rank needs PEFT: pip install peft" in recipe("classification").refusal(**LORA)
