"""What a checkpoint's folder holds and what its model computes, as values that can be compared.

This file uses no other file of the zoo, since `check.py` runs it beside the checkpoint's own code.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.func import functional_call

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SETTINGS = ("config.json", "generation_config.json")
#: fields of the settings that name their origin
ORIGIN = {"_name_or_path", "_from_model_config", "transformers_version"}
#: how many values of each output the fingerprint keeps
VALUES = 64


def settings_in(folder: Path) -> dict[str, dict[str, Any]]:
    """The fields of each settings file, by the file's name, without those of `ORIGIN`."""
    files = [folder / name for name in SETTINGS if (folder / name).is_file()]
    fields = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in files}
    return {name: {key: value for key, value in fields[name].items() if key not in ORIGIN} for name in fields}


def code_in(folder: Path, config: dict[str, Any]) -> set[str]:
    """Names of the code files in `folder` that the configuration's `auto_map` names, and of all that these import."""
    waiting = [str(target).rpartition(".")[0] for target in (config.get("auto_map") or {}).values()]
    names = set()
    while waiting:
        path = folder / f"{waiting.pop()}.py"
        if path.name not in names and path.is_file():
            names.add(path.name)
            # transformers finds relative imports in the same way.
            waiting += re.findall(r"^\s*from\s+\.(\S+)\s+import", path.read_text(encoding="utf-8"), re.MULTILINE)
    return names


def weight_files_in(folder: Path) -> list[Path]:
    """The single file of weights or, without one, the files that the index names."""
    if (folder / WEIGHTS).is_file() or not (folder / INDEX).is_file():
        return [path for path in [folder / WEIGHTS] if path.is_file()]
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    return [folder / name for name in sorted(set(index.get("weight_map", {}).values()))]


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
    contents = {name: (folder / name).read_bytes() for name in sorted(names) if (folder / name).is_file()}
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def digests_of_tensors(folder: Path) -> dict[str, str]:
    return {name: digest_of_tensor(tensor) for name, tensor in tensors_in(folder)}


def digest_of_tensor(tensor: torch.Tensor) -> str:
    """The SHA-256 of a tensor's type, shape and values."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


@torch.no_grad()
def outputs_of(
    model: nn.Module, inputs: dict[str, torch.LongTensor], weights: dict[str, torch.Tensor] | None = None
) -> dict[str, dict[str, Any]]:
    """A sample of a model's outputs in evaluation mode; `weights` replace its own of the same names."""
    plain = copy(model)  # leaves out what `model.compile()` sets
    vars(plain).pop("forward", None)  # accelerate's, which uses mixed precision
    inputs = {name: ids.to(model.device) for name, ids in inputs.items()} | {"return_dict": True}
    multiplications = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # TF32 and bfloat16 may be on
    with (
        temporarily(list(plain.modules()), training=False),
        temporarily(multiplications, fp32_precision="ieee"),
        torch.autocast(model.device.type, enabled=False),
    ):
        return sample(functional_call(plain, weights or {}, kwargs=inputs))


@contextmanager
def temporarily(objects: Iterable[Any], **attributes: Any) -> Iterator[None]:
    """Sets attributes of every object, and restores them at the end."""
    originals = [(target, name, getattr(target, name)) for target in objects for name in attributes]
    try:
        for target, name, _ in originals:
            setattr(target, name, attributes[name])
        yield
    finally:
        for target, name, value in originals:
            setattr(target, name, value)


def sample(outputs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The shape of each floating-point output, and evenly spaced values of it.

    A value is `None` if it is not finite, or the lowest of its type, which models put where no answer can be.
    """
    samples = {}
    for name, output in outputs.items():
        if isinstance(output, torch.Tensor) and output.is_floating_point():
            flat = output.detach().cpu().flatten()
            count = min(VALUES, flat.numel())
            values = flat[torch.arange(count) * (flat.numel() - 1) // max(count - 1, 1)]
            valid = values.isfinite() & (values != torch.finfo(values.dtype).min)
            numbers = [value if good else None for value, good in zip(values.tolist(), valid.tolist(), strict=True)]
            samples[name] = {"shape": list(output.shape), "values": numbers}
    return samples
