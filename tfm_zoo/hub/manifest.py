"""`zoo_manifest.json`: what a checkpoint is and computes, so that anybody can check it later."""

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import torch
import transformers

from .. import __version__
from .contents import code_in, digests_of_files, digests_of_tensors, files_in, settings_in
from .fingerprints import fingerprint_of

FILE = "zoo_manifest.json"

logger = transformers.logging.get_logger(__name__)


def write_manifest(
    model: transformers.PreTrainedModel, folder: Path, state_dict: dict[str, torch.Tensor] | None = None
) -> None:
    """Writes the manifest of a model that has just been saved to `folder`: versions, settings, the SHA-256 of every
    code file and every tensor, and a fingerprint: fixed inputs with what the model computes for them. `state_dict`: the
    weights that were saved, where they are not the model's own.
    """
    manifest = described(folder)
    # A model that cannot be run now (offloaded, sharded) is still worth saving.
    try:
        manifest["fingerprint"] = fingerprint(model, state_dict)
    except Exception as error:
        logger.warning(f"{FILE} in {folder} keeps no outputs to compare with later: {error!r}")
    write(manifest, folder / FILE)


def described(folder: Path, all_files: bool = False) -> dict[str, Any]:
    """A manifest of what a folder holds, without a fingerprint.

    `all_files`: with digests of all files that loading may read. What is saved beside a model later, such as its
    tokenizer, is then no longer as it was recorded.
    """
    code = code_in(folder)
    files = {"files": digests_of_files(folder, files_in(folder) - code)} if all_files else {}
    return {
        "tfm_zoo": __version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "date": date.today().isoformat(),
        "settings": settings_in(folder),
        "code": digests_of_files(folder, code),
        **files,
        "weights": digests_of_tensors(folder),
        "fingerprint": None,
    }


def fingerprint(
    model: transformers.PreTrainedModel, state_dict: dict[str, torch.Tensor] | None = None
) -> dict[str, Any]:
    """What a model in memory computes for fixed inputs: see [`fingerprint_of`].

    `state_dict`: weights to compute with, where they are not the model's own.
    """
    is_spread = any(parameter.is_meta or hasattr(parameter, "placements") for parameter in model.parameters())
    if is_spread or (getattr(model, "_tp_size", None) or 1) > 1:
        raise RuntimeError("the model is offloaded or sharded")
    parameters = model.state_dict() if state_dict else {}
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    weights = {name: value.to(parameters[name]) for name, value in (state_dict or {}).items() if name in parameters}
    return fingerprint_of(model, {name: value for name, value in weights.items() if tied.get(name) not in weights})


def write(manifest: dict[str, Any], path: Path) -> None:
    """Writes a manifest, with each list of numbers on a line."""
    text = json.dumps(manifest, indent=1, default=str)
    text = re.sub(r"\[\n\s+[^\[\]{}\"]*\]", lambda numbers: " ".join(numbers[0].split()), text)
    path.write_text(text + "\n", encoding="utf-8")
