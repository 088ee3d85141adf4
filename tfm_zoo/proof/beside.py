"""What lies beside an export and is not a part of its graph: a tokenizer, and how a text becomes a vector."""

from pathlib import Path

from ..utils.errors import in_one_line
from . import comparisons
from .contents import has_tokenizer
from .manifest import tokenized
from .reading import Reading, sentences
from .sentence_files import MODULES, sentence_settings
from .verdict import Verdict

#: folders of a model in which its exports lie, without a tokenizer of their own
OF_EXPORTS = ("onnx", "openvino")


def compare_beside(source: Path, folder: Path, against: str, verdict: Verdict) -> None:
    """Compares the tokenizer and the settings of sentence-transformers beside an export with those of its model. A
    warning says what only one of the two has.

    Args:
        source: the export, a file or a folder.
        folder: the model's.
        against: what the model is called.
    """
    place = source if source.is_dir() else source.parent
    place = place.parent if place.name in OF_EXPORTS and not has_tokenizer(place) else place
    if place.resolve() == folder.resolve():
        return
    for part, is_there, compare in (
        ("tokenizer", has_tokenizer, compare_tokenizers),
        (f"{MODULES}, which says how a text becomes a vector", has_modules, compare_readings),
    ):
        lacking = [name for name, one in ((source, place), (against, folder)) if not is_there(one)]
        if not lacking:
            try:
                verdict.differences += compare(folder, place)
            except Exception as error:  # each tokenizer has errors of its own
                verdict.warnings.append(f"its {part} does not load: {in_one_line(error)[:200]}")
        elif len(lacking) == 1 and source.is_dir():
            verdict.warnings.append(f"{lacking[0]} has no {part}: it is not compared")


def has_modules(folder: Path) -> bool:
    return (folder / MODULES).is_file()


def compare_tokenizers(folder: Path, place: Path) -> list[str]:
    found = Verdict("")
    comparisons.compare_tokenizers(tokenized(folder), tokenized(place), found, than="the model's")
    return found.differences


def compare_readings(folder: Path, place: Path) -> list[str]:
    return sentences(*map(reading_of, (folder, place)))


def reading_of(folder: Path) -> Reading:
    """How a folder's files say that a text becomes a vector. If they say no length, the tokenizer's counts."""
    reading = sentence_settings(str(folder)).reading
    return reading if reading.max_length else reading.cut((tokenized(folder) or {}).get("longest"))
