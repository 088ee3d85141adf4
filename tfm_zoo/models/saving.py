"""A save that fails leaves no half-written folder behind."""

import shutil
from pathlib import Path


class SavesWhole:
    """Makes a `PreTrainedModel` remove what it had written when `save_pretrained` fails; older files stay."""

    def save_pretrained(self, save_directory, *args, **kwargs):
        folder = Path(save_directory)
        existed, before = folder.exists(), set(folder.iterdir()) if folder.is_dir() else set()
        try:
            return super().save_pretrained(save_directory, *args, **kwargs)
        except BaseException:
            for path in set(folder.iterdir()) - before if folder.is_dir() else ():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if not existed and folder.is_dir():
                folder.rmdir()
            raise
