"""What a checkpoint's folder holds, as values that can be compared: settings, code, tensors and other files.

This file uses no other file of the zoo: see `check.py`.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

SINGLE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
SETTINGS = ("config.json", "generation_config.json")
CARD = "README.md"
#: fields of the settings that name their origin
ORIGIN = {"_name_or_path", "transformers_version", "name_or_path", "is_local", "local_files_only"}
#: a setting that changes no output; sentence-transformers writes it where it saves a model
HARMLESS = "use_cache"
#: whether `generate` leaves out fields of the generation config that it does not know
FROM_MODEL = "_from_model_config"
#: what transformers runs if a folder has it, and what says which repository an adapter is loaded onto
GENERATE, ADAPTER = "custom_generate/generate.py", "adapter_config.json"
#: what safetensors calls types of floating-point numbers, and what torch does
FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
#: any of these belongs to a tokenizer
TOKENIZER_SETTINGS = "tokenizer_config.json"
TOKENIZERS = ("tokenizer.json", TOKENIZER_SETTINGS, "vocab.txt", "vocab.json")
#: what may be written otherwise, or left out, where a tokenizer is saved again
REWRITTEN = (*TOKENIZERS, "special_tokens_map.json", "added_tokens.json", "merges.txt", "*.model")
#: weights in the formats of other engines
UNREAD_FORMATS = ("*.h5", "*.msgpack", "*.ot", "*.onnx", "*.onnx_data", "*.gguf")
#: what loading reads nothing of: prose and pictures, what runs leave behind
UNREAD = (
    *("*.md", "LICENSE*", "*.png", "*.jpg", "*.svg", "*.pdf", "*.html"),
    *("zoo_manifest.json", "trainer_state.json", "training_args.bin", "training_run.json", "*_results.json"),
    *("events.out.*", "optimizer.*", "scheduler.*", "rng_state*", "scaler.pt", "*predictions*"),
    *UNREAD_FORMATS,
)
#: folders that runs and other programs leave behind
LEFT_FOLDERS = (".*", "__pycache__", "runs", "logs", "wandb", "checkpoint-*")
#: files that may name code: settings of models (a `config.json` may name another one that takes its place), of
#: tokenizers, of processors and of adapters, and what sentence-transformers reads
NAMING = ("*config*.json", "modules.json")
#: what an `auto_map` names: a module in the folder itself, and a class in it. (Before `--` stands a repository.)
TARGET = re.compile(r"(?!.*--)([\w-]+)\.(\w+)")
#: the files that a `config.json` may let take its place, as long as they are looked into
CONFIG = re.compile(r"config\.[\d.]+\.json")
#: whose modules sentence-transformers finds without the folder, and what PEFT imports
KNOWN_MODULES = ("sentence_transformers.", "torch.nn.")
KNOWN_LIBRARIES = ("transformers.", "tfm_zoo.", "diffusers.", "megatron.")
#: files of sentence-transformers, and their fields that name a class: a module, which may lie in the folder, and an
#: activation
SENTENCE_FILES = ("config.json", "modules.json", "router_config.json", "config_sentence_transformers.json")
MODULE_FIELDS = {"type", "types"}
ACTIVATION_FIELDS = {"activation_fn", "activation_function", "sbert_ce_default_activation_function"}
#: fields of adapters that name what PEFT imports
LIBRARY_FIELDS = {"parent_library", "megatron_core"}


def settings_in(folder: Path) -> dict[str, dict[str, Any]]:
    """The fields of each settings file, by the file's name, without those of `ORIGIN`."""
    files = [folder / name for name in SETTINGS if (folder / name).is_file()]
    settings = {path.name: without_origin(read_json(path)) for path in files}
    if (generation := settings.get("generation_config.json")) is not None:
        generation[FROM_MODEL] = bool(generation.get(FROM_MODEL))
    return settings


