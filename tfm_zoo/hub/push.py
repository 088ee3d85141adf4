"""A checkpoint folder to the Hub, in one commit."""

import json
from pathlib import Path

from huggingface_hub import CommitInfo, HfApi
from huggingface_hub.utils import filter_repo_objects

from ..models import manifest as manifests
from ..models.saving import open_repository
from .cards import is_ours, name_repository

#: what of a folder is no part of the model
LEFT_OUT = ("checkpoint-*", "checkpoint-*/**", ".*", ".*/**", "**/__pycache__/**", "runs/**", "logs/**")


class PushError(RuntimeError):
    """An upload that failed; the message says what is missing on the Hub."""


def push(
    folder: str | Path,
    repo_id: str,
    private: bool | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    commit_message: str | None = None,
) -> CommitInfo:
    """Uploads a model's folder: code, weights, tokenizer, generation config, card and manifest, in one commit.

    What is on the Hub stays as it was until all of it is there. A second push of the same folder changes nothing, and
    one after a failure uploads what is missing. A card on the Hub that a person wrote stays; one that the zoo wrote
    loads the model from there.

    Args:
        folder: what `save_pretrained` wrote. A native model's, too, that a recipe trained or the zoo exported.
        repo_id: `"user/name"`; the repository is made where there is none.
        private: whether a new repository is private.
        revision: a branch, made where there is none; by default the main one.
        token: by default the one of `hf auth login`.

    Raises:
        FileNotFoundError: for a folder that lacks what a model needs.
        PushError: for an upload that failed.
    """
    folder = Path(folder)
    check_whole(folder)
    api = HfApi(token=token)
    repo_id = open_repository(api, repo_id, private, revision)
    card = folder / "README.md"
    if card.exists() and is_ours(text := card.read_text(encoding="utf-8")):
        card.write_text(name_repository(text, repo_id), encoding="utf-8")
    left_out = [*LEFT_OUT, *(["README.md"] if has_card_of_its_own(api, repo_id, revision) else [])]
    try:
        return api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            revision=revision,
            commit_message=commit_message or f"Upload {folder.resolve().name} with tfm_zoo {manifests.VERSION}",
            ignore_patterns=left_out,
        )
    except Exception as error:  # of the network, of the Hub, or of the disk
        raise PushError(
            f"The upload to {repo_id} failed: {' '.join(str(error).split())} {lacking(api, folder, repo_id, revision)}"
        ) from error


def check_whole(folder: Path) -> None:
    """A folder holds a model's configuration and weights and, unless it is a native one's, its manifest and code."""
    config = folder / "config.json"
    model_type = json.loads(config.read_text(encoding="utf-8")).get("model_type") if config.is_file() else None
    native = model_type is not None and not model_type.startswith("tfm_")
    of_the_zoo = {} if native else {manifests.FILE: manifests.FILE, "code": "*.py"}
    needed = {"config.json": "config.json", **of_the_zoo, "weights": "*.safetensors"}
    missing = [name for name, pattern in needed.items() if not any(folder.glob(pattern))]
    if missing:
        raise FileNotFoundError(
            f"{folder} is no folder of a {'' if native else 'zoo '}model: it has no {', no '.join(missing)}."
        )


def has_card_of_its_own(api: HfApi, repo_id: str, revision: str | None) -> bool:
    """Whether the repository has a card that the zoo did not write."""
    if not api.file_exists(repo_id, "README.md", revision=revision):
        return False
    return not is_ours(Path(api.hf_hub_download(repo_id, "README.md", revision=revision)).read_text(encoding="utf-8"))


def lacking(api: HfApi, folder: Path, repo_id: str, revision: str | None) -> str:
    """What of a folder is not on the Hub, and what to do about it."""
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    local = set(filter_repo_objects(files, ignore_patterns=LEFT_OUT))
    try:
        missing = sorted(local - set(api.list_repo_files(repo_id, revision=revision)))
    except Exception:
        return "The repository does not answer. Nothing of it has been changed; push again."
    named = f"It lacks {', '.join(missing)}" if missing else "Its files are those of before"
    again = f"tfm-zoo push {folder} {repo_id}" + (f" --revision {revision}" if revision else "")
    return f"{named}: a push changes all or nothing. Push again ({again}): what is there already is not sent again."
