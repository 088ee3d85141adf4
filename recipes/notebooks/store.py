"""Runs the cells of the notebooks, and stores in them what the cells print and draw; or of those that are named:

python recipes/notebooks/store.py encoder
"""

import ast
import json
import sys
from base64 import b64encode
from contextlib import redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib
import torch
from matplotlib import pyplot as plt

NOTEBOOKS = Path(__file__).parent
DPI = 60


def run(notebook: dict[str, Any], name: str, variables: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The outputs of each cell of code, as the format of notebooks has them; `variables` become those of the cells."""
    matplotlib.use("Agg")  # which shows nothing
    return [
        outputs_of("".join(cell["source"]), f"{name}.ipynb, {cell['id']}", variables)
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def outputs_of(code: str, title: str, variables: dict[str, Any]) -> list[dict[str, Any]]:
    outputs, printed, tree = [], StringIO(), ast.parse(code, title)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(printed), patch.object(plt, "show", lambda: outputs.append(picture())):
        exec(compile(tree, title, "exec"), variables)
        value = eval(compile(ast.Expression(last.value), title, "eval"), variables) if last else None
    if text := printed.getvalue():
        outputs.insert(0, {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        outputs.append({"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return outputs


def picture() -> dict[str, Any]:
    file = BytesIO()
    plt.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    plt.close("all")
    return {"data": {"image/png": b64encode(file.getvalue()).decode()}, "metadata": {}, "output_type": "display_data"}


def main(*names: str) -> None:
    for path in [NOTEBOOKS / f"{name}.ipynb" for name in names] or sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = json.loads(path.read_text("utf-8"))
        outputs = iter(run(notebook, path.stem, {}))
        for count, cell in enumerate((cell for cell in notebook["cells"] if cell["cell_type"] == "code"), 1):
            cell["outputs"], cell["execution_count"] = next(outputs), count
            for output in cell["outputs"]:
                if "execution_count" in output:
                    output["execution_count"] = count
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
