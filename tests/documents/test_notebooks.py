"""The notebooks: what they compute by hand is what the zoo computes, and their models learn."""

import json
from pathlib import Path

import matplotlib
import pytest
import torch

NOTEBOOKS = Path("recipes/notebooks")
#: by notebook, a figure that it ends with, and the bounds of what a model that has learned gets
LEARNED = {
    "encoder": ("accuracy", 0.75, 1),
    "decoder": ("validation_loss", 0, 1.5),
    "encoder_decoder": ("exact", 0.9, 1),
}


def test_every_notebook_is_here():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(LEARNED)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNED)
def test_it_runs_and_its_model_learns(name):
    matplotlib.use("Agg")  # which shows nothing
    variables = {}
    with torch.random.fork_rng([]):
        for cell in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                assert not cell["outputs"] and cell["execution_count"] is None, "clear the outputs of the notebook"
                exec(compile("".join(cell["source"]), f"{name}.ipynb, {cell['id']}", "exec"), variables)
    figure, least, most = LEARNED[name]
    assert least <= variables[figure] <= most
