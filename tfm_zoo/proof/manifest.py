"""`zoo_manifest.json`: what a checkpoint is and computes, so that anybody can check it later."""

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import torch
import transformers

from .. import __version__
from ..utils.folder_kinds import MANIFEST
from ..utils.locking import atomic_file
from ..utils.quiet import silenced_trying
from .bill import bill_in
from .contents import code_in, digests_of_files, digests_of_tensors, files_in, has_tokenizer, settings_in, types_in
from .fingerprints import fingerprint_of, text_through
from .origin import TESTED, origin_of
from .sentence_files import reading_in

logger = transformers.logging.get_logger(__name__)


def write_manifest(
    model: transformers.PreTrainedModel, folder: Path, state_dict: dict[str, torch.Tensor] | None = None
) -> None:
    """Writes the manifest of a model that has just been saved to `folder`: versions, settings, the SHA-256 of every
    code file and every tensor, and a fingerprint: fixed inputs with what the model computes for them. A quantised one
    says what rounding has cost (`bill`). `state_dict`: the weights that were saved, where they are not the model's own.
    """
    manifest = described(folder)
    if bill := bill_in(manifest["settings"].get("config.json", {})):
        manifest["bill"] = bill
    # A model that cannot be run now (offloaded, sharded) is still worth saving.
    try:
        manifest["fingerprint"] = fingerprint(model, state_dict)
    except Exception as error:
        logger.warning(f"{MANIFEST} in {folder} keeps no outputs to compare with later: {error!r}")
    write(manifest, folder / MANIFEST)


def complete_manifest(folder: str | Path) -> None:
    """Takes into the manifest of a model what was saved beside it since, such as its tokenizer: settings, digests of
    all other files that loading may read but code, and what the tokenizer makes of a text. `verify` then warns of files
    of these kinds that are saved there later. (Of others, such as a card, it says nothing.)"""
    path = Path(folder, MANIFEST)
    saved = json.loads(path.read_text(encoding="utf-8"))
    try:
        made = tokenized(path.parent)
    except Exception as error:  # a model is saved even if its tokenizer, for whatever reason, does not load
        made = None
        logger.warning(f"{path} does not say what the tokenizer makes of a text: {error!r}")
    write(saved | {"settings": settings_in(path.parent)} | files_beside(path.parent) | {"tokenizer": made}, path)


def written_by() -> dict[str, str]:
    """The libraries that write a manifest or a proof, and the day."""
    return {
        "tfm_zoo": __version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "date": date.today().isoformat(),
    }


def described(folder: Path) -> dict[str, Any]:
    """A manifest of what a folder holds, without a fingerprint. `tested`: the releases of transformers with which the
    zoo's code, if it has that, was tested."""
    return {
        **written_by(),
        **({"tested": {"transformers": TESTED}} if origin_of(folder).version == __version__ else {}),
        "settings": settings_in(folder),
        "code": digests_of_files(folder, code_in(folder)),
        "weights": digests_of_tensors(folder),
        "types": sorted(types_in(folder)),
        "fingerprint": None,
    }


def files_beside(folder: Path) -> dict[str, Any]:
    """What a manifest says of all files that loading may read, but for settings, code and tensors; and how a text
    becomes a vector, if files of sentence-transformers say it."""
    return {"files": digests_of_files(folder, files_in(folder) - code_in(folder)), "reading": reading_in(folder)}


def tokenized(folder: Path) -> dict[str, Any] | None:
    """What a folder's tokenizer, if it has one, makes of a text."""
    if not has_tokenizer(folder):
        return None
    with silenced_trying():  # transformers warns of a configuration class that it does not know
        return text_through(transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False))


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
    """Writes a manifest, or a proof of vectors, with each list of numbers on a line."""
    text = json.dumps(manifest, indent=1, default=str)
    text = re.sub(r"\[\n\s+[^\[\]{}\"]*\]", lambda numbers: " ".join(numbers[0].split()), text)
    with atomic_file(path) as file:
        file.write_text(text + "\n", encoding="utf-8")
