"""Checkpoint folders, changed as a test wants them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file


def rewrite(folder: Path, change: Callable[[dict], dict]) -> None:
    """Changes a folder's tensors: `change` gets them as a dict and returns another."""
    file = folder / "model.safetensors"
    save_file({name: tensor.clone() for name, tensor in change(load_file(file)).items()}, file, {"format": "pt"})


def edit_config(folder: Path, **changes: Any) -> None:
    """Changes fields of `config.json`, or takes them out, where the value is `...`."""
    file = folder / "config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))
