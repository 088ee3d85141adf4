"""What others see of a run: its card, its command, what trackers get. A token is in none, a person's card is kept."""

from dataclasses import asdict

import pytest

from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.report import command_line
from tfm_zoo.training.run import tracker_values
from tfm_zoo.visualization import plot_runs, plot_training


@pytest.mark.parametrize(
    "token", ["--hub_token hf_secret", "--hub_token=hf_secret", "--hub_token=hf_secret=secret", "--hub-token hf_secret"]
)
def test_a_published_command_has_no_token_and_no_paths(token):
    relative = ["--validation_file", "../data/b.csv", "--test_file", "data/c.csv"]  # which are told as they are
    script = "/home/me/recipes/finetune_classification.py"
    command = command_line([script, *token.split(), *relative, "--train_file=/home/me/a b.csv"])
    assert "secret" not in command and "/home" not in command
    assert command.startswith("accelerate launch recipes/finetune_classification.py --hub")
    assert command.endswith("--validation_file ../data/b.csv --test_file data/c.csv '--train_file=a b.csv'")


def test_trackers_get_simple_values_and_no_token():
    values = tracker_values(TrainingOptions(hub_token="hf_secret"))
    assert "hf_secret" not in str(values) and values["eval_steps"] == "None"
    assert values.keys() | {"hub_token"} == asdict(TrainingOptions()).keys()


def test_pictures_show_what_was_logged(tmp_path, monkeypatch):
    """Losses and metrics of a run; several runs side by side, by steps and by time."""
    panels, path = [], tmp_path / "a.png"
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *_, **__: panels.append(figure.axes))

    def points() -> list:
        """What the panels of the last picture show."""
        return [[line.get_xydata().tolist() for line in panel.lines] for panel in panels[-1]]

    history = [{"step": 1, "loss": 0.9}, {"step": 2, "loss": 0.7}, {"step": 2, "eval_loss": 0.8, "eval_f1": 0.5}]
    for metrics, number in (((), 1), (("f1",), 2), (("f1", "accuracy"), 3)):
        plot_training(history, path, *metrics)
        assert len(points()) == number
        assert points()[:2] == [[[[1, 0.9], [2, 0.7]], [[2, 0.8]]], [[[2, 0.5]]]][:number]
    plot_training(history, path, "f1", best_step=2)
    assert [panel.lines[-1].get_xdata() for panel in panels[-1]] == [[2, 2]] * 2

    one = [{"step": 5, "loss": 9.0}, {"step": 5, "eval_loss": 3.0, "train_runtime": 60.0}]
    two = [{"step": 4, "eval_loss": 2.5, "train_runtime": 30.0}, {"step": 8, "eval_loss": 2.0, "train_runtime": 90.0}]
    plot_runs({"one": one, "two": two}, path)
    assert points() == [[[[5, 3.0]], [[4, 2.5], [8, 2.0]]], [[[1, 3.0]], [[0.5, 2.5], [1.5, 2.0]]]]
    plot_runs({"one": [{"step": 5, "eval_loss": 3.0}], "two": two}, path)  # a time is not known
    assert len(points()) == 1
    with pytest.raises(ValueError, match="one: no validation loss"):
        plot_runs({"one": one[:1]}, path)
