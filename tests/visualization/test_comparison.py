"""The picture of a comparison says which curve is whose, and what became of it."""

import pytest
from matplotlib.colors import to_rgba

from tfm_zoo.visualization import TrainedModel, plot_comparison
from tfm_zoo.visualization.comparison import comparison

LEVELS = {"uniform guess": 6.9, "token frequencies": 5.2}


def model(name: str, end: float, diverged: bool = False) -> TrainedModel:
    losses = [(1000 * step, end + 2 / step) for step in range(1, 9)]
    costs = {"tokens per second": 1e4 * end, "memory": 5e8, "parameters": None}
    return TrainedModel(name, [*losses[:3], (4000, 99.0)] if diverged else losses, losses[::2], costs, diverged)


MODELS = [model(f"a variant, number {index}", 4 + index / 10) for index in range(10)]


def test_curves():
    figure = comparison([MODELS[3], MODELS[1]], LEVELS, "two")
    training, validation, *_ = figure.axes
    for panel, kind in ((training, "training"), (validation, "validation")):
        drawn = [list(map(tuple, line.get_xydata())) for line in panel.lines[:2]]
        assert drawn == [getattr(MODELS[1], kind), getattr(MODELS[3], kind)]  # the better one first
        assert panel.get_xlabel() == "tokens trained on" and kind in panel.get_ylabel()
        assert {text.get_text() for text in panel.texts} == set(LEVELS)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.texts] == [f"{m.name}: {m.validation[-1][1]:.3f}" for m in MODELS[1:4:2]]


def test_bars_have_the_colours_of_their_curves():
    figure = comparison(MODELS[:3], LEVELS)
    training, _, speed, memory, parameters = figure.axes
    assert [panel.get_title() for panel in (speed, memory, parameters)] == list(MODELS[0].costs)
    assert [label.get_text() for label in speed.get_yticklabels()] == [m.name for m in MODELS[:3]]
    assert [bar.get_width() for bar in speed.patches] == [m.costs["tokens per second"] for m in MODELS[:3]]
    assert [text.get_text() for text in memory.texts] == ["500.0M"] * 3
    assert [text.get_text() for text in parameters.texts] == ["not known"] * 3
    colours = [to_rgba(line.get_color()) for line in training.lines[:3]]
    assert [bar.get_facecolor() for bar in speed.patches] == colours


def test_one_that_diverged_comes_last_and_ends_with_a_cross():
    figure = comparison([model("broken", 3.0, diverged=True), MODELS[0]], LEVELS)
    (legend,) = figure.legends
    assert legend.texts[-1].get_text() == "broken: diverged"
    training = figure.axes[0]
    top = training.get_ylim()[1]
    assert top < 8  # it does not make the others small
    (cross,) = [line for line in training.lines if line.get_marker() == "X"]
    assert list(cross.get_xdata()) == [4000] and list(cross.get_ydata()) == [top]


@pytest.mark.parametrize(("models", "name", "complaint"), [([], "a.png", "0 models"), (MODELS, "a.gif", "a.gif")])
def test_refused(models, name, complaint, tmp_path):
    with pytest.raises(ValueError, match=complaint):
        plot_comparison(models, tmp_path / name)


def test_any_models_make_a_picture(tmp_path):
    """Many, one without an evaluation, and names that look like mathematics."""
    early = TrainedModel("$\\frac{", [(1, 7.0)], [], {"memory": 1.0}, diverged=True)
    plot_comparison([early, *(model(f"model {number}", 4.0) for number in range(25))], tmp_path / "a.svg", LEVELS)
    assert "model 24" in (tmp_path / "a.svg").read_text()
