"""Classifiers of several labels, and of numbers: from a table to predictions."""

import csv
import json
import math
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertForSequenceClassification

from .conftest import ROOT, history, imported, logged

#: how each problem is written: the columns of a row that has the words of a review, and the options that name them
KINDS = {
    "lists": lambda words: {"labels": [*{"fine", "film"}.intersection(words)]},
    "marks": lambda words: {"fine": int("fine" in words), "film": int("film" in words)},
    "number": lambda words: {"label": 0.5 * len(words)},
    "numbers": lambda words: {"length": len(words), "tone": 1.0 if "fine" in words else -1.0},
}
NAMED = {
    "lists": {},
    "marks": {"label_column_name": ["fine", "film"]},
    "number": {"problem_type": "regression"},
    "numbers": {"problem_type": "regression", "label_column_name": ["length", "tone"]},
}
LABELS = {"lists": ["film", "fine"], "marks": ["fine", "film"], "number": ["label"], "numbers": ["length", "tone"]}
PROBLEMS = {"lists": "multi_label_classification", "marks": "multi_label_classification"}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def write(file: Path, rows: list[dict]) -> Path:
    """A JSON file, or a CSV file."""
    if file.suffix == ".json":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with file.open("w", newline="") as lines:
            writer = csv.DictWriter(lines, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    return file


@pytest.fixture
def labelled(rows, tmp_path):
    """Writes the reviews with labels of a kind, in splits; returns the options that name them."""

    def labelled(kind: str) -> dict:
        texts = [row["review"] for row in rows]
        found = [{"text": text} | KINDS[kind](text.split()) for text in texts]
        parts = {"train": found[:50], "validation": found[50:70], "test": found[70:]}
        suffix = "json" if kind == "lists" else "csv"
        files = {f"{name}_file": write(tmp_path / f"{name}.{suffix}", part) for name, part in parts.items()}
        return files | {"text_column_name": None, "label_column_name": None} | NAMED[kind]

    return labelled


@pytest.mark.slow
@EVERY_KIND
def test_it_learns_predicts_and_is_measured_by_predict(finetune, labelled, tmp_path, capsys, kind):
    options = labelled(kind)
    results = finetune(max_train_steps=60, eval_steps=60, learning_rate=1e-2, **options)
    problem, folder = PROBLEMS.get(kind, "regression"), tmp_path / "run"
    losses = history(folder, "loss")
    assert losses[-1] < 0.3 * losses[0]
    figures = {"number": ["mse", "pearsonr"], "numbers": ["mse"]}.get(kind, ["accuracy", "f1", "f1_micro"])
    assert [*results][-len(figures) - 2 :] == [
        "test_loss",
        *(f"test_{name}" for name in figures),
        "test_samples_per_second",
    ]

    card = ModelCard.load(folder / "README.md")
    names = "*, *".join(LABELS[kind])
    says = (
        f"to find which of the labels *{names}* texts have"
        if kind in PROBLEMS
        else f"to give texts a number, *{names}*"
    )
    assert says in card.text
    assert {result.metric_type for result in card.data.eval_results} == {*figures}

    model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
    assert (model.config.problem_type, [*model.config.id2label.values()]) == (problem, LABELS[kind])
    texts = ["fine the film was", "poor town"]
    tokens = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**tokens).logits
    predict = imported(ROOT / "recipes" / "predict.py")
    capsys.readouterr()
    predict.main([str(folder), *texts])
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == [*LABELS[kind], "text"]
    wanted = logits.sigmoid() if kind in PROBLEMS else logits
    for line, row, text in zip(lines, wanted.tolist(), texts, strict=True):
        cells = line.removesuffix(text).split()
        assert [float(cell.rstrip("*")) for cell in cells] == pytest.approx(row, abs=6e-4)
        assert [cell.endswith("*") for cell in cells] == [kind in PROBLEMS and value > 0.5 for value in row]

    columns = {name: value for name, value in options.items() if name == "label_column_name" and value}
    argv = [
        str(folder),
        "--file",
        str(options["test_file"]),
        "--metrics",
        *(("accuracy", "f1") if kind in PROBLEMS else figures),
    ]
    predict.main(argv + [word for name, value in columns.items() for word in (f"--{name}", *value)])
    shown = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert {name: float(value) for name, value in shown.items()} == pytest.approx(
        {name: results[f"test_{name}"] for name in figures}, abs=6e-5
    )


