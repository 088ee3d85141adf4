"""Checkpoint folders: what they hold besides weights, and how one is written so that it is whole or not there."""

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .checkpoint import COMPANIONS, read_json
from .rules import ConversionError


def copy_companions(source: Path, out: Path, tokenizer: str | None = None) -> None:
    """Copies tokenizer, generation and sentence-transformers files as they are.

    Args:
        source: folder of a checkpoint.
        out: folder of the new one.
        tokenizer: tokenizer class of the architecture. An official checkpoint may leave it to its `model_type` to
            imply which it is; the zoo's does not, so it is written down.
    """
    for file in sorted({file for pattern in COMPANIONS for file in source.glob(pattern) if file.is_file()}):
        target = out / file.relative_to(source)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, target)
    settings = out / "tokenizer_config.json"
    has_tokenizer = any((out / name).exists() for name in ("tokenizer.json", "vocab.txt", "vocab.json", settings.name))
    if tokenizer and (has_tokenizer or any(out.glob("*.model"))):
        known = read_json(settings) if settings.exists() else {}
        if "tokenizer_class" not in known:
            settings.write_text(json.dumps({**known, "tokenizer_class": tokenizer}, indent=2) + "\n", encoding="utf-8")


@contextmanager
def new_folder(out: Path, overwrite: bool = False) -> Iterator[Path]:
    """A folder to write to, which becomes `out` at the end; after an error there is nothing left of it.

    Args:
        out: the folder to be.
        overwrite: whether `out` may exist and hold something. It is then replaced as a whole, and not before the end.

    Raises:
        ConversionError: where `out` may not be written.
    """
    out = Path(os.path.abspath(out))
    if out.exists() and not out.is_dir():
        raise ConversionError(f"{out} exists and is no folder.")
    if out.exists() and any(out.iterdir()) and not overwrite:
        raise ConversionError(f"{out} exists and is not empty; it is replaced with --overwrite only.")
    # Beside the first parent that exists: on the same file system, so that renaming is all there is to do.
    beside = next(parent for parent in out.parents if parent.exists())
    temporary = beside / f".{out.name}.{uuid.uuid4().hex[:8]}.partial"
    temporary.mkdir()
    try:
        yield temporary
        out.parent.mkdir(parents=True, exist_ok=True)
        replaced = temporary.with_suffix(".replaced")
        if out.exists():
            out.rename(replaced)
        try:
            temporary.rename(out)
        except OSError:
            if replaced.exists():
                replaced.rename(out)
            raise
        shutil.rmtree(replaced, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
