"""Checkpoint folders: what they hold besides weights, and how one is written so that it is whole or not there."""

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import AutoTokenizer

from .checkpoint import COMPANIONS, read_json
from .rules import ConversionError

#: files without which there is no tokenizer
VOCABULARIES = ("tokenizer.json", "vocab.*", "vocab-*.json", "*.model", "*.spm")


def copy_companions(source: Path, out: Path, tokenizer: str | None = None) -> None:
    """Copies tokenizer, generation and sentence-transformers files as they are.

    Args:
        source: folder of a checkpoint.
        out: folder of the new one.
        tokenizer: tokenizer class of the architecture. With an official checkpoint its `model_type` has a say in which
            class it is, whatever class the files name; the zoo's has none, so the outcome is written down.
    """
    files = sorted({file for pattern in COMPANIONS for file in source.glob(pattern) if file.is_file()})
    for file in files:
        target = out / file.relative_to(source)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, target)
    if tokenizer and any(file.match(pattern) for file in files for pattern in VOCABULARIES):
        name = "tokenizer_config.json"
        settings = read_json(source / name) if (source / name).exists() else {}
        named = settings.get("tokenizer_class")
        chosen = None if "auto_map" in settings else chosen_tokenizer(source)
        chosen = chosen or named or tokenizer
        if chosen not in (named, str(named).removesuffix("Fast")):
            (out / name).write_text(json.dumps(settings | {"tokenizer_class": chosen}, indent=2) + "\n", "utf-8")


def chosen_tokenizer(source: Path) -> str | None:
    """The tokenizer class that transformers itself chooses for a checkpoint; `None` where it cannot load one."""
    try:
        chosen = type(AutoTokenizer.from_pretrained(source, trust_remote_code=False)).__name__
    except Exception:  # of many kinds; a model without a tokenizer that works is still a model
        return None
    return {"TokenizersBackend": "PreTrainedTokenizerFast"}.get(chosen, chosen)  # the name that has long been there


@contextmanager
def new_folder(out: Path, overwrite: bool = False) -> Iterator[Path]:
    """A folder to write to, which becomes `out` at the end; after an error there is nothing left of it.

    Args:
        out: the folder to be.
        overwrite: whether `out` may exist and hold something. It is then replaced as a whole, and not before the end.

    Raises:
        ConversionError: where `out` may not be written.
    """
    out = out.resolve()
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
