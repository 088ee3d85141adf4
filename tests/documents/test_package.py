"""The package as its readers meet it: rooms import from those above them, texts are plain, a type checker sees the
public names, and the reference holds each of them with its docstring, in a site that needs no network."""

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import tfm_zoo
from benchmarks.readability import tics

from .document import DOCUMENTS, REFERENCE, ROOT

PACKAGE = Path(tfm_zoo.__file__).parent
AT_THE_ROOT = {"__init__", "__main__", "cli", "public"}  # they may import every room
CODE = [path for folder in ("tfm_zoo", "recipes") for path in sorted((ROOT / folder).rglob("*.py"))]
NAMES = [name for page in REFERENCE for name in re.findall(r"^::: ([\w.]+)$", page.text, re.MULTILINE)]


def imported(file: Path) -> Iterator[str]:
    """The rooms of which a file imports something, also inside its functions."""
    package = ["tfm_zoo", *file.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(file.read_text())):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            modules = [".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names]
        for root, room, *_ in (f"{module}..".split(".") for module in modules):
            if root == "tfm_zoo" and room and (PACKAGE / room).is_dir():
                yield room


def test_rooms_import_from_those_above_them():
    """In CONTRIBUTING's table, and from no other; nothing stands loose."""
    rows = (ROOT / "CONTRIBUTING.md").read_text().partition("| room | holds |")[2].partition("\n\n")[0]
    order = {room: place for place, room in enumerate(re.findall(r"^\| `(\w+)` \|", rows, flags=re.MULTILINE))}
    assert order.keys() == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {path.stem for path in PACKAGE.glob("*.py")} == AT_THE_ROOT
    files = [(room, file) for room in order for file in (PACKAGE / room).rglob("*.py")]
    assert not [(file, other) for room, file in files for other in imported(file) if order[other] > order[room]]


def words_of(code: str) -> Iterator[str]:
    """What people read in a file of code: its comments, and its strings of several words."""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def test_words():
    """Free of turns of phrase that readers stumbled over."""
    found = {str(document): tics(document.text) for document in DOCUMENTS}
    for path in CODE:
        found[str(path.relative_to(ROOT))] = [tic for text in words_of(path.read_text("utf-8")) for tic in tics(text)]
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


# Types

#: by package, what no public name's type depends on, and takes a minute to read
NOT_READ = {"transformers": "data models pipelines quantizers"}
NOT_READ["torch"] = "_decomp _dynamo _inductor _refs distributed fx"
SETTINGS = f"""[mypy]
ignore_missing_imports = True
follow_imports = silent
warn_unused_ignores = True
[mypy-{",".join(f"{package}.{name}.*" for package, names in NOT_READ.items() for name in names.split())}]
follow_imports = skip
"""


@pytest.mark.slow
def test_a_type_checker_agrees(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    options = ["--config-file", tmp_path / "mypy.ini", "--cache-dir", os.devnull]
    command = [sys.executable, "-m", "mypy", *options, Path(__file__).with_name("typed_uses.py")]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_misspelt_name_is_told_the_right_one():
    with pytest.raises(AttributeError, match="'speedup': did you mean 'speed_up'"):
        tfm_zoo.speedup  # noqa: B018
    assert {"speed_up", "verify"} < {*dir(tfm_zoo)}


def test_every_public_name_stands_there_once_with_a_docstring():
    """Data, such as `NAMED_CONFIGS`, has no docstring; a dataclass that was given none begins it with its fields."""
    rooms = [import_module(f"tfm_zoo.{room}") for room in ("converters", "hub", "proof", "visualization")]
    public = {name for room in (tfm_zoo, *rooms) for name in room.__all__ if callable(getattr(room, name))}
    documented = [name.rpartition(".")[2] for name in NAMES]
    assert public - {*documented} == set()
    assert len(documented) == len(set(documented)) and len(tfm_zoo.__all__) == len(set(tfm_zoo.__all__))
    texts = {name: getattr(import_module(name.rpartition(".")[0]), name.rpartition(".")[2]).__doc__ for name in NAMES}
    assert [name for name, text in texts.items() if not text or text.startswith(f"{name.rpartition('.')[2]}(")] == []


@pytest.mark.slow
def test_the_site(tmp_path):
    """Built strictly, which follows its links, it loads nothing from elsewhere."""
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for path in tmp_path.rglob("*.html"):
        page = path.read_text("utf-8")
        tags = [tag for tag in re.findall(r"<(?:script|img|link)\b[^>]*>", page) if "canonical" not in tag]
        assert not [tag for tag in tags if re.search(r'\b(?:href|src)="?[^"\s>]*//', tag)], path
