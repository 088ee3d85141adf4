"""A checkpoint folder to the Hub, in one commit."""

import json
import shlex
from pathlib import Path

import torch
from huggingface_hub import CommitInfo, HfApi, ModelCard

from ..models import manifest as manifests
from ..models.card import card_of, is_ours, moved
from ..models.uploading import CARD, open_repository, upload
from ..registration import FAMILIES

#: what of a folder is no part of the model: of a run, or what could do anything when it is read
FOLDERS = ("__pycache__", "runs", "logs", "wandb")
SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")


class PushError(RuntimeError):
    """An upload that failed; the message says what is missing on the Hub."""


def push(
    folder: str | Path,
    repo_id: str,
    private: bool | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    commit_message: str | None = None,
    native: bool = False,
) -> CommitInfo:
    """Uploads a zoo model's folder: code, weights, tokenizer, generation config, card and manifest, in one commit.

    What is on the Hub stays as it was until all of it is there. A second push of the same folder changes nothing, and
    one after a failure uploads what is missing. Weights and code of an earlier push that the folder does not have are
    taken away. A card on the Hub that a person wrote stays; one that the zoo wrote loads the model from there.

    Args:
        folder: what `save_pretrained` wrote.
        repo_id: `"user/name"`; the repository is made where there is none.
        private: whether a new repository is private.
        revision: a branch, made where there is none; by default the main one.
        token: by default the one of `hf auth login`.
        native: whether the folder is a native model's, such as a recipe trains by `--model_class native`.

    Raises:
        FileNotFoundError: for a folder that lacks what the model needs.
        ValueError: for a revision that is no branch, and for `private` where the repository is public.
        PushError: for an upload that failed.
    """
    folder = Path(folder)
    files = files_of(folder)
    check_whole(folder, files, native)
    api = HfApi(token=token)
    repo_id = open_repository(api, repo_id, private, revision)
    message = commit_message or f"Upload {folder.resolve().name} with tfm_zoo {manifests.VERSION}"
    try:
        card = card_for(folder, repo_id)
        return upload(api, repo_id, files, card, revision=revision, commit_message=message)
    except Exception as error:  # of the network, of the Hub, or of the disk
        again = ["tfm-zoo", "push", str(folder), repo_id, *(["--revision", revision] if revision else [])]
        raise PushError(
            f"The upload to {repo_id} failed: {' '.join(str(error).split())} {lacking(api, files, repo_id, revision)}: "
            f"a push changes all or nothing. Push again ({shlex.join(again)}): what is there is not sent a second time."
        ) from error


def files_of(folder: Path) -> dict[str, Path]:
    """The files of a model's folder: their names on the Hub, and where they are."""
    found = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {
        name.as_posix(): path
        for name, path in found.items()
        if not any(part in FOLDERS or part.startswith((".", "checkpoint-")) for part in name.parts[:-1])
        and not name.name.startswith((".", "events.out."))
        and name.suffix not in SUFFIXES
    }


def check_whole(folder: Path, files: dict[str, Path], native: bool) -> None:
    """A folder holds a model's configuration and weights and, unless it is a native one's, its manifest and code."""
    needed = ["config.json", *([] if native else [manifests.FILE])]
    index = files.get("model.safetensors.index.json")
    if "model.safetensors" not in files and index is not None:
        needed += sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    missing = [name for name in needed if name not in files]
    missing += [] if native or any(name.endswith(".py") for name in files) else ["code"]
    missing += [] if any(name.endswith(".safetensors") for name in files) else ["weights"]
    if missing:
        kind = "model" if native else "zoo model"
        raise FileNotFoundError(f"{folder} is no folder of a {kind}: it has no {', no '.join(missing)}.")


def card_for(folder: Path, repo_id: str) -> ModelCard | None:
    """The folder's own card, as one of the repository; without one, that of the model alone."""
    path = folder / CARD
    if path.exists():
        text = path.read_text(encoding="utf-8")
        return ModelCard(moved(text, repo_id) if is_ours(text) else text)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for module, config_class in FAMILIES.items():
        if config_class.model_type == config["model_type"] and hasattr(module, config["architectures"][0]):
            with torch.device("meta"):
                return card_of(getattr(module, config["architectures"][0])(config_class.from_dict(config)), repo_id)
    return None


def lacking(api: HfApi, files: dict[str, Path], repo_id: str, revision: str | None) -> str:
    """What of the files is not on the Hub."""
    try:
        missing = sorted(files.keys() - set(api.list_repo_files(repo_id, revision=revision)))
    except Exception:
        return "The repository does not answer"
    return f"It lacks {', '.join(missing)}" if missing else "Its files are those of before"
