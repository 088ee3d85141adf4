"""A type checker sees the public names, and finds nothing wrong with their uses."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_type_checker_agrees(tmp_path):
    pytest.importorskip("mypy")
    options = [
        "--ignore-missing-imports",
        "--follow-imports=silent",
        "--warn-unused-ignores",
        f"--cache-dir={tmp_path}",
    ]
    command = [sys.executable, "-m", "mypy", *options, str(Path(__file__).with_name("typed_uses.py"))]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