@pytest.mark.parametrize("kind", ["marks", "numbers"])
def test_the_official_class_takes_the_same_steps(finetune, labelled, tmp_path, kind):
    options = labelled(kind) | {"max_train_steps": 2, "eval_steps": 1}
    zoo_and_native = [
        finetune.trained(output_dir=tmp_path / name, model_class=name, **options) for name in ("zoo", "native")
    ]
    for key in ("loss", "grad_norm", "eval_loss"):
        zoo, native = (logged(loop, key) for loop in zoo_and_native)
        assert zoo == pytest.approx(native, rel=1e-5, abs=1e-5) and len(zoo) >= 2


def test_a_figure_of_a_regression_is_better_if_its_error_is_smaller(finetune, labelled):
    loop = finetune.trained(max_train_steps=3, eval_steps=1, learning_rate=1e-2, **labelled("number"))
    assert loop.results()["eval_mse"] == min(logged(loop, "eval_mse"))


@pytest.mark.parametrize(
    ("kind", "row", "options", "message"),
    [
        ("marks", {"fine": 2}, {}, "split 'train', line 5 of train.csv, column 'fine': a label is 1 or 0, not 2"),
        ("number", {"label": "long"}, {}, "line 5 of train.csv, .*'label'.* needs a number, not 'long'"),
        (
            "number",
            {"label": math.nan},
            {},
            "split 'train' has 1 row without a label, the first is line 5 of train.csv, column 'label'",
        ),
        (
            "number",
            {},
            {"problem_type": None},
            "'label' holds .*float64.*, such as .*: to learn numbers, give problem_type",
        ),
        ("number", {"label": math.inf}, {}, "line 5 of .* needs a number, not inf"),
        ("number", {}, {"metrics": ["accuracy"]}, "metric 'accuracy' does not work with .*: .*mse"),
        ("numbers", {}, {"metrics": ["pearsonr"]}, "metric 'pearsonr' does not work with .*0.5, 0.5"),
        ("number", {}, {"metrics": ["f1"]}, "metric 'f1' does not work with .*: .*mse"),
        ("numbers", {}, {"problem_type": "single_label_classification"}, "takes one column with one label in each row"),
        ("number", {}, {"problem_type": "multi_label_classification"}, "takes a column of lists, or several columns"),
    ],
)
def test_labels_that_cannot_be_learnt_are_refused(finetune, labelled, kind, row, options, message):
    named = labelled(kind)
    with named["train_file"].open(newline="") as lines:
        found = [*csv.DictReader(lines)]
    write(named["train_file"], [*found[:3], found[3] | row, *found[4:]])
    with pytest.raises(ValueError, match=message):
        finetune.prepare(**named | options)


def test_lists_in_writing_are_refused(finetune, labelled):
    """As pandas writes them into a CSV file."""
    named = labelled("number")
    with named["train_file"].open(newline="") as lines:
        write(named["train_file"], [row | {"label": "['film', 'book']"} for row in csv.DictReader(lines)])
    with pytest.raises(ValueError, match=r"'label' holds lists that are written as text, such as .*JSON or Parquet"):
        finetune.prepare(**named | {"problem_type": None})


def test_a_checkpoint_of_several_labels_learns_single_ones(finetune, checkpoint, tmp_path):
    """Its problem is not that of the data. (transformers would ask for labels in floating point.)"""
    labels = {"problem_type": "multi_label_classification", "num_labels": 2}
    BertForSequenceClassification.from_pretrained(checkpoint, **labels).save_pretrained(tmp_path / "several")
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(tmp_path / "several")
    for model_class in ("zoo", "native"):
        options = {"model_class": model_class, "output_dir": tmp_path / model_class, "max_train_steps": 2}
        assert finetune.trained(model_name_or_path=tmp_path / "several", **options).state.step == 2
        saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / model_class)
        assert saved.config.problem_type == "single_label_classification"
