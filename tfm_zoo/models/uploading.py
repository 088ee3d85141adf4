"""A checkpoint to the Hub: what a commit holds, and what of an earlier one it takes away."""

import json
import re
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard

from .card import is_ours
from .manifest import FILE

#: weights, of which a repository would load the wrong ones beside others
WEIGHTS = ("model*.safetensors", "model.safetensors.index.json")
CARD = "README.md"


def open_repository(api: HfApi, repo_id: str, private: bool | None = None, revision: str | None = None) -> str:
    """Makes a repository on the Hub, and a branch of it, where there is none; gives the full name, with the user's.

    Raises:
        ValueError: for a revision that is no branch, and for one that should be private and is there for all to see.
    """
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    if private and not api.repo_info(repo_id).private:
        raise ValueError(f"{repo_id} is there, and public: make it private in its settings, or push without private.")
    if revision is not None and not revision.startswith("refs/pr"):
        tags = [ref.name for ref in api.list_repo_refs(repo_id).tags]
        if revision in tags or re.fullmatch("[0-9a-f]{40}", revision):
            kind = "tag" if revision in tags else "commit"
            raise ValueError(f"revision {revision} is a {kind} of {repo_id}: a push goes to a branch.")
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    return repo_id


def upload(
    api: HfApi,
    repo_id: str,
    files: dict[str, Path],
    card: ModelCard | None,
    tags: list[str] | None = None,
    revision: str | None = None,
    **options,
) -> CommitInfo:
    """Commits all files of a checkpoint, or nothing; weights and code of an earlier one that are not among them go.

    A card on the Hub that the zoo did not write stays as it is, but for `tags` that it lacks.

    Args:
        files: their names in the repository, and where they are.
        card: in the place of one that the zoo wrote, or of none.
        options: `HfApi.create_commit`'s.
    """
    there = set(api.list_repo_files(repo_id, revision=revision))
    if CARD in there:
        text = Path(api.hf_hub_download(repo_id, CARD, revision=revision)).read_text(encoding="utf-8", errors="replace")
        if not is_ours(text):
            card = ModelCard(text) if tags and not set(tags) <= set(ModelCard(text).data.tags or []) else None
    contents = {name: str(path) for name, path in sorted(files.items()) if name != CARD}
    if card is not None:
        card.data.tags = list(dict.fromkeys([*(card.data.tags or []), *(tags or [])])) or None
        contents[CARD] = str(card).encode()
    stale = sorted(owned(api, repo_id, there, revision) - files.keys())
    operations = [
        *(CommitOperationAdd(path_in_repo=name, path_or_fileobj=content) for name, content in contents.items()),
        *(CommitOperationDelete(path_in_repo=name) for name in stale),
    ]
    return api.create_commit(repo_id=repo_id, operations=operations, revision=revision, **options)


def owned(api: HfApi, repo_id: str, there: set[str], revision: str | None) -> set[str]:
    """What of the files in a repository an earlier checkpoint brought: weights, manifest and code."""
    found = {name for name in there if any(fnmatch(name, pattern) for pattern in WEIGHTS)}
    if FILE in there:
        manifest = Path(api.hf_hub_download(repo_id, FILE, revision=revision)).read_text(encoding="utf-8")
        found |= {FILE, *json.loads(manifest).get("code", ())} & there
    return found
