"""Saving a model with its manifest, and pushing it to the Hub in one commit."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard

from .hub_card import card_of_model, source_of
from .hub_gathering import gathered, is_sharded, plain_name, whole
from .hub_manifest import FILE, fixed_inputs, write_manifest

CARD = "README.md"
#: options of `push_to_hub`, which `save_pretrained(push_to_hub=True)` takes too
PUSH_OPTIONS = {"commit_message", "commit_description", "private", "token", "revision", "create_pr", "tags"}
#: files that not every save writes; left from an earlier push, they would load in place of the new weights
SAVED = ("model*.safetensors", "model.safetensors.index.json", "generation_config.json")


class TfmHubMixin:
    """Makes a `PreTrainedModel` save a manifest with its weights and push itself with a card, all or nothing."""

    def fingerprint_inputs(self) -> dict[str, torch.LongTensor]:
        """The manifest's inputs: two sequences of ids, the second padded. Heads with other inputs override this."""
        return fixed_inputs(self.config, self.config.vocab_size)

    def save_pretrained(
        self,
        save_directory: str | Path,
        is_main_process: bool = True,
        state_dict: dict[str, torch.Tensor] | None = None,
        push_to_hub: bool = False,
        **kwargs: Any,
    ) -> None:
        """Saves as transformers does, and writes a manifest; a save that fails leaves no new file behind.

        A sharded model is saved as a whole one: give `state_dict=accelerator.get_state_dict(model)`. With FSDP2 it may
        be left out if all processes call this.
        """
        folder = Path(save_directory)
        if state_dict is not None:
            state_dict = {plain_name(name): value for name, value in state_dict.items()}
        if is_sharded(self):
            return self._save_whole(folder, is_main_process, state_dict, push_to_hub=push_to_hub, **kwargs)
        if state_dict is not None:  # engines copy tied weights: only one of each is saved
            tied = self.all_tied_weights_keys
            state_dict = {name: value for name, value in state_dict.items() if tied.get(name) not in state_dict}
        weights = state_dict and dict(state_dict)  # transformers empties the dict that it saves
        options = {name: kwargs.pop(name) for name in PUSH_OPTIONS & kwargs.keys()} if push_to_hub else {}
        repo_id = kwargs.pop("repo_id", folder.name)
        with nothing_left_on_failure(folder):
            super().save_pretrained(folder, is_main_process=is_main_process, state_dict=state_dict, **kwargs)
            # An adapter is saved without the model's configuration and code.
            if is_main_process and (folder / "config.json").exists():
                write_manifest(self, folder, weights)
        if push_to_hub and is_main_process:
            self._save_and_push(repo_id, {"state_dict": weights} | kwargs, **options)

    def _save_whole(
        self, folder: Path, is_main_process: bool, weights: dict[str, torch.Tensor] | None, **options: Any
    ) -> None:
        """Saves a sharded model as an ordinary one, on the first process."""
        weights = gathered(self) if weights is None else weights
        if not is_main_process or (torch.distributed.is_initialized() and torch.distributed.get_rank() > 0):
            return
        if weights is None:
            raise ValueError("The model is sharded: pass state_dict=accelerator.get_state_dict(model).")
        model = whole(self, weights)
        lacks_some = any(parameter.is_meta for parameter in model.parameters())
        model.save_pretrained(folder, state_dict=weights if lacks_some else None, **options)

    def push_to_hub(
        self, repo_id: str, *, max_shard_size: int | str = "50GB", tags: list[str] | str | None = None, **options: Any
    ) -> CommitInfo:
        """Uploads weights, configurations, code, manifest and card in one commit, with transformers' own `options`.

        Weights and code of an earlier upload that this one does not bring are deleted. A card that somebody wrote
        stays, with `tags` added to its own; one that the zoo wrote is replaced.
        """
        if getattr(self, "_hf_peft_config_loaded", False):  # only an adapter is saved
            return super().push_to_hub(repo_id, max_shard_size=max_shard_size, tags=listed(tags), **options)
        return self._save_and_push(repo_id, {"max_shard_size": max_shard_size}, tags, **options)

    def _save_and_push(
        self, repo_id: str, save_options: dict[str, Any], tags: Sequence[str] | str | None = None, **options: Any
    ) -> CommitInfo:
        """Saves to an empty folder, and uploads it."""
        api = HfApi(token=options.pop("token", None))
        repo_id = open_repository(api, repo_id, options.pop("private", None), options.get("revision"))
        tags = [*(self.model_tags or []), *listed(tags)]
        options["commit_message"] = options.get("commit_message") or f"Upload {type(self).__name__}"
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder, **save_options)
            files = {path.name: path for path in Path(folder).iterdir()}
            return upload(api, repo_id, files, card_of_model(self, repo_id), tags, **options)


def listed(tags: Sequence[str] | str | None) -> list[str]:
    return [tags] if isinstance(tags, str) else list(tags or ())


@contextmanager
def nothing_left_on_failure(folder: Path) -> Iterator[None]:
    """On an error, deletes what has been added to a folder since, and the folder if it is new."""
    is_new, before = not folder.exists(), set(folder.iterdir()) if folder.is_dir() else set()
    try:
        yield
    except BaseException:
        for path in set(folder.iterdir()) - before if folder.is_dir() else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if is_new and folder.is_dir():
            folder.rmdir()
        raise


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


def upload(
    api: HfApi, repo_id: str, files: dict[str, Path], card: ModelCard | None, tags: Sequence[str] = (), **options: Any
) -> CommitInfo:
    """Uploads files, keyed by their names in the repository, in one commit that deletes earlier weights and code.

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
    contents = {name: str(path) for name, path in sorted(files.items()) if name != CARD}
    if card is not None:
        card.data.tags = list(dict.fromkeys([*(card.data.tags or []), *tags])) or None
        contents[CARD] = str(card).encode()

    earlier = {name for name in present if any(fnmatch(name, pattern) for pattern in SAVED)}
    if FILE in present:
        earlier |= present & {FILE, *json.loads(download(FILE)).get("code", ())}
    operations = [
        *(CommitOperationAdd(path_in_repo=name, path_or_fileobj=content) for name, content in contents.items()),
        *(CommitOperationDelete(path_in_repo=name) for name in sorted(earlier - files.keys())),
    ]
    return api.create_commit(repo_id=repo_id, operations=operations, **options)
