"""`zoo_manifest.json`: what a checkpoint is and computes, so that anybody can check it later.

This file uses no other file of the zoo, since `tfm-zoo verify` runs it beside the checkpoint's own code.
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
import transformers
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.func import functional_call

VERSION = "0.2.0"  # of tfm_zoo
FILE = "zoo_manifest.json"

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SETTINGS = ("config.json", "generation_config.json")
#: fields of the settings that name their origin
ORIGIN = {"_name_or_path", "_from_model_config", "transformers_version"}
#: how many values of each output the fingerprint keeps
VALUES = 64

logger = transformers.logging.get_logger(__name__)


def write_manifest(model: nn.Module, folder: Path, state_dict: dict[str, torch.Tensor] | None = None) -> None:
    """Writes the manifest of the checkpoint in `folder`: versions, settings, the SHA-256 of every code file and every
    tensor, and a fingerprint: fixed inputs with the outputs that the model gives for them. `state_dict`: the weights
    that were saved, where they are not the model's own.
    """
    settings = settings_in(folder)
    manifest = {
        "tfm_zoo": VERSION,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "settings": settings,
        "code": digests_of_files(folder, code_in(folder, settings["config.json"])),
        "weights": digests_of_tensors(folder),
        "fingerprint": None,
    }
    # A model that cannot be run now (offloaded, sharded, quantised) is still worth saving.
    try:
        manifest["fingerprint"] = fingerprint(model, state_dict)
    except Exception as error:
        logger.warning(f"{FILE} in {folder} keeps no outputs to compare with later: {error!r}")
    (folder / FILE).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


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


def fingerprint(model: nn.Module, state_dict: dict[str, torch.Tensor] | None = None) -> dict[str, Any]:
    """Inputs from `model.fingerprint_inputs()`; of each floating-point output, its shape and some of its values.

    `state_dict`: weights to compute with, where they are not the model's own.
    """
    is_plain = all(type(parameter) is nn.Parameter and not parameter.is_meta for parameter in model.parameters())
    quantization = getattr(getattr(model, "hf_quantizer", None), "quantization_config", None)
    is_plain &= quantization is None or quantization.quant_method == "tfm_zoo"
    if not is_plain or (getattr(model, "_tp_size", None) or 1) > 1:
        raise RuntimeError("the model is offloaded, sharded or quantised")
    inputs, parameters = model.fingerprint_inputs(), model.state_dict()
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    weights = {name: value.to(parameters[name]) for name, value in (state_dict or {}).items() if name in parameters}
    weights = {name: value for name, value in weights.items() if tied.get(name) not in weights}
    return {
        "dtype": str(quantization.dtype if quantization else model.dtype).removeprefix("torch."),
        "inputs": {name: ids.tolist() for name, ids in inputs.items()},
        "outputs": outputs_of(model, inputs, weights),
    }


def fixed_inputs(config: Any, vocab_size: int, length: int = 12) -> dict[str, torch.LongTensor]:
    """Two sequences of ids from all over the vocabulary, the second padded at its end, and their mask: `(2, length)`.

    They end with the model's end-of-sequence token, and are shorter if it has fewer positions.
    """
    # RoBERTa's first position follows that of padding.
    first_position = config.pad_token_id + 1 if config.position_ids_from_padding else 0
    length = max(2, min(length, config.max_position_embeddings - first_position))
    ends = [config.eos_token_id] if isinstance(config.eos_token_id, int) else config.eos_token_id or []
    special = {*ends, config.pad_token_id, config.bos_token_id}
    ordinary = [token for token in range(vocab_size) if token not in special] or [0]
    ids = torch.tensor([ordinary[place * len(ordinary) // (2 * length)] for place in range(2 * length)]).view(2, length)
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, length // 2 :] = 0
    ids = ids.masked_fill(mask == 0, config.pad_token_id or 0)
    if ends and ends[0] < vocab_size:
        ids[[0, 1], mask.sum(dim=1) - 1] = ends[0]
    return {"input_ids": ids, "attention_mask": mask}


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
