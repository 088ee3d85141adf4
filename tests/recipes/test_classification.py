"""The recipe of classification: from a table to predictions, whatever the labels, the metrics and the model are."""

import json
import logging
import shutil
from importlib import import_module

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import tfm_zoo

from .conftest import CLOCK, SIZES, TINY, Recipe, history, log_of, logged

#: code of a user's own
BLOCK = """import tfm_zoo
class Config(tfm_zoo.TfmBertConfig): model_type = "mine"
class Base(tfm_zoo.TfmBertModel): config_class = Config
class Mine(tfm_zoo.TfmBertForSequenceClassification): config_class, model_class = Config, Base
class Masked(tfm_zoo.TfmBertForMaskedLM): config_class, model_class = Config, Base
Config.register_for_auto_class(), Mine.register_for_auto_class("AutoModelForSequenceClassification")
Masked.register_for_auto_class("AutoModelForMaskedLM")
"""
#: results of a metric of a user's own, one of them under the name of the zoo's
RESULTS = '{"f1": np.mean(predictions), "wrong": np.mean(predictions != np.asarray(references))}'


@pytest.fixture
def finetune(recipe) -> Recipe:
    return recipe("classification")


def test_labels_weigh_what_they_are_told_and_are_smoothed_in_training_alone(finetune):
    """By the order of the log: bad, good. The loss is that of torch."""
    options = {"class_weights": [0.5, 3.0], "label_smoothing_factor": 0.2, "model_name_or_path": None}
    options |= {"per_device_train_batch_size": 100, "learning_rate": 1e-12, "max_train_steps": 1}
    options |= {"config_overrides": f"{SIZES},hidden_dropout=0", "validation_file": finetune.options["train_file"]}
    loop = finetune.trained(**options)
    batch = loop.task.collate([*loop.task.splits["train"].select_columns(["input_ids", "attention_mask", "labels"])])
    with torch.no_grad():
        logits, labels = loop.model.eval()(batch["input_ids"], batch["attention_mask"]).logits, batch["labels"]
    weights = torch.tensor([0.5, 3.0])[labels]
    for key, epsilon in (("loss", 0.2), ("eval_loss", 0.0)):
        losses = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=epsilon, reduction="none")
        assert logged(loop, key) == pytest.approx([((weights * losses).sum() / weights.sum()).item()], rel=1e-5)


def test_a_loss_that_is_no_number_is_one_line(finetune):
    assert "error: the loss is nan at step" in finetune.refusal(learning_rate=1e30, max_train_steps=5)


def test_metrics_of_choice(finetune, own, tmp_path):
    """Several with results of one name, one of which picks the best as it says. A resumed run has the same figures."""
    options = {"metrics": ["accuracy", "f1", own("mine", RESULTS)], "metric_for_best_model": "wrong"}
    options |= {"greater_is_better": False, "max_train_steps": 4, "eval_steps": 1, "checkpointing_steps": 2}
    results, folder = finetune(**options), tmp_path / "run"

    def figures() -> list[dict]:
        return [{key: entry[key] for key in entry.keys() - CLOCK} for entry in log_of(folder) if "eval_loss" in entry]

    whole, names = figures(), {"accuracy", "f1", "mine_f1", "wrong"}
    assert len(whole) == 4 and results["eval_wrong"] == min(history(folder, "eval_wrong"))
    assert results["eval_accuracy"] == pytest.approx(1 - results["eval_wrong"])
    assert {result.metric_type for result in ModelCard.load(folder / "README.md").data.eval_results} == names
    (folder / "all_results.json").unlink()
    shutil.rmtree(folder / "checkpoint-4")
    resumed = finetune(resume_from_checkpoint="auto", **options)
    assert figures() == whole and resumed["eval_mine_f1"] == results["eval_mine_f1"]


@pytest.mark.slow
def test_compiled(finetune, checkpoint, tmp_path):
    """The same steps, and a model that is saved as if it had not been compiled."""
    options = {"max_train_steps": 3, "eval_steps": 2, "model_name_or_path": None, "tokenizer_name": checkpoint}
    options |= {"model_type": "tfm_bert", "config_overrides": f"{SIZES},hidden_dropout=0,attention_dropout=0"}
    plain = finetune.trained(output_dir=tmp_path / "plain", **options)
    compiled = finetune.trained(torch_compile=True, torch_compile_backend="eager", **options)
    for key in ("loss", "eval_loss"):
        assert logged(compiled, key) == pytest.approx(logged(plain, key), abs=1e-6) and len(logged(plain, key)) >= 2
    assert len({(tmp_path / name / "config.json").read_bytes() for name in ("run", "plain")}) == 1
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "run"))
    torch.testing.assert_close(two, one, rtol=0, atol=1e-6)


