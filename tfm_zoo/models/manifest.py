"""What a checkpoint is and computes, written beside it, so that it can be proven later: `zoo_manifest.json`."""

import json
from pathlib import Path

import torch
import transformers
from torch import nn

from .contents import code_in, digests_of_files, digests_of_tensors, settings_in
from .fingerprint import fingerprint

VERSION = "0.1.0"  # of tfm_zoo
FILE = "zoo_manifest.json"
FIELDS = ("tfm_zoo", "transformers", "torch", "settings", "code", "weights", "fingerprint")

logger = transformers.logging.get_logger(__name__)


def write_manifest(model: nn.Module, folder: str | Path, state_dict: dict[str, torch.Tensor] | None = None) -> None:
    """Writes the manifest of the checkpoint in `folder`: versions, the settings as they are, the SHA-256 of every code
    file and every tensor, and a fingerprint: fixed inputs with the outputs that the model gives for them.

    Args:
        state_dict: the weights that were saved, where they were not the model's own.
    """
    folder = Path(folder)
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
    # A model that cannot be run now (offloaded, sharded, in pieces of another kind) is still worth saving.
    try:
        manifest["fingerprint"] = fingerprint(model, state_dict)
    except Exception as error:
        logger.warning(f"{FILE} in {folder} keeps no outputs to compare with later: {error!r}")
    (folder / FILE).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
