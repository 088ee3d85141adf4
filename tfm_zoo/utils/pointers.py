"""Pointers of Git LFS: the few lines that a clone holds instead of a large file until `git lfs pull`."""

from pathlib import Path

from .tokenizer_files import OF_TOKENIZERS

BEGINNING, LONGEST = b"version https://git-lfs.github.com/spec/", 1024
#: files of a checkpoint's folder that are read beside its weights, whatever else lies there
READ = ("*.json", "*.jinja", *OF_TOKENIZERS)


def refuse_pointer(file: Path, error: type[Exception] = ValueError) -> None:
    """Raises an `error` if a file is a pointer."""
    if file.is_file() and file.stat().st_size <= LONGEST:
        with file.open("rb") as content:
            if content.read(len(BEGINNING)) == BEGINNING:
                raise error(f"{file} is a Git LFS pointer, not the file itself: run `git lfs pull` in its clone.")


def refuse_pointers(folder: str | Path, error: type[Exception] = ValueError) -> None:
    """Raises an `error` if a checkpoint's folder holds a pointer instead of a file that is read."""
    weights = "*.safetensors" if any(Path(folder).glob("*.safetensors")) else "*model*.bin"
    for file in sorted({file for pattern in (*READ, weights) for file in Path(folder).glob(pattern)}):
        refuse_pointer(file, error)
