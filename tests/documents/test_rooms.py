"""A room of the package imports from those above it in CONTRIBUTING's table, and from no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import tfm_zoo

from .document import ROOT

PACKAGE = Path(tfm_zoo.__file__).parent
AT_THE_ROOT = {"__init__", "__main__", "cli", "public"}  # they may import every room


def rooms() -> list[str]:
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| room | holds |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)


def imported(file: Path) -> Iterator[str]:
    """The rooms of which a file imports something, also inside its functions."""
    package = ["tfm_zoo", *file.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            modules = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for root, room, *_ in (f"{module}..".split(".") for module in modules):
            if root == "tfm_zoo" and room and (PACKAGE / room).is_dir():
                yield room


def test_rooms_import_from_those_above_them():
    order, wrong = {room: place for place, room in enumerate(rooms())}, set()
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert order.keys() == folders
    for room in order:
        for file in (PACKAGE / room).rglob("*.py"):
            wrong |= {(str(file.relative_to(PACKAGE)), other) for other in imported(file) if order[other] > order[room]}
    assert not wrong


def test_nothing_stands_loose():
    assert {path.stem for path in PACKAGE.glob("*.py")} == AT_THE_ROOT
