"""The code that is saved with every checkpoint computes, and obeys what transformers asks of code on the Hub.

transformers finds a file's relative imports by a regular expression over its text, copies the files it finds by
basename into one folder, and demands every other package that a file imports. Whoever trusts that code can read here
what it may use: it opens no file, makes no request and starts no process.
"""

import ast
import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import tfm_zoo.models
from tfm_zoo.families.auto_classes import FAMILIES
from tfm_zoo.models.configuration_tfm import TfmConfig

FOLDER = Path(tfm_zoo.models.__file__).parent
FILES = sorted(FOLDER.glob("*.py"))
#: packages, parts of the standard library that touch nothing outside of the process, and a module of what transformers
#: requires, whose decorator its own configurations use
ALLOWED = {"torch", "transformers", "huggingface_hub.dataclasses"}
ALLOWED |= {"collections", "contextlib", "copy", "dataclasses", "difflib", "functools", "inspect", "itertools", "math"}
ALLOWED |= {"operator", "re", "sys.maxsize", "typing"}
#: what reads, writes, downloads or runs all the same
BUILT_IN = {"open", "exec", "eval", "compile", "input", "breakpoint", "__import__", "__builtins__"}
IN_PACKAGES = {"torch.load", "torch.save", "torch.hub", "torch.ops", "torch.multiprocessing", "torch.utils"}
IN_PACKAGES |= {"transformers.dynamic_module_utils", "transformers.utils.hub"}
TRANSFORMERS_SEES = re.compile(r"^\s*(?:from\s+\.(\S+)\s+import|import\s+\.(\S+)\s*$)", flags=re.MULTILINE)


def code_of(family: type[TfmConfig]) -> dict[str, bytes]:
    """The files that travel with a checkpoint, name -> content: its modeling file, and all that it imports."""
    waiting, code = [family.modeling_file], {}
    while waiting:
        file = FOLDER / f"{waiting.pop()}.py"
        code[file.name] = file.read_bytes()
        nodes = ast.walk(ast.parse(code[file.name]))
        imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level}
        waiting += [name for name in imported if f"{name}.py" not in code and name not in waiting]
    return code


def offences(text: str) -> list[str]:
    """What in a travelling file breaks the rules, with its line."""
    seen = {text.count("\n", 0, match.start(1)) + 1: match[1] for match in TRANSFORMERS_SEES.finditer(text)}
    found = [f"line {node.lineno}: {fault}" for node in ast.walk(ast.parse(text)) for fault in faults_of(node, seen)]
    return found + [f"line {line}: transformers takes it for an import of .{name}" for line, name in seen.items()]


def faults_of(node: ast.AST, seen: dict[int, str]) -> Iterator[str]:
    """Of the relative imports that transformers has `seen`, line -> name, those that are none stay there."""
    if isinstance(node, ast.ImportFrom) and node.level:
        if seen.pop(node.lineno, None) != node.module or not (FOLDER / f"{node.module}.py").is_file():
            yield "not a plain `from .file import name` on a line of its own"
    elif isinstance(node, ast.ImportFrom | ast.Import):
        module = getattr(node, "module", None)
        for name in [f"{module}.{alias.name}" if module else alias.name for alias in node.names]:
            prefixes = set(accumulate(name.split("."), "{}.{}".format))
            if not prefixes & ALLOWED or prefixes & IN_PACKAGES:
                yield f"{name} is not there on a machine with transformers alone, or does more than compute"
    elif isinstance(node, ast.Name) and node.id in BUILT_IN:
        yield f"{node.id} does more than compute"
    elif isinstance(node, ast.Attribute) and ast.unparse(node) in IN_PACKAGES:
        yield f"{ast.unparse(node)} does more than compute"


def test_every_file_can_travel_and_does_with_some_family():
    assert len(offences("import os\nopen(os.name)\nfrom ..utils import moved\n")) == 3
    assert {file.name: offences(file.read_text()) for file in FILES} == {file.name: [] for file in FILES}
    assert {entry.name for entry in FOLDER.iterdir()} - {"__pycache__"} == {file.name for file in FILES}
    assert {file.name for file in FOLDER.glob("[!_]*.py")} == set().union(*map(code_of, FAMILIES.values()))
