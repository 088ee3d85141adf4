"""A save that proves later what it was, and that leaves no half-written folder behind when it fails; and its upload."""

import shutil
import tempfile
from pathlib import Path

from huggingface_hub import CommitInfo, HfApi

from .card import card_of
from .manifest import write_manifest
from .uploading import open_repository, upload

#: what `push_to_hub` is told
UPLOADING = {"repo_id", "commit_message", "commit_description", "private", "token", "revision", "create_pr", "tags"}


class SavesWhole:
    """Makes a `PreTrainedModel` write a manifest beside its weights, remove what it had written when `save_pretrained`
    fails (older files stay), and bring a card of its own to a repository."""

    def save_pretrained(
        self, save_directory, is_main_process=True, state_dict=None, push_to_hub=False, *args, **kwargs
    ):
        folder = Path(save_directory)
        existed, before = folder.exists(), set(folder.iterdir()) if folder.is_dir() else set()
        given = None if state_dict is None else dict(state_dict)  # saving empties it
        options = {name: kwargs.pop(name) for name in UPLOADING & kwargs.keys()} if push_to_hub else {}
        try:
            super().save_pretrained(folder, is_main_process, state_dict, False, *args, **kwargs)
            # An adapter alone has neither configuration nor code.
            if is_main_process and (folder / "config.json").exists():
                write_manifest(self, folder, given)
        except BaseException:
            for path in set(folder.iterdir()) - before if folder.is_dir() else ():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if not existed and folder.is_dir():
                folder.rmdir()
            raise
        if push_to_hub and is_main_process:
            self.save_and_upload(options, options.pop("repo_id", folder.name), True, given, False, *args, **kwargs)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str | None = None,
        commit_description: str | None = None,
        private: bool | None = None,
        token: bool | str | None = None,
        revision: str | None = None,
        create_pr: bool = False,
        max_shard_size: int | str = "50GB",
        tags: list[str] | str | None = None,
    ) -> CommitInfo:
        """Uploads weights, configurations, code, manifest and card in one commit; the options are those of any model.

        Weights and code of an earlier upload that this one does not bring are taken away. A card that somebody wrote
        stays, with `tags` added to its own; one that the zoo wrote is replaced.
        """
        options = {
            "commit_message": commit_message,
            "commit_description": commit_description,
            "private": private,
            "token": token,
            "revision": revision,
            "create_pr": create_pr,
            "tags": [tags] if isinstance(tags, str) else tags or [],
        }
        if getattr(self, "_hf_peft_config_loaded", False):  # an adapter alone is saved, and no model
            return super().push_to_hub(repo_id, max_shard_size=max_shard_size, **options)
        return self.save_and_upload(options, repo_id, max_shard_size=max_shard_size)

    def save_and_upload(self, options: dict, repo_id: str, *args, **kwargs) -> CommitInfo:
        """Saves elsewhere, since a folder may hold other things, and uploads that.

        Args:
            options: those of `push_to_hub`.
            args, kwargs: those of `save_pretrained`.
        """
        api, revision = HfApi(token=options.pop("token", None)), options.pop("revision", None)
        repo_id = open_repository(api, repo_id, options.pop("private", None), revision)
        tags = [*(self.model_tags or []), *options.pop("tags", [])]
        options["commit_message"] = options.get("commit_message") or f"Upload {type(self).__name__}"
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder, *args, **kwargs)
            files = {path.name: path for path in Path(folder).iterdir()}
            return upload(api, repo_id, files, card_of(self, repo_id), tags, revision, **options)
