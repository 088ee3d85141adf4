"""The code that is saved with every checkpoint obeys what transformers asks of code on the Hub.

transformers finds a file's relative imports by a regular expression over its text, copies the files it finds by
basename into one folder, and demands every other package that a file imports.
"""

import ast
import re
import sys
from pathlib import Path

import pytest

import tfm_zoo.models

FOLDER = Path(tfm_zoo.models.__file__).parent
FILES = sorted(FOLDER.glob("*.py"))
# The last two are required by transformers itself.
ALLOWED = sys.stdlib_module_names | {"torch", "transformers", "huggingface_hub", "safetensors"}
TRANSFORMERS_SEES = re.compile(r"^\s*(?:from\s+\.(\S+)\s+import|import\s+\.(\S+)\s*$)", flags=re.MULTILINE)


def offences(text: str) -> list[str]:
    """What in a travelling file breaks the rules, with its line."""
    found, seen = [], {}
    for match in TRANSFORMERS_SEES.finditer(text):
        line = text.count("\n", 0, match.start(1)) + 1
        seen[line] = match[1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            if seen.pop(node.lineno, None) != node.module or f"{node.module}.py" not in [file.name for file in FILES]:
                found.append(f"line {node.lineno}: not a plain `from .file import name` on a line of its own")
        elif isinstance(node, ast.ImportFrom | ast.Import):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for module in modules:
                if module.split(".")[0] not in ALLOWED:
                    found.append(f"line {node.lineno}: {module} is not there on a machine with transformers alone")
                if module == "__future__":
                    found.append(f"line {node.lineno}: annotations become strings, which transformers cannot read")
    found += [f"line {line}: text that transformers takes for an import of .{name}" for line, name in seen.items()]
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_file_can_travel(file):
    assert offences(file.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "from ..training import loops",
        "from .sub.norms import make_norm",
        "from . import norms",
        "from .nowhere import make_norm",
        "from .norms \\\n    import make_norm",
        "import os; from .norms import make_norm",
        '"""Recipes:\n\n    from .recipe import train\n"""',
        "def lazily():\n    import tfm_zoo",
        "try:\n    import numpy\nexcept ImportError:\n    pass",
        "import torch, einops.layers",
        "from __future__ import annotations",
    ],
)
def test_offence_is_found(text):
    assert len(offences(text)) == 1


def test_folder_is_flat():
    entries = {entry.name for entry in FOLDER.iterdir()} - {"__pycache__"}
    assert entries == {file.name for file in FILES}
