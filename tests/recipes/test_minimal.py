"""The recipe that is one loop of plain Accelerate: it learns, and what it saves loads without `tfm_zoo`."""

import re

import pytest
from datasets import ClassLabel, Dataset

import tfm_zoo

from .conftest import ROOT, imported, run_here, run_python

pytestmark = pytest.mark.slow

RECIPE = imported(ROOT / "recipes" / "minimal.py")


def test_it_learns_and_what_it_saves_predicts(tmp_path, capfd):
    accuracies = run_here(RECIPE, {"output_dir": tmp_path / "run"})
    losses = [float(loss) for loss in re.findall(r"epoch \d: last loss ([\d.]+)", capfd.readouterr().out)]
    assert len(losses) == len(accuracies) == 3
    assert losses[-1] < 0.8 * losses[0] and accuracies[-1] > 0.9
    texts = ["the music was rather moving", "the plot was so hollow"]
    lines = run_python(ROOT / "recipes" / "predict.py", tmp_path / "run", *texts).stdout.splitlines()
    assert lines[0].split() == ["negative", "positive", "text"]
    assert [line.split()[1].endswith("*") for line in lines[1:]] == [True, False]


def test_an_official_checkpoint_and_a_data_set(tmp_path, checkpoint, rows):
    reviews = Dataset.from_list([{"text": row["review"], "label": row["stars"] == "good"} for row in rows[:40]])
    reviews = reviews.cast_column("label", ClassLabel(names=["bad", "good"]))
    (tmp_path / "data").mkdir()
    for split, part in reviews.train_test_split(test_size=0.25, seed=0).items():
        part.to_parquet(tmp_path / "data" / f"{split}.parquet")
    options = {"model_name_or_path": checkpoint, "dataset_name": tmp_path / "data", "max_seq_length": 16}
    run_here(RECIPE, options | {"output_dir": tmp_path / "run", "num_train_epochs": 1})
    saved = tfm_zoo.TfmBertForSequenceClassification.from_pretrained(tmp_path / "run")
    assert (saved.config.hidden_size, saved.config.label2id) == (32, {"bad": 0, "good": 1})
