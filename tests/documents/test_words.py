"""Documents, docstrings, comments and messages are free of turns of phrase that readers stumbled over."""

import ast
import io
import tokenize
from collections.abc import Iterator

import pytest

from benchmarks.readability import tics

from .document import DOCUMENTS, ROOT

CODE = [path for folder in ("tfm_zoo", "recipes") for path in sorted((ROOT / folder).rglob("*.py"))]


def words_of(code: str) -> Iterator[str]:
    """What people read in a file of code: its comments, and its strings of several words."""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_documents(document):
    assert tics(document.text) == []


def test_code():
    found = {path: [tic for text in words_of(path.read_text("utf-8")) for tic in tics(text)] for path in CODE}
    assert {str(path.relative_to(ROOT)): wrong for path, wrong in found.items() if wrong} == {}
