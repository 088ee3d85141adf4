"""Checkpoint folders: copying what is no weight, and writing one so that an error leaves nothing behind."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import AutoTokenizer

from ..locking import hold
from .checkpoint import COMPANIONS, read_json
from .errors import ConversionError
from .sources import OLD, UNFINISHED

#: at least one of these makes a tokenizer
VOCABULARIES = ("tokenizer.json", "vocab.*", "vocab-*.json", "*.model", "*.spm")


def copy_companions(source: Path, out: Path, tokenizer: str | None = None) -> None:
    """Copies a checkpoint's tokenizer, generation and sentence-transformers files as they are.

    transformers may choose a tokenizer's class by the `model_type`, and knows no class for the zoo's. So
    `tokenizer_config.json` in the copy gets the class that transformers chooses for the source; if there is none, the
    one that the file names, or else `tokenizer`, the architecture's.
    """
    files = sorted({file for pattern in COMPANIONS for file in source.glob(pattern) if file.is_file()})
    for file in files:
        target = out / file.relative_to(source)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, target)
    if tokenizer and any(file.match(pattern) for file in files for pattern in VOCABULARIES):
        name = "tokenizer_config.json"
        settings = read_json(source / name) if (source / name).exists() else {}
        saved_class = settings.get("tokenizer_class")
        loaded_class = None if "auto_map" in settings else class_of_tokenizer(source)
        wanted_class = loaded_class or saved_class or tokenizer
        if wanted_class not in (saved_class, str(saved_class).removesuffix("Fast")):
            (out / name).write_text(json.dumps(settings | {"tokenizer_class": wanted_class}, indent=2) + "\n", "utf-8")


def class_of_tokenizer(source: Path) -> str | None:
    """The tokenizer class that transformers chooses for a checkpoint; `None` if it cannot load one."""
    try:
        name = type(AutoTokenizer.from_pretrained(source, trust_remote_code=False)).__name__
    except Exception:  # a model is converted even if its tokenizer, for whatever reason, does not load
        return None
    return {"TokenizersBackend": "PreTrainedTokenizerFast"}.get(name, name)  # the name that older versions know, too


@contextmanager
def new_folder(out: Path, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder to write to, which becomes `out`, or replaces it, at the end; an error leaves nothing behind.

    It lies in a hidden folder beside `out`, which one process holds at a time. If that process is killed, the next one
    clears the hidden folder, and puts an `out` that was about to be replaced back into its place.

    Raises:
        ConversionError: if `out` is a file, or holds files and `overwrite` is false.
        FileExistsError: if another process is writing `out`.
    """
    out = out.resolve()
    # Beside the first parent that exists: on the same file system, a folder is moved by renaming it.
    beside = next(parent for parent in out.parents if parent.exists())
    workplace = beside / f".{'-'.join(out.relative_to(beside).parts)}{UNFINISHED}"
    new, old = workplace / "new", workplace / OLD
    workplace.mkdir(exist_ok=True)
    lock = hold(out, workplace / "lock")
    try:
        put_back(old, out)
        shutil.rmtree(new, ignore_errors=True)
        check_replaceable(out, overwrite)
        new.mkdir()
        yield new
        check_replaceable(out, overwrite)  # again: this may have taken hours
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.exists():
            out.rename(old)
        new.rename(out)
    finally:
        put_back(old, out)
        shutil.rmtree(workplace, ignore_errors=True)
        lock.release()


def put_back(old: Path, out: Path) -> None:
    """Gives a folder that was about to be replaced its name back, unless the new one has it."""
    if old.exists() and not out.exists():
        old.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def check_replaceable(out: Path, overwrite: bool) -> None:
    """Refuses a file, and a folder that holds files unless they may be replaced."""
    if out.exists() and not out.is_dir():
        raise ConversionError(f"{out} exists and is no folder.")
    if out.exists() and any(out.iterdir()) and not overwrite:
        raise ConversionError(f"{out} exists and is not empty: give --overwrite to replace it.")
