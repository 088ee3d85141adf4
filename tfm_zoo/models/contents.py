"""What of a folder is the checkpoint: the settings, code and tensors that `from_pretrained` reads."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SETTINGS = ("config.json", "generation_config.json")
#: fields of settings that say where they come from
ORIGIN = {"_name_or_path", "_from_model_config", "transformers_version"}
#: how transformers finds what a file of code needs beside it
RELATIVE_IMPORT = re.compile(r"^\s*(?:import\s+\.(\S+)\s*$|from\s+\.(\S+)\s+import)", flags=re.MULTILINE)


def settings_in(folder: Path) -> dict[str, dict[str, Any]]:
    """File -> fields, but for where they come from."""
    read = {name: read_json(folder / name) for name in SETTINGS if name == SETTINGS[0] or (folder / name).is_file()}
    return {name: {key: value for key, value in fields.items() if key not in ORIGIN} for name, fields in read.items()}


def code_in(folder: Path, config: dict[str, Any]) -> set[str]:
    """Names of the files that a configuration's `auto_map` leads to, directly or by relative imports, and are there."""
    waiting = [str(target).rpartition(".")[0] for target in (config.get("auto_map") or {}).values()]
    found = set()
    while waiting:
        path = folder / f"{waiting.pop()}.py"
        if path.name not in found and path.is_file():
            found.add(path.name)
            waiting += [one or other for one, other in RELATIVE_IMPORT.findall(path.read_text(encoding="utf-8"))]
    return found


def weight_files_in(folder: Path) -> list[Path]:
    """The files that `from_pretrained` takes: the one of all weights or, without it, those that an index names."""
    if (folder / WEIGHTS).is_file() or not (folder / INDEX).is_file():
        return [path for path in [folder / WEIGHTS] if path.is_file()]
    return [folder / name for name in sorted(set(read_json(folder / INDEX).get("weight_map", {}).values()))]


def tensors_in(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of the checkpoint with its name, one at a time in memory.

    Raises:
        ValueError: for a file that is not whole, or not there.
    """
    for path in weight_files_in(folder):
        try:
            with safe_open(path, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118
                    yield name, tensors.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"weights cannot be read from {path.name}: {error}") from error


def digests_of_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Name -> digest, of the files that are there."""
    return {name: digest((folder / name).read_bytes()) for name in sorted(names) if (folder / name).is_file()}


def digests_of_tensors(folder: Path) -> dict[str, str]:
    return {name: digest_of_tensor(tensor) for name, tensor in tensors_in(folder)}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest_of_tensor(tensor: torch.Tensor) -> str:
    """Of its type, its shape and its values."""
    found = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """
    Raises:
        ValueError: for a file that is not there, or no JSON object; the message names it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {type(content).__name__} where a JSON object is wanted.")
    return content
