"""Which files travel with a checkpoint: its modeling file, and what that imports, directly or not."""

import ast
from pathlib import Path

import tfm_zoo.models
from tfm_zoo.models.configuration_tfm import TfmConfig

FOLDER = Path(tfm_zoo.models.__file__).parent


def code_of(family: type[TfmConfig]) -> dict[str, bytes]:
    """Name -> content."""
    waiting, code = [family.modeling_file], {}
    while waiting:
        file = FOLDER / f"{waiting.pop()}.py"
        code[file.name] = file.read_bytes()
        nodes = ast.walk(ast.parse(code[file.name]))
        imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level}
        waiting += [name for name in imported if f"{name}.py" not in code and name not in waiting]
    return code
