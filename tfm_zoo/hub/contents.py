"""What a checkpoint's folder holds, as values that can be compared: settings, code, tensors and other files.

This file uses no other file of the zoo: see `check.py`.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SETTINGS = ("config.json", "generation_config.json")
#: fields of the settings that name their origin
ORIGIN = {"_name_or_path", "_from_model_config", "transformers_version", "name_or_path", "is_local", "local_files_only"}
#: what transformers runs if a folder has it, and what says which repository an adapter is loaded onto
GENERATE, ADAPTER = "custom_generate/generate.py", "adapter_config.json"
#: any of these belongs to a tokenizer
TOKENIZER_SETTINGS = "tokenizer_config.json"
TOKENIZERS = ("tokenizer.json", TOKENIZER_SETTINGS, "vocab.txt", "vocab.json")
#: weights in the formats of other engines
UNREAD_FORMATS = ("*.h5", "*.msgpack", "*.ot", "*.onnx", "*.onnx_data", "*.gguf")
#: what loading reads nothing of: prose and pictures, what runs leave behind
UNREAD = (
    *("*.md", "LICENSE*", "*.png", "*.jpg", "*.svg", "*.pdf", "*.html"),
    *("zoo_manifest.json", "trainer_state.json", "training_args.bin", "*_results.json", "events.out.*"),
    *("optimizer.*", "scheduler.*", "rng_state*", "scaler.pt", "*predictions*"),
    *UNREAD_FORMATS,
)
LEFT_FOLDERS = (".*", "__pycache__", "runs", "logs", "wandb", "checkpoint-*")
#: what an `auto_map` names: a module in the folder itself, and a class in it
TARGET = re.compile(r"([\w-]+)\.(\w+)")
#: whose modules sentence-transformers finds without the folder
KNOWN_MODULES = ("sentence_transformers.", "torch.nn.")


def settings_in(folder: Path) -> dict[str, dict[str, Any]]:
    """The fields of each settings file, by the file's name, without those of `ORIGIN`."""
    files = [folder / name for name in SETTINGS if (folder / name).is_file()]
    return {path.name: without_origin(read_json(path)) for path in files}


def without_origin(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in ORIGIN}


