"""A save that proves later what it was, and that leaves no half-written folder behind when it fails."""

import shutil
from pathlib import Path

from .manifest import write_manifest

#: what `push_to_hub` is told
UPLOADING = {"repo_id", "commit_message", "commit_description", "private", "token", "revision", "create_pr", "tags"}


class SavesWhole:
    """Makes a `PreTrainedModel` write a manifest beside its weights, and remove what it had written when
    `save_pretrained` fails; older files stay."""

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
