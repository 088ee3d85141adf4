"""The recipe, run in this process on a tiny model."""

import json

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import tfm_zoo

from .conftest import RECIPE, ROOT, WITHOUT_ZOO, as_argv, history, logged, run_python

SIZES = "hidden_size=32,num_attention_heads=2,num_hidden_layers=1,intermediate_size=32"


@pytest.mark.usefixtures("pictures")
def test_learns_and_leaves_everything(finetune, tmp_path):
    results = finetune(num_train_epochs=12, learning_rate=3e-3, max_seq_length=32, eval_steps=24)
    folder = tmp_path / "run"
    assert results["eval_accuracy"] == results["eval_f1"] == 1.0
    assert json.loads((folder / "all_results.json").read_text()) == results
    assert {"train_loss", "train_samples_per_second", "eval_samples_per_second"} <= results.keys()
    losses = history(folder, "loss")
    assert results["train_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert len(losses) == results["train_steps"] == 12 * 4
    assert (folder / "training_curves.png").stat().st_size > 10_000

    model = tfm_zoo.TfmBertForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        logits = model(**tokenizer(["fine", "poor"], padding=True, return_tensors="pt")).logits
    assert [model.config.id2label[i] for i in logits.argmax(-1).tolist()] == ["good", "bad"]

    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == "text-classification"
    assert {result.metric_type: result.metric_value for result in card.data.eval_results} == {
        "accuracy": 1.0,
        "f1": 1.0,
    }
    assert card.data.eval_results[0].dataset_split == "validation"


@pytest.mark.slow
def test_built_in_run_and_prediction_in_a_fresh_process(finetune, tmp_path):
    results = finetune(
        train_file=None,
        validation_file=None,
        text_column_name=None,
        label_column_name=None,
        model_name_or_path=None,
        dataset_name="generated",
        max_train_samples=64,
        max_eval_samples=32,
        num_train_epochs=1,
    )
    assert {"test_accuracy", "test_f1", "test_loss"} <= results.keys()
    assert "The data set is generated" in (tmp_path / "run" / "README.md").read_text()
    texts = ["the plot was brilliant .", "the plot was dull ."]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    shown = run_python(
        "-c", WITHOUT_ZOO, ROOT / "recipes" / "predict.py", tmp_path / "run", texts[0], "--file", tmp_path / "texts.txt"
    )
    head, *lines = shown.stdout.splitlines()
    assert head.split() == ["negative", "positive", "text"]
    assert [line.split("  ")[-1].strip() for line in lines] == [texts[0], *texts]

    model = tfm_zoo.TfmBertForSequenceClassification.from_pretrained(tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    with torch.no_grad():
        expected = model(**tokenizer(texts[0], return_tensors="pt")).logits.softmax(-1)[0].tolist()
    assert [float(cell.rstrip("*")) for cell in lines[0].split()[:2]] == pytest.approx(expected, abs=6e-4)


def test_zoo_and_native_model_take_the_same_steps(finetune, tmp_path):
    zoo, native = (
        finetune.trained(output_dir=tmp_path / name, model_class=name, num_train_epochs=1) for name in ("zoo", "native")
    )
    assert json.loads((tmp_path / "native" / "config.json").read_text())["model_type"] == "bert"
    for key in ("loss", "eval_loss"):
        assert logged(zoo, key) == pytest.approx(logged(native, key), abs=1e-5)


@pytest.mark.slow
def test_compiled(finetune, tmp_path):
    """The same steps, and a model that is saved as if it had not been compiled."""
    finetune(output_dir=tmp_path / "plain", max_train_steps=3, eval_steps=2)
    compiled = {"torch_compile": True, "torch_compile_backend": "eager"}
    finetune(output_dir=tmp_path / "compiled", max_train_steps=3, eval_steps=2, **compiled)
    for key in ("loss", "eval_loss"):
        plain = history(tmp_path / "plain", key)
        assert history(tmp_path / "compiled", key) == pytest.approx(plain, abs=1e-6) and len(plain) >= 2
    for file in ("config.json", "modeling_tfm_bert.py"):
        assert (tmp_path / "compiled" / file).read_bytes() == (tmp_path / "plain" / file).read_bytes()
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "compiled"))
    torch.testing.assert_close(two, one, rtol=0, atol=1e-6)


def test_a_run_of_0_2_goes_on(finetune, tmp_path):
    """It recorded the column of labels by its name, and neither a problem, nor metrics, nor the loss of the best."""
    options = {"max_train_steps": 3, "eval_steps": 1, "checkpointing_steps": 2}
    results = finetune.trained(**options).results()
    folder = tmp_path / "run"
    file = folder / "checkpoint-2" / "trainer_state.json"
    text = file.read_text()
    state = json.loads(text)
    assert state["run"]["label_column_name"] == ["stars"]
    state["run"]["label_column_name"] = "stars"
    for recorded, name in ((state["run"], "problem_type"), (state["run"], "metrics"), (state, "best_loss")):
        del recorded[name]
    file.write_text(json.dumps(state).ljust(len(text)))  # as long as the checkpoint's list of files says
    resumed = finetune.trained(**options, resume_from_checkpoint="auto").results()
    assert {name: resumed[name] for name in ("train_loss", "eval_loss", "best_step")} == {
        name: results[name] for name in ("train_loss", "eval_loss", "best_step")
    }


def test_new_model_with_a_tokenizer_of_choice(finetune, checkpoint):
    new = {"model_name_or_path": None, "tokenizer_name": checkpoint}
    vocab_size = len(AutoTokenizer.from_pretrained(checkpoint))
    config = finetune.prepare(config_overrides=f"{SIZES},norm_position=pre", model_type="tfm_bert", **new).model.config
    assert (config.vocab_size, config.hidden_size, config.norm_position) == (vocab_size, 32, "pre")