def targets_in(folder: Path) -> dict[str, list[str]]:
    """The code that the folder's files let transformers or sentence-transformers load: file -> what it names."""
    named = {}
    for path in [*folder.glob("*config.json"), *folder.glob("*/*config.json"), *folder.glob("modules.json")]:
        try:
            found = list(named_by(json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, RecursionError):  # whoever loads the folder is told so
            continue
        if found:
            named[path.relative_to(folder).as_posix()] = found
    return named


def named_by(content: Any, fields: frozenset[str] = frozenset()) -> Iterator[str]:
    """What settings name as code, at whatever depth: classes of an `auto_map`, pipelines, the modules of
    sentence-transformers that are not its own, and kernels of attention from the Hub. `fields`: those that it is in."""
    if isinstance(content, dict | list):
        for name, value in content.items() if isinstance(content, dict) else ((None, value) for value in content):
            yield from named_by(value, fields | {name})
    elif content is not None:
        target = str(content)
        is_module = "." in target and not target.startswith(KNOWN_MODULES) and fields & {"type", "types"}
        is_kernel = "/" in target and any(str(field).endswith("attn_implementation") for field in fields)
        if is_module or is_kernel or fields & {"auto_map", "impl"}:
            yield target


def code_in(folder: Path) -> set[str]:
    """Names of the code files in `folder` that loading may run: those of [`targets_in`], `GENERATE`, and all that they
    import."""
    targets = {target for named in targets_in(folder).values() for target in named}
    waiting = [f"{match[1]}.py" for match in map(TARGET.fullmatch, targets) if match] + [GENERATE]
    names = set()
    while waiting:
        name = waiting.pop()
        path = folder / name
        if name not in names and path.is_file():
            names.add(name)
            # transformers finds relative imports in the same way.
            text = path.read_text(encoding="utf-8", errors="replace")
            imported = re.findall(r"^\s*(?:from\s+\.([\w.]+)\s+import|import\s+\.([\w.]+))", text, re.MULTILINE)
            waiting += [(Path(name).parent / f"{one or other}.py").as_posix() for one, other in imported]
    return names


def foreign_in(folder: Path) -> list[str]:
    """What the folder lets be loaded from elsewhere than its own files, each with the file that names it."""
    named = [(file, target) for file, targets in sorted(targets_in(folder).items()) for target in targets]
    foreign = [f"{file} names code {target!r}" for file, target in named if not TARGET.fullmatch(target)]
    if (folder / ADAPTER).is_file():
        try:
            base = read_json(folder / ADAPTER).get("base_model_name_or_path")
        except ValueError:
            base = None
        foreign.append(f"{ADAPTER} names the base {base!r} of an adapter, which changes or replaces the weights")
    return foreign


def files_in(folder: Path) -> set[str]:
    """Names of all files that loading may read, but for settings and tensors."""
    known = {*SETTINGS, *(path.name for path in weight_files_in(folder)), INDEX}
    return {name for name in files_but(folder, UNREAD) if name not in known and not is_unread(Path(name).parent)}


def files_but(folder: Path, left_out: Sequence[str]) -> dict[str, Path]:
    """The files of a folder by name, without those that match a pattern, are hidden, or were left by a run."""
    names = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {
        name.as_posix(): path
        for name, path in names.items()
        if not matches(name.parent, LEFT_FOLDERS) and not matches(Path(name.name), (*left_out, ".*"))
    }


def is_unread(folder: Path) -> bool:
    """Whether loading reads nothing of a folder, which is named relative to the checkpoint's."""
    return matches(folder, (*LEFT_FOLDERS, "onnx", "openvino"))


def matches(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(part, pattern) for part in path.parts for pattern in patterns)


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZERS) or any(folder.glob("*.model"))


def weight_files_in(folder: Path) -> list[Path]:
    """The single file of weights or, without one, the files that the index names."""
    if (folder / WEIGHTS).is_file() or not (folder / INDEX).is_file():
        return [path for path in [folder / WEIGHTS] if path.is_file()]
    files = read_json(folder / INDEX).get("weight_map")
    if not isinstance(files, dict):
        raise ValueError(f"{folder / INDEX} has no weight_map that says which file holds which tensor.")
    return [folder / name for name in sorted(set(map(str, files.values())))]


def tensors_in(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and tensor of every weight of the checkpoint, one at a time; a ValueError names a file that is not whole."""
    for path in weight_files_in(folder):
        try:
            with safe_open(path, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118
                    yield name, tensors.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"weights cannot be read from {path.name}: {error}") from error


def digests_of_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: digest_of_file(folder / name) for name in sorted(names) if (folder / name).is_file()}


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file; of a tokenizer's settings, without the fields that name where it was loaded from."""
    digest = hashlib.sha256()
    if path.name == TOKENIZER_SETTINGS:
        digest.update(json.dumps(dict(sorted(without_origin(read_json(path)).items()))).encode())
        return digest.hexdigest()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; a ValueError names a file that is missing or holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {type(content).__name__} where a JSON object is wanted.")
    return content


def digests_of_tensors(folder: Path) -> dict[str, str]:
    return {name: digest_of_tensor(tensor) for name, tensor in tensors_in(folder)}


def digest_of_tensor(tensor: torch.Tensor) -> str:
    """The SHA-256 of a tensor's type, shape and values."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(bytes_of(tensor).numpy())
    return digest.hexdigest()


def is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same type, shape and bits."""
    return (one.dtype, one.shape) == (other.dtype, other.shape) and torch.equal(bytes_of(one), bytes_of(other))


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
