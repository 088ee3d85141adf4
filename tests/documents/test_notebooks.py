"""The notebooks: what they write out by hand is what the zoo computes, their models learn, and outputs are stored."""

import json

import pytest
import torch

from ..recipes.conftest import imported
from .document import ROOT

store = imported(ROOT / "recipes" / "notebooks" / "store.py")
#: by notebook, a figure that it ends with, and the bounds of what a model that has learned gets
LEARNED = {
    "encoder": ("accuracy", 0.75, 1),
    "decoder": ("validation_loss", 0, 1.5),
    "encoder_decoder": ("exact", 0.9, 1),
}


def test_every_notebook_is_here():
    assert {path.stem for path in store.NOTEBOOKS.glob("*.ipynb")} == set(LEARNED)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNED)
def test_it_runs_and_its_model_learns(name):
    variables, notebook = {}, json.loads((store.NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    with torch.random.fork_rng([]):
        outputs = store.run(notebook, name, variables)
    stored = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert list(map(kinds, stored)) == list(map(kinds, outputs)), "run python recipes/notebooks/store.py"
    assert sum(kind == "display_data" for cell in stored for kind, _ in kinds(cell)) >= 2
    figure, least, most = LEARNED[name]
    assert least <= variables[figure] <= most


def kinds(outputs: list[dict]) -> list[tuple[str, int]]:
    """What a cell shows, as far as it is the same on every machine: pictures, and numbers of lines."""
    return [(output["output_type"], len(output.get("text", ()))) for output in outputs]
