"""Adapters in recipes: what learns, what is saved, and that a killed run goes on as if nothing had happened."""

import json
import shutil

import peft
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import tfm_zoo
from tfm_zoo.hub.gathering import whole
from tfm_zoo.training import checkpoints
from tfm_zoo.training.lora import Adapters
from tfm_zoo.training.options import TrainingOptions

from ..official_models import BY_NAME, build_tiny
from .conftest import history, logged

LORA = {"lora_rank": 4, "learning_rate": 5e-3}
CLASSES = pytest.mark.parametrize("model_class", ["zoo", "native"])


def weights_of(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def logits_of(model, folder):
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    inputs = tokenizer(["fine film", "poor town people"], padding=True, return_tensors="pt")
    with torch.no_grad():
        return model.eval()(**inputs).logits


@CLASSES
def test_adapters_and_the_head_learn_and_are_merged_and_saved(recipe, tmp_path, model_class):
    classification = recipe("classification")
    loop = classification.prepare(model_class=model_class, **LORA)
    learning = {name for name, parameter in loop.task.model.named_parameters() if parameter.requires_grad}
    assert all(".lora_" in name or name.startswith("classifier.") for name in learning)
    assert any(name.startswith("classifier.") for name in learning)
    assert {"q_proj", "v_proj", "down_proj"} <= {part for name in learning for part in name.split(".")} or (
        {"query", "value", "dense"} <= {part for name in learning for part in name.split(".")}
    )
    results = classification(model_class=model_class, num_train_epochs=6, **LORA | {"learning_rate": 3e-2})
    losses = history(tmp_path / "run", "eval_loss")
    assert min(losses) < 0.8 * losses[0]

    # The folder holds an ordinary model, whose figures the results are; the adapters alone give the same on their base.
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run", trust_remote_code=True)
    assert not any("lora" in name for name in weights_of(tmp_path / "run"))
    logits = logits_of(model, tmp_path / "run")
    base = classification.prepare(model_class=model_class, overwrite_output_dir=True).task.model
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "run" / "adapter")
    torch.testing.assert_close(logits_of(adapted, tmp_path / "run"), logits, rtol=1e-4, atol=1e-5)
    card = (tmp_path / "run" / "README.md").read_text()
    assert "rank 4, alpha 16, dropout 0, in all linear layers; merged into the weights" in card
    assert results["eval_loss"] == pytest.approx(min(losses), rel=1e-4)
    noted = json.loads((tmp_path / "run" / "adapter" / "adapter_config.json").read_text())
    named = str(classification.options["model_name_or_path"]) if model_class == "native" else None
    assert (noted["base_model_name_or_path"], noted["task_type"]) == (named, "SEQ_CLS")


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "T5ForConditionalGeneration", "BertForTokenClassification"])
@pytest.mark.parametrize("is_zoo", [False, True])
def test_merged_weights_compute_what_the_adapters_do(name, is_zoo):
    """Also where a layer is transposed (GPT-2's), and where the base model has no name of its own (T5's)."""
    torch.manual_seed(0)
    model = build_tiny(BY_NAME[name])
    model = (tfm_zoo.from_official(model) if is_zoo else model).eval()
    ids = torch.arange(4, 12)[None]
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if model.config.is_encoder_decoder else {})
    before = model(**inputs).logits
    adapters = Adapters(model, TrainingOptions(model_name_or_path="named", lora_rank=2))
    with torch.no_grad():  # adapters begin at zero
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    expected = model(**inputs).logits
    plain = whole(model, adapters.merged(model.state_dict())).eval()
    torch.testing.assert_close(plain(**inputs).logits, expected, rtol=1e-4, atol=1e-4)
    assert (expected - before).abs().max() > 0.1 and type(plain) is type(model)
    adapters.remove()
    assert not any("lora" in each for each, _ in model.named_parameters())


@CLASSES
def test_a_killed_run_ends_with_the_same_weights(recipe, tmp_path, model_class):
    classification = recipe("classification")
    options = {"model_class": model_class, "checkpointing_steps": 3, "lora_dropout": 0.1, "max_train_steps": 6, **LORA}
    classification(output_dir=tmp_path / "whole", **options)

    class KilledError(BaseException):
        pass

    save = checkpoints.save_checkpoint

    def save_and_die(*args, **kwargs):
        save(*args, **kwargs)
        raise KilledError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(checkpoints, "save_checkpoint", save_and_die)
        classification(**options)
    classification(resume_from_checkpoint="auto", **options)
    whole, resumed = weights_of(tmp_path / "whole"), weights_of(tmp_path / "run")
    assert whole.keys() == resumed.keys() and all(whole[name].equal(resumed[name]) for name in whole)
    refused = classification.refusal(resume_from_checkpoint=tmp_path / "run" / "checkpoint-3", **options, lora_alpha=8)
    assert "lora_alpha was 16" in refused


def test_a_merged_model_is_exported_and_a_decoder_samples(recipe, tmp_path):
    language = recipe("causal_lm")
    language(output_dir=tmp_path / "base", max_train_steps=2)
    options = {"model_name_or_path": tmp_path / "base", "config_overrides": None, "tokenizer_vocab_size": None}
    loop = language.trained(max_train_steps=3, **options, **LORA, lora_target_modules=["q_proj", "v_proj"])
    found = {name.split(".")[-4] for name, p in loop.task.model.named_parameters() if p.requires_grad}
    assert found == {"q_proj", "v_proj"}
    assert logged(loop, "samples")
    model = tfm_zoo.TfmGPTForCausalLM.from_pretrained(tmp_path / "run")
    tfm_zoo.to_official(model)
    before, after = weights_of(tmp_path / "base"), weights_of(tmp_path / "run")
    assert {name.split(".")[-2] for name in before if not before[name].equal(after[name])} == {"q_proj", "v_proj"}
    shutil.copytree(tmp_path / "run" / "adapter", tmp_path / "adapter")
    adapted = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")  # it names its base
    ids = torch.arange(9)[None]
    torch.testing.assert_close(adapted(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"model_name_or_path": None, "config_overrides": "hidden_size=32"}, "give model_name_or_path"),
        ({"lora_target_modules": ["q_proj", "kv_proj"]}, "lora_target_modules 'kv_proj'"),
        ({"freeze_epochs": 1}, "give either freeze_epochs or lora_rank"),
        ({"lora_rank": -1}, "lora_rank must be at least 0"),
        ({"lora_dropout": 1}, "lora_dropout must be at least 0 and below 1"),
    ],
)
def test_what_cannot_be_adapted_is_refused(recipe, tmp_path, options, wrong):
    assert wrong in recipe("classification").refusal(**LORA | options)
    assert not (tmp_path / "run").exists()


def test_without_peft_one_line_says_what_to_install(recipe, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    assert "lora_rank needs PEFT: pip install peft" in recipe("classification").refusal(**LORA)
