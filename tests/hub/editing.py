"""Changes to a saved folder: `edit` and `accept` make them, and each of the others gives what makes one."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from safetensors.torch import load_file, save_file

from tfm_zoo.proof.contents import digests_of_files

CONFIG, GENERATION, MANIFEST = "config.json", "generation_config.json", "zoo_manifest.json"
TOKENIZER, INDEX = "tokenizer_config.json", "model.safetensors.index.json"
Change = Callable[[Path], object]


def edit(folder: Path, name: str, **fields) -> dict:
    """Sets fields of a JSON file, which may be new, or takes them out, where the value is `...`; gives its content."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = (json.loads(path.read_text()) if path.exists() else {}) | fields
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not ...}))
    return content


def accept(folder: Path, *names: str) -> None:
    """Forges the digests of these code files: the folder was saved with them."""
    edit(folder, MANIFEST, code=edit(folder, MANIFEST)["code"] | digests_of_files(folder, names))


def edited(name: str, **fields) -> Change:
    return partial(edit, name=name, **fields)


def tensors(change: Callable[[dict], dict], name: str = "model.safetensors") -> Change:
    """`change` gets a file's tensors, and returns others."""

    def act(folder: Path) -> None:
        made = {name: tensor.clone() for name, tensor in change(load_file(folder / name)).items()}
        save_file(made, folder / name, {"format": "pt"})

    return act


def without(*names: str) -> Change:
    return tensors(lambda given: {name: tensor for name, tensor in given.items() if name not in names})


def write(name: str, text: str) -> Change:
    def act(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    return act


def replace(name: str, old: str, new: str) -> Change:
    def act(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return act


def cut(name: str, size: int) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-size])


def delete(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def both(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]
