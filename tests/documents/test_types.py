"""A type checker sees the public names, and finds nothing wrong with their uses."""

import subprocess
import sys
from pathlib import Path

import pytest

#: what no public name's type depends on, and takes a minute to read
NOT_READ = (
    *(f"transformers.{name}" for name in ("data", "models", "pipelines", "quantizers")),
    *(f"torch._{name}" for name in ("decomp", "dynamo", "export", "functorch", "higher_order_ops", "inductor")),
    *(f"torch.{name}" for name in ("_refs", "_subclasses", "ao", "distributed", "export", "fx", "onnx", "testing")),
    *("accelerate", "datasets", "matplotlib", "numpy", "pandas", "PIL", "scipy", "sympy"),
)
SETTINGS = f"""
[mypy]
ignore_missing_imports = True
follow_imports = silent
warn_unused_ignores = True
[mypy-{",".join(f"{name}.*" for name in NOT_READ)}]
follow_imports = skip
"""
USES = Path(__file__).with_name("typed_uses.py")
#: what a checker has to find that reads the types of configurations, of models and of functions
WRONG = {
    'norm_position="pre"': 'norm_positoin="pre"',
    "config.hidden_size, int": "config.hidden_size, str",
    "base: PreTrainedModel": "base: int",
    "named: tfm_zoo.TfmConfig": "named: str",
    "layer=1": 'layer="first"',
}


@pytest.mark.slow
def test_a_type_checker_agrees(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    wrong = USES.read_text()
    for right, mistake in WRONG.items():
        wrong = wrong.replace(right, mistake)
    (tmp_path / "wrong.py").write_text(wrong)
    options = ["--config-file", tmp_path / "mypy.ini", "--cache-dir", tmp_path / "cache"]
    command = [sys.executable, "-m", "mypy", *options, USES, tmp_path / "wrong.py"]
    ended = subprocess.run(command, capture_output=True, text=True)
    errors = [line for line in ended.stdout.splitlines() if ": error: " in line]
    assert len(errors) == len(WRONG) and all("wrong.py:" in line for line in errors), ended.stdout + ended.stderr