def test_a_block_of_ones_own_learns_and_goes_on(finetune, recipe, checkpoint, tmp_path, monkeypatch, caplog):
    (tmp_path / "my_block.py").write_text(BLOCK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)  # to `caplog`
    code, tokenizer = import_module("my_block"), AutoTokenizer.from_pretrained(checkpoint)
    for head in (code.Mine, code.Masked):
        head(code.Config(vocab_size=len(tokenizer), **TINY)).save_pretrained(tmp_path / head.__name__)
        tokenizer.save_pretrained(tmp_path / head.__name__)
    options = {"model_name_or_path": tmp_path / "Mine", "trust_remote_code": True, "checkpointing_steps": 1}
    finetune(max_train_steps=1, **options)
    finetune(max_train_steps=2, resume_from_checkpoint="auto", **options)
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run", trust_remote_code=True)
    assert type(saved).__name__ == "Mine" and len(history(tmp_path / "run", "eval_loss")) == 2
    assert "verify run --trust-remote-code" in (tmp_path / "run" / "README.md").read_text()
    assert "model of type" not in caplog.text
    options |= {"model_name_or_path": tmp_path / "Masked", "output_dir": tmp_path / "lm", "max_train_steps": 1}
    recipe("pretraining")(**options, next_sentence_prediction=False, config_overrides=None, tokenizer_vocab_size=None)
    card = (tmp_path / "lm" / "README.md").read_text()
    assert 'pipeline("fill-mask", model="lm", trust_remote_code=True)' in card and "--tokenizer_name lm" in card
    with pytest.raises(
        ValueError, match=r"has \['AutoModelForMaskedLM'\]: first save it with code for AutoModelForSeq"
    ):
        finetune.prepare(model_name_or_path=tmp_path / "lm", trust_remote_code=True, output_dir=tmp_path / "new")


def test_a_random_start_has_the_sizes_of_a_checkpoint_and_none_of_its_weights(finetune, checkpoint):
    new = {"model_name_or_path": None, "config_name": checkpoint, "tokenizer_name": checkpoint}
    tuned = finetune.prepare().model
    native, zoo = (finetune.prepare(model_class=name, **new).model for name in ("native", "zoo"))
    assert type(native).__name__ == "BertForSequenceClassification" and zoo.num_parameters() == tuned.num_parameters()
    assert not torch.allclose(zoo.model.embeddings.embed_tokens.weight, tuned.model.embeddings.embed_tokens.weight)
    torch.testing.assert_close(tfm_zoo.from_official(native).state_dict(), zoo.state_dict(), rtol=0, atol=0)


def test_the_head_reads_the_mean_if_asked(finetune, checkpoint, tmp_path, caplog):
    """As the checkpoint has it, unless it is asked for something else; a new model, too. Official models read the
    first position: with the mean there is no way back to one."""
    mean = {"classifier_pooling": "mean", "max_train_steps": 2, "checkpointing_steps": 1}
    finetune(output_dir=tmp_path / "mean", **mean)
    assert caplog.text.count("new weights were made for") == 1
    again = {"output_dir": tmp_path / "mean", "resume_from_checkpoint": tmp_path / "mean" / "checkpoint-1"}
    with pytest.raises(ValueError, match="classifier_pooling was mean and is None"):
        finetune.resumed(**mean | again | {"classifier_pooling": None})
    kept = finetune.prepare(model_name_or_path=tmp_path / "mean")
    finetune(output_dir=tmp_path / "cls", model_name_or_path=tmp_path / "mean", classifier_pooling="cls")
    new = {"model_name_or_path": None, "config_overrides": SIZES, "tokenizer_name": checkpoint}
    new = finetune.prepare(classifier_pooling="mean", **new)
    assert kept.model.config.classifier_pooling == new.model.config.classifier_pooling == "mean"
    for name in ("mean", "cls"):
        assert json.loads((tmp_path / name / "config.json").read_text())["classifier_pooling"] == name
        assert ("to_official" not in (tmp_path / name / "README.md").read_text()) == (name == "mean")
