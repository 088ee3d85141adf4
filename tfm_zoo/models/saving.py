"""A save that proves later what it was, and that leaves no half-written folder behind when it fails; and its upload."""

import shutil
import tempfile
from pathlib import Path

from huggingface_hub import CommitInfo, HfApi, ModelCard

from .card import card_of
from .manifest import write_manifest

#: what `push_to_hub` is told
UPLOADING = {"repo_id", "commit_message", "commit_description", "private", "token", "revision", "create_pr", "tags"}


class SavesWhole:
    """Makes a `PreTrainedModel` write a manifest beside its weights, remove what it had written when `save_pretrained`
    fails (older files stay), and bring a card of its own to a repository that has none."""

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
            # Saved once more, elsewhere: the upload within `save_pretrained` would be one without the manifest.
            self.push_to_hub(options.pop("repo_id", folder.name), **options)

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
        tags: list[str] | None = None,
    ) -> CommitInfo:
        """Uploads weights, configurations, code, manifest and card in one commit; the options are those of any model.

        A card that is on the Hub stays, with `tags` added to its own.
        """
        api = HfApi(token=token)
        repo_id = open_repository(api, repo_id, private, revision)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder, max_shard_size=max_shard_size)
            if api.file_exists(repo_id, "README.md", revision=revision):
                card = ModelCard.load(api.hf_hub_download(repo_id, "README.md", revision=revision))
            else:
                card = card_of(self, repo_id)
            if tags:
                card.data.tags = list(dict.fromkeys([*(card.data.tags or []), *tags]))
            card.save(Path(folder) / "README.md")
            return api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                commit_message=commit_message or f"Upload {type(self).__name__}",
                commit_description=commit_description,
                revision=revision,
                create_pr=create_pr,
            )


def open_repository(api: HfApi, repo_id: str, private: bool | None = None, revision: str | None = None) -> str:
    """Makes a repository on the Hub, and a branch of it, where there is none; gives the full name, with the user's."""
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    if revision is not None and not revision.startswith("refs/pr"):
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    return repo_id
