"""Uploading files to a repository of the Hub in one commit."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard, get_session
from transformers.activations import ACT2CLS

from ..proof.contents import CARD
from ..utils.folder_kinds import MANIFEST
from .model_card import source_of

#: files that not every save writes; left from an earlier push, they would load in place of the new weights
SAVED = ("model*.safetensors", "model.safetensors.index.json", "generation_config.json")
#: what takes the code of somebody's own classes along
REGISTER = (
    "In a file that can be imported, give the model a configuration of its own, and call MyConfig."
    'register_for_auto_class() and MyModel.register_for_auto_class("AutoModel"), or the Auto class that fits, before '
    "you save it (docs/change_the_block.md)."
)
#: seconds after which a request without an answer is given up
PATIENCE = 60


def own_activations(config: dict[str, Any]) -> str | None:
    """A sentence on activations that a configuration of the zoo names and transformers lacks, if there are any. (The
    file of a class of somebody's own may add them.)"""
    if not str(config.get("model_type")).startswith("tfm_"):
        return None
    acts = {act for name, act in config.items() if name.endswith("_act") and isinstance(act, str)}
    if own := ", ".join(map(repr, sorted(acts - ACT2CLS.keys()))):
        return (
            f"Nobody else could load this model: transformers has no activation {own}. Put the line that adds it to "
            "ACT2FN into the file of a class of your own (docs/change_the_block.md)."
        )
    return None


@contextmanager
def patiently() -> Iterator[None]:
    """While it is open, a request that the Hub leaves without an answer ends in a `TimeoutError`. The Hub's client
    would wait for ever, or try again."""
    session, send = get_session(), get_session().send

    def send_or_give_up(request: Any, **options: Any) -> Any:
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), PATIENCE)
        try:
            return send(request, **options)
        except Exception as error:
            if "TimeoutException" not in names_of(error):
                raise
            raise TimeoutError(f"there was no answer for {PATIENCE} seconds") from error

    session.send = send_or_give_up
    try:
        yield
    finally:
        session.send = send


def is_unreachable(error: Exception) -> bool:
    """Whether there was no answer."""
    return isinstance(error, (ConnectionError, TimeoutError)) or "TransportError" in names_of(error)


def names_of(error: Exception) -> set[str]:
    """What an error is called, which the Hub's client raises as one of httpx or of httpx2, by its release."""
    return {base.__name__ for base in type(error).mro()}


@patiently()
def open_repository(api: HfApi, repo_id: str, private: bool | None = None, revision: str | None = None) -> str:
    """Makes a repository on the Hub, and a branch in it, if missing; returns its full name, `"user/name"`.

    Raises:
        ValueError: for a revision that is a tag or a commit, and for `private` where the repository is public.
    """
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    if private and not api.repo_info(repo_id).private:
        raise ValueError(f"{repo_id} is public: make it private in its settings, or push without private.")
    if revision is not None and not revision.startswith("refs/pr"):
        tags = [ref.name for ref in api.list_repo_refs(repo_id).tags]
        if revision in tags or re.fullmatch("[0-9a-f]{40}", revision):
            kind = "tag" if revision in tags else "commit"
            raise ValueError(f"revision {revision} is a {kind} of {repo_id}: a push goes to a branch.")
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    return repo_id


@patiently()
def upload(api: HfApi, repo_id: str, *contents: Any, **options: Any) -> CommitInfo:
    """Uploads files as [`commit`] does, and once more if there is no answer. If the Hub made the first commit all the
    same, the second call sends no file again, and makes no second commit."""
    try:
        return commit(api, repo_id, *contents, **options)
    except Exception as error:
        if not is_unreachable(error):
            raise
    return commit(api, repo_id, *contents, **options)


def commit(
    api: HfApi,
    repo_id: str,
    files: dict[str, Path | bytes],
    card: ModelCard | None,
    tags: Sequence[str] = (),
    **options: Any,
) -> CommitInfo:
    """Uploads files or their contents, keyed by their names in the repository, in one commit. It deletes earlier
    weights and code.

    `card` is added, or replaces one that the zoo wrote; somebody else's card gets the `tags` that it lacks.
    `options` are those of `HfApi.create_commit`.
    """

    def download(name: str) -> str:
        path = api.hf_hub_download(repo_id, name, revision=options.get("revision"))
        return Path(path).read_text(encoding="utf-8", errors="replace")

    present = set(api.list_repo_files(repo_id, revision=options.get("revision")))
    if CARD in present and source_of(text := download(CARD)) is None:
        lacks_tags = tags and not set(tags) <= set(ModelCard(text).data.tags or [])
        card = ModelCard(text) if lacks_tags else None
    contents = {name: each if isinstance(each, bytes) else str(each) for name, each in sorted(files.items())}
    contents.pop(CARD, None)
    if card is not None:
        card.data.tags = list(dict.fromkeys([*(card.data.tags or []), *tags])) or None
        contents[CARD] = str(card).encode()

    earlier = {name for name in present if any(fnmatch(name, pattern) for pattern in SAVED)}
    if MANIFEST in present:
        with suppress(ValueError, AttributeError, TypeError):  # what somebody else has put there names no code
            earlier |= present & {MANIFEST, *json.loads(download(MANIFEST)).get("code", ())}
    operations = [
        *(CommitOperationAdd(path_in_repo=name, path_or_fileobj=content) for name, content in contents.items()),
        *(CommitOperationDelete(path_in_repo=name) for name in sorted(earlier - files.keys())),
    ]
    return api.create_commit(repo_id=repo_id, operations=operations, **options)
