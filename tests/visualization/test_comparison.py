"""The picture of a comparison says which curve is whose, and what became of it."""

import pytest
from matplotlib.colors import to_rgba

from tfm_zoo.visualization import TrainedModel, plot_comparison
from tfm_zoo.visualization.comparison import comparison

LEVELS = {"uniform guess": 6.9, "token frequencies": 5.2}


def model(name: str, end: float, diverged: bool = False) -> TrainedModel:
    losses = [(1000 * step, end + 2 / step) for step in range(1, 9)]
    costs = {"tokens per second": 1e4 * end, "parameters": None}
    return TrainedModel(name, [*losses[:3], (4000, 99.0)] if diverged else losses, losses[::2], costs, diverged)


def test_each_curve_and_bar_is_its_models():
    better, worse, broken = model("better", 4.0), model("worse", 4.5), model("broken", 3.0, diverged=True)
    figure = comparison([broken, worse, better], LEVELS, "three")
    training, validation, speed, parameters = figure.axes
    for panel, kind in ((training, "training"), (validation, "validation")):
        drawn = [[*map(tuple, line.get_xydata())] for line in panel.lines[:2]]
        assert drawn == [getattr(better, kind), getattr(worse, kind)]  # the best one first, a broken one last
        assert {text.get_text() for text in panel.texts} == set(LEVELS)
    (legend,) = figure.legends
    names = [f"{each.name}: {each.validation[-1][1]:.3f}" for each in (better, worse)]
    assert [text.get_text() for text in legend.texts] == [*names, "broken: diverged"]
    assert sorted(bar.get_width() for bar in speed.patches) == [3e4, 4e4, 4.5e4]
    colours = {1e4 * end: line.get_color() for end, line in zip((4, 4.5, 3), training.lines, strict=False)}
    assert all(bar.get_facecolor() == to_rgba(colours[bar.get_width()]) for bar in speed.patches)
    assert [text.get_text() for text in parameters.texts] == ["not known"] * 3
    top = training.get_ylim()[1]
    assert top < 8  # one that diverged does not make the others small
    (cross,) = [line for line in training.lines if line.get_marker() == "X"]
    assert [*map(tuple, cross.get_xydata())] == [(4000, top)]


@pytest.mark.parametrize(("count", "name", "complaint"), [(0, "a.png", "0 models"), (2, "a.gif", "a.gif")])
def test_refused(count, name, complaint, tmp_path):
    with pytest.raises(ValueError, match=complaint):
        plot_comparison([model("a variant", 4.0)] * count, tmp_path / name)


def test_any_models_make_a_picture(tmp_path):
    """Many, one without an evaluation, and names that look like mathematics."""
    early = TrainedModel("$\\frac{", [(1, 7.0)], [], {"parameters": 1.0}, diverged=True)
    plot_comparison([early, *(model(f"model {number}", 4.0) for number in range(25))], tmp_path / "a.svg", LEVELS)
    assert "model 24" in (tmp_path / "a.svg").read_text()
