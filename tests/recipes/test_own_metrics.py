"""Metrics of choice in a recipe: the zoo's, a user's own, both; without a network."""

import json
import shutil

import pytest
from huggingface_hub import ModelCard

from .conftest import CLOCK, history

#: results of a metric of a user's own, one of them under the name of the zoo's
RESULTS = '{"f1": np.mean(predictions), "wrong": np.mean(predictions != np.asarray(references))}'


def figures(folder) -> list[dict]:
    """What each evaluation gave."""
    entries = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [{key: entry[key] for key in entry.keys() - CLOCK} for entry in entries if "eval_loss" in entry]


def test_a_shipped_one(finetune, tmp_path):
    results = finetune(metrics="f1", max_train_steps=2)
    assert "eval_f1" in results and "eval_accuracy" not in results
    run = json.loads((tmp_path / "run" / "trainer_state.json").read_text())["run"]
    assert (run["metrics"], run["metric_for_best_model"]) == (["f1"], "loss")  # the usual figure is not there


def test_a_users_own_alone_and_the_loss_picks_the_best(finetune, own, tmp_path):
    results = finetune(metrics=own("mine", RESULTS), num_train_epochs=3)
    assert {"eval_f1", "eval_wrong"} <= results.keys() and "eval_accuracy" not in results
    losses = history(tmp_path / "run", "eval_loss")
    assert results["eval_loss"] == min(losses) and len(losses) == 3
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert {result.metric_type: result.metric_value for result in card.data.eval_results} == {
        name: pytest.approx(results[f"eval_{name}"], abs=1e-4) for name in ("f1", "wrong")
    }


def test_two_with_results_of_one_name(finetune, own, tmp_path):
    """Its own figure picks the best, as it says; a resumed run has the same figures."""
    options = {"metrics": ["accuracy", "f1", own("mine", RESULTS)], "metric_for_best_model": "wrong"}
    options |= {"greater_is_better": False, "max_train_steps": 6, "eval_steps": 1, "checkpointing_steps": 2}
    results, folder = finetune(**options), tmp_path / "run"
    named = {"eval_accuracy", "eval_f1", "eval_mine_f1", "eval_wrong"}
    assert all(named <= entry.keys() for entry in figures(folder))
    wrong = history(folder, "eval_wrong")
    assert results["eval_wrong"] == min(wrong) and results["eval_accuracy"] == pytest.approx(1 - min(wrong))
    assert "| wrong |" in (folder / "README.md").read_text()

    whole = figures(folder)
    (folder / "all_results.json").unlink()
    shutil.rmtree(folder / "checkpoint-6")
    resumed = finetune(resume_from_checkpoint="auto", **options)
    assert figures(folder) == whole and resumed["eval_mine_f1"] == results["eval_mine_f1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": ["acuracy"], "train_file": "nowhere.csv"}, "no metric 'acuracy': did you mean 'accuracy'"),
        ({"metrics": ["./mine"], "train_file": "nowhere.csv"}, "no metric './mine'"),
        ({"metrics": ["f1"], "metric_for_best_model": "accuracy"}, r"'accuracy': expected one of \['loss', 'f1'\]"),
        ({"metrics": ["pearsonr", "squad"]}, "metric 'squad' does not work with"),
    ],
)
def test_wrong_names_are_refused_before_anything_is_loaded(finetune, options, message):
    """A metric's before the data are read, and a figure's before the model is loaded."""
    with pytest.raises(ValueError, match=message):
        finetune.prepare(model_name_or_path="nowhere/at-all", **options)
