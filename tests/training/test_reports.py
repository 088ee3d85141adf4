"""What others see of a run: its command, its pictures, what trackers get. A token is in none."""

from dataclasses import asdict

import pytest

from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.report import command_line
from tfm_zoo.training.run import tracker_values
from tfm_zoo.visualization import plot_runs, plot_training


def test_a_published_command_has_no_token_and_no_paths_and_trackers_have_no_token():
    for token in ("--hub_token hf_secret", "--hub_token=hf_secret=secret", "--hub-token hf_secret"):
        relative = ["--validation_file", "../data/b.csv"]  # which is told as it is
        words = ["/home/me/recipes/finetune.py", *token.split(), *relative, "--train_file=/home/me/a b.csv"]
        command = command_line(words)
        assert "secret" not in command and command.startswith("accelerate launch recipes/finetune.py --hub")
        assert command.endswith("--validation_file ../data/b.csv '--train_file=a b.csv'")
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
    plot_training(history, path)
    assert points() == [[[[1, 0.9], [2, 0.7]], [[2, 0.8]]]]
    plot_training(history, path, "f1", best_step=2)
    assert [shown[:-1] for shown in points()] == [[[[1, 0.9], [2, 0.7]], [[2, 0.8]]], [[[2, 0.5]]]]
    assert [panel.lines[-1].get_xdata() for panel in panels[-1]] == [[2, 2]] * 2

    one = [{"step": 5, "loss": 9.0}, {"step": 5, "eval_loss": 3.0, "train_runtime": 60.0}]
    two = [{"step": 4, "eval_loss": 2.5, "train_runtime": 30.0}, {"step": 8, "eval_loss": 2.0, "train_runtime": 90.0}]
    plot_runs({"one": one, "two": two}, path)
    assert points() == [[[[5, 3.0]], [[4, 2.5], [8, 2.0]]], [[[1, 3.0]], [[0.5, 2.5], [1.5, 2.0]]]]
    plot_runs({"one": [{"step": 5, "eval_loss": 3.0}], "two": two}, path)  # a time is not known
    assert len(points()) == 1
    with pytest.raises(ValueError, match="one: no validation loss"):
        plot_runs({"one": one[:1]}, path)
