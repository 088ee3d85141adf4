"""What a checkpoint is and computes, written beside it, so that it can be proven later: `zoo_manifest.json`."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from torch import nn
from torch.func import functional_call
from transformers.modeling_outputs import ModelOutput

VERSION = "0.1.0"  # of tfm_zoo
FILE = "zoo_manifest.json"
VALUES = 64  # of each output that are kept


def write_manifest(model: nn.Module, folder: str | Path, state_dict: dict[str, torch.Tensor] | None = None) -> None:
    """Writes the manifest of the checkpoint in `folder`: versions, the SHA-256 of every code file and every tensor, and
    a fingerprint: fixed inputs with the outputs that the model gives for them.

    Args:
        state_dict: the weights that were saved, where they were not the model's own.
    """
    folder = Path(folder)
    manifest = {
        "tfm_zoo": VERSION,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "code": {path.name: digest(path.read_bytes()) for path in sorted(folder.glob("*.py"))},
        "weights": weights_of(folder),
        "fingerprint": None,
    }
    # A model that cannot be run now (offloaded, sharded, in pieces of another kind) is still worth saving.
    with suppress(Exception):
        if is_whole(model):
            manifest["fingerprint"] = fingerprint(model, state_dict)
    (folder / FILE).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest_of_tensor(tensor: torch.Tensor) -> str:
    """Of its type, its shape and its values."""
    found = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def weights_of(folder: Path) -> dict[str, str]:
    """Name -> digest, of every tensor in the safetensors files of a folder, one at a time in memory."""
    digests = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as tensors:
            digests |= {name: digest_of_tensor(tensors.get_tensor(name)) for name in tensors.keys()}  # noqa: SIM118
    return digests


def is_whole(model: nn.Module) -> bool:
    """Whether a model can be run as it stands: nothing of it is elsewhere (offloaded, sharded) or in another form."""
    parameters = list(model.parameters())
    plain = all(type(parameter) is nn.Parameter and not parameter.is_meta for parameter in parameters)
    return plain and getattr(model, "hf_quantizer", None) is None and getattr(model, "_tp_size", None) is None


@torch.no_grad()
def fingerprint(model: nn.Module, state_dict: dict[str, torch.Tensor] | None = None) -> dict:
    """Inputs that the model's class makes, and of every floating output its shape and some of its values."""
    inputs, training = model.fingerprint_inputs(), model.training
    on_device = {name: ids.to(model.device) for name, ids in inputs.items()}
    model.eval()
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    weights = {name: value for name, value in (state_dict or {}).items() if tied.get(name) not in state_dict}
    try:
        outputs = functional_call(model, weights, kwargs=on_device | {"return_dict": True})
    finally:
        model.train(training)
    return {
        "class": type(model).__name__,
        "dtype": str(model.dtype).removeprefix("torch."),
        "inputs": {name: ids.tolist() for name, ids in inputs.items()},
        "outputs": sample(outputs),
    }


def sample(outputs: ModelOutput) -> dict[str, dict]:
    """Of every floating output its shape, and values at even distances."""
    samples = {}
    for name, values in outputs.items():
        if isinstance(values, torch.Tensor) and values.is_floating_point():
            flat = values.float().cpu().flatten()
            places = torch.linspace(0, flat.numel() - 1, min(VALUES, flat.numel())).long()
            samples[name] = {"shape": list(values.shape), "values": flat[places].tolist()}
    return samples
