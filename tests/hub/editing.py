"""Changes to a saved folder: `edit` and `accept` make them, and each of the others gives what makes one."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tfm_zoo.proof.contents import digests_of_files

MANIFEST = "zoo_manifest.json"


def edit(folder: Path, name: str, **fields) -> dict:
    """Sets fields of a JSON file, which may be new; gives its content."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = (json.loads(path.read_text()) if path.exists() else {}) | fields
    path.write_text(json.dumps(content))
    return content


def accept(folder: Path, *names: str) -> None:
    """Forges the digests of these code files: the folder was saved with them."""
    edit(folder, MANIFEST, code=edit(folder, MANIFEST)["code"] | digests_of_files(folder, names))


def edited(name: str, **fields) -> Callable:
    return partial(edit, name=name, **fields)


def write(name: str, text: str) -> Callable:
    def act(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    return act


def replace(name: str, old: str, new: str) -> Callable:
    def act(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return act


def delete(name: str) -> Callable:
    return lambda folder: (folder / name).unlink()


def both(*changes: Callable) -> Callable:
    return lambda folder: [change(folder) for change in changes]