def test_a_random_start_has_the_sizes_of_a_checkpoint_and_none_of_its_weights(finetune, checkpoint, tmp_path):
    new = {"model_name_or_path": None, "config_name": checkpoint, "tokenizer_name": checkpoint}
    tuned = finetune.prepare(output_dir=tmp_path / "tuned").model
    native = finetune.prepare(output_dir=tmp_path / "native", model_class="native", **new).model
    finetune(learning_rate=1e-9, max_train_steps=1, **new)
    zoo = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    assert type(native).__name__ == "BertForSequenceClassification"
    assert zoo.num_parameters() == tuned.num_parameters()
    assert not torch.allclose(zoo.model.embeddings.embed_tokens.weight, tuned.model.embeddings.embed_tokens.weight)
    torch.testing.assert_close(tfm_zoo.from_official(native).state_dict(), zoo.state_dict(), rtol=0, atol=1e-6)
    assert "A new model, trained" in (tmp_path / "run" / "README.md").read_text()


def test_the_head_reads_the_mean_if_asked(finetune, checkpoint, tmp_path):
    nothing = {"model_name_or_path": None, "config_name": checkpoint, "tokenizer_name": checkpoint}
    starts = {
        "official": {},
        "zoo": {"model_name_or_path": tmp_path / "official", "classifier_pooling": None},  # as it has it
        "back": {"model_name_or_path": tmp_path / "zoo", "classifier_pooling": "cls"},
    }
    for name, start in starts.items():
        options = {"classifier_pooling": "mean", "max_train_steps": 1} | start
        finetune(output_dir=tmp_path / name, **options)
        reads_mean = name != "back"
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / name)
        assert model.config.classifier_pooling == ("mean" if reads_mean else "cls"), name
        card = (tmp_path / name / "README.md").read_text()
        assert ("| the head reads | the mean of all tokens |" in card) == reads_mean, name
        # Official models read the first position: with the mean there is no way back to one.
        assert ("to_official" in card) == (name == "back"), name
    for start in ({}, {"config_name": None, "model_type": "tfm_bert", "config_overrides": SIZES}):
        options = nothing | start | {"output_dir": tmp_path / start.get("model_type", "new")}
        assert finetune.prepare(classifier_pooling="mean", **options).model.config.classifier_pooling == "mean"


def test_a_resumed_head_reads_what_it_did(finetune, caplog):
    """Nobody is told again that its weights are new."""
    options = {"classifier_pooling": "mean", "max_train_steps": 2, "checkpointing_steps": 1}
    finetune.trained(resume_from_checkpoint="auto", **options)
    assert "new weights were made for" in caplog.text
    caplog.clear()
    assert finetune.trained(resume_from_checkpoint="auto", **options).state.step == 2
    assert "new weights" not in caplog.text and "Continuing from" in caplog.text
    with pytest.raises(ValueError, match="classifier_pooling was mean and is None"):
        finetune.prepare(resume_from_checkpoint="auto", **options | {"classifier_pooling": None})


def test_padding_to_the_maximum_changes_nothing_but_shapes(finetune, tmp_path):
    options = {"max_seq_length": 32, "max_train_steps": 3}
    dynamic = finetune.trained(output_dir=tmp_path / "dynamic", **options)
    padded = finetune.trained(output_dir=tmp_path / "padded", pad_to_max_length=True, **options)
    assert logged(padded, "loss") == pytest.approx(logged(dynamic, "loss"), abs=1e-5)


@pytest.mark.slow
def test_an_error_is_one_line(files, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    argv = as_argv(files | {"output_dir": tmp_path / "run"})
    failed = run_python(RECIPE, *argv, check=False)
    assert failed.returncode == 2
    line = failed.stderr.splitlines()[-1]
    assert line.startswith(f"finetune_classification.py: error: output_dir '{tmp_path}/run' holds a run: give another")
    assert "Traceback" not in failed.stderr


NEW = {"model_name_or_path": None}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"train_file": "nowhere.csv"}, FileNotFoundError, "train_file 'nowhere.csv': no such file"),
        ({"text_column_name": "body"}, ValueError, "text_column_name 'body': no such column"),
        ({"label_column_name": "grade"}, ValueError, "label_column_name 'grade': no such column"),
        ({"resume_from_checkpoint": "nowhere"}, FileNotFoundError, "resume_from_checkpoint 'nowhere'"),
        (
            {"output_dir": f"{__file__}/run", "train_file": "nowhere.csv"},
            PermissionError,
            "test_recipe.py is not a folder that you may write to",
        ),
        (
            {"output_dir": "/proc/run", "train_file": "nowhere.csv"},
            PermissionError,
            "/proc is not a folder that you may",
        ),
        (
            {**NEW, "model_type": "vit"},
            ValueError,
            "model_type 'vit' is not a sequence classifier; these are: albert, ",
        ),
        ({**NEW, "model_type": "t5", "config_overrides": "d_model=8"}, ValueError, "give another"),
        (
            {**NEW, "model_type": "tfm_gpt", "classifier_pooling": "mean"},
            ValueError,
            "for encoders, and 'tfm_gpt' is n",
        ),
        ({"metric_for_best_model": "bleu"}, ValueError, "metric_for_best_model 'bleu': expected one of"),
        ({"max_seq_length": 2}, ValueError, "max_seq_length must be at least 3, not 2: a text has 2 special tokens"),
        ({"model_name_or_path": "nowhere/at-all"}, OSError, "model_name_or_path 'nowhere/at-all': neither a"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused_before_work(finetune, tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        finetune.prepare(**options)
    assert not (tmp_path / "run").exists()