def both_settings(saved: dict, settings: dict) -> dict[str, tuple[dict, dict]]:
    """The fields of each settings file in a manifest and in its folder. Earlier manifests do not say [`FROM_MODEL`]."""
    now = {name: settings.get(name, {}) for name in SETTINGS}
    unsaid = {name: {FROM_MODEL: fields[FROM_MODEL]} for name, fields in now.items() if FROM_MODEL in fields}
    return {name: (unsaid.get(name, {}) | saved["settings"].get(name, {}), now[name]) for name in SETTINGS}


def without_origin(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in ORIGIN}


def targets_in(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """The code that files of a folder, at whatever depth, let libraries load: the file, what it names, and whether that
    is looked for in the folder alone.

    Raises:
        ValueError: for an `auto_map` that names no classes.
    """
    for path in sorted({path for pattern in NAMING for path in folder.rglob(pattern)}):
        file = path.relative_to(folder)
        if is_unread(file.parent) or not path.is_file():
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):  # whoever loads the folder is told so
            continue
        try:
            yield from ((file.as_posix(), *named) for named in named_by(content, file.name))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} has {error}") from None


def named_by(content: Any, file: str, fields: frozenset[str] = frozenset()) -> Iterator[tuple[str, bool]]:
    """What settings name as code, at whatever depth, and whether it is looked for in the folder alone: classes of an
    `auto_map`, pipelines, modules and activations of sentence-transformers that are not known, libraries of adapters,
    kernels from the Hub, generation of one's own, and a configuration whose name is not looked into. `file`: the name
    of the file; `fields`: those that it is in."""
    if isinstance(content, dict | list):
        for name, value in content.items() if isinstance(content, dict) else ((None, value) for value in content):
            if name == "auto_map":
                check_auto_map(value, file)
            yield from named_by(value, file, fields | {name})
    elif content is not None:
        target = str(content)
        is_unknown = file in SENTENCE_FILES and "." in target and not target.startswith(KNOWN_MODULES)
        is_activation = is_unknown and fields & ACTIVATION_FIELDS
        is_kernel = "/" in target and any(str(field).endswith("_implementation") for field in fields)
        is_library = not target.startswith(KNOWN_LIBRARIES) and fields & LIBRARY_FIELDS
        is_unseen = "configuration_files" in fields and not CONFIG.fullmatch(target)
        if fields & {"auto_map", "impl"} or (is_unknown and fields & MODULE_FIELDS):
            yield target, bool(TARGET.fullmatch(target))
        elif is_kernel or is_library or is_unseen or is_activation or "custom_generate" in fields:
            yield target, False


def check_auto_map(value: Any, file: str) -> None:
    """Raises a ValueError for what is not an `auto_map`: a class, or two for a tokenizer, by Auto class. (Tokenizers of
    old had a list of the two alone.)"""
    named = value.values() if isinstance(value, dict) else [value]
    classes = [one for each in named for one in (each if isinstance(each, list) else [each])]
    is_map = isinstance(value, dict | None) or (isinstance(value, list) and file == TOKENIZER_SETTINGS)
    if not is_map or not all(isinstance(one, str | None) for one in classes):
        raise ValueError(f"auto_map={value!r}; it should name a class, such as 'modeling.Model', for each Auto class.")


def code_in(folder: Path) -> set[str]:
    """Names of the code files in `folder` that loading may run: those of [`targets_in`], `GENERATE` in any folder, and
    all that they import. A class is looked for beside the file that names it, and above."""
    waiting = [path.relative_to(folder) for path in folder.rglob(GENERATE) if not is_unread(path.relative_to(folder))]
    for file, target, _ in targets_in(folder):
        if match := TARGET.fullmatch(target):
            waiting += [place / f"{match[1]}.py" for place in Path(file).parents]
    names = set()
    while waiting:
        name = waiting.pop()
        path = folder / name
        if name.as_posix() not in names and path.is_file():
            names.add(name.as_posix())
            # transformers finds relative imports in the same way.
            text = path.read_text(encoding="utf-8", errors="replace")
            imported = re.findall(r"^\s*(?:from\s+\.([\w.]+)\s+import|import\s+\.([\w.]+))", text, re.MULTILINE)
            waiting += [name.parent / f"{one or other}.py" for one, other in imported]
    return names


def foreign_in(folder: Path) -> list[str]:
    """What the folder lets be loaded from elsewhere than its own files, each with the file that names it."""
    foreign = [f"{file} names code {target!r}" for file, target, is_inside in targets_in(folder) if not is_inside]
    foreign += [f"modules.json names the folder {path!r}, which is not recorded" for path in unread_modules_in(folder)]
    if (folder / ADAPTER).is_file():
        try:
            base = read_json(folder / ADAPTER).get("base_model_name_or_path")
        except ValueError:
            base = None
        foreign.append(f"{ADAPTER} names the base {base!r} of an adapter, which changes or replaces the weights")
    return foreign


def unread_modules_in(folder: Path) -> list[str]:
    """The folders of modules of sentence-transformers that lie elsewhere, or where nothing is recorded."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    modules = modules if isinstance(modules, list) else []
    paths = [str(module.get("path", "")) for module in modules if isinstance(module, dict)]
    return [path for path in paths if is_unread(Path(path)) or Path(path).is_absolute()]


def files_in(folder: Path) -> set[str]:
    """Names of all files that loading may read, but for settings and tensors."""
    known = {*SETTINGS, *weight_names_in(folder), INDEX}
    return {name for name in files_but(folder, UNREAD) if name not in known and not is_unread(Path(name).parent)}


def files_but(folder: Path, left_out: Sequence[str]) -> dict[str, Path]:
    """The files of a folder by name, without those that match a pattern, are hidden, or were left by a run."""
    names = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {
        name.as_posix(): path
        for name, path in names.items()
        if not matches(name.parent, LEFT_FOLDERS) and not matches(Path(name.name), (*left_out, ".*"))
    }


def is_unread(path: Path) -> bool:
    """Whether a path, relative to the checkpoint's folder, is a folder that loading reads nothing of, or is in one."""
    return matches(path, (*LEFT_FOLDERS, "onnx", "openvino"))


def matches(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(part, pattern) for part in path.parts for pattern in patterns)


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZERS) or any(folder.glob("*.model"))


def weight_files_in(folder: Path) -> list[Path]:
    return [folder / name for name in weight_names_in(folder)]


def weight_names_in(folder: Path) -> list[str]:
    """The single file of weights or, without one, the files that the index names."""
    if (folder / SINGLE_FILE).is_file() or not (folder / INDEX).is_file():
        return [SINGLE_FILE] if (folder / SINGLE_FILE).is_file() else []
    files = read_json(folder / INDEX).get("weight_map")
    if not files or not isinstance(files, dict):
        raise ValueError(f"{folder / INDEX} has no weight_map that says which file holds which tensor.")
    if odd := [name for name in files.values() if not isinstance(name, str) or not name]:
        raise ValueError(f"{folder / INDEX} names {odd[0]!r} as a file of weights; it should be a file's name.")
    return sorted(set(files.values()))


def tensors_in(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and tensor of every weight of the checkpoint, one at a time; a ValueError names a file that is not whole."""
    for path in weight_files_in(folder):
        try:
            with safe_open(path, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118
                    yield name, tensors.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"weights cannot be read from {path.name}: {error}") from error


def types_in(folder: Path) -> set[str]:
    """The types of the floating-point weights of the checkpoint, such as "float32", as its files' headers say."""
    types = set()
    for path in weight_files_in(folder):
        with suppress(SafetensorError, OSError), safe_open(path, framework="pt") as tensors:
            types |= {tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118
    return {FLOATS.get(name, name) for name in types if "F" in name}


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
