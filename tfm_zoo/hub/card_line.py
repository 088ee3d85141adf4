"""The line of a card that says when, and with what, a checkpoint was last verified."""

import re
from datetime import date
from pathlib import Path

import torch
import transformers

from .. import __version__
from ..proof.contents import CARD
from ..proof.verdict import Verdict
from ..utils.locking import atomic_file

LINE = re.compile(r"^\*\*Verified\*\* on .*<!-- tfm-zoo verify -->\n", re.MULTILINE)


def line_of(verdict: Verdict) -> str:
    """The line for a verdict that found no difference."""
    versions = f"tfm_zoo {__version__}, transformers {transformers.__version__} and torch {torch.__version__}"
    match = str(verdict).removeprefix(f"{verdict.source}: ").partition(" (")[0]
    loader = {"folder": "its own code", "tfm_zoo": "tfm_zoo's classes", "transformers": "transformers' classes"}
    run = f", loaded by {loader[verdict.figures['loader']]}" if "loader" in verdict.figures else ""
    return f"**Verified** on {date.today()} with {versions}: {match}{run}. <!-- tfm-zoo verify -->\n"


def write_line(folder: Path, verdict: Verdict) -> None:
    """Writes the line into the folder's card: in place of an earlier one, or else at the end."""
    card = folder / CARD
    text = card.read_text(encoding="utf-8") if card.is_file() else f"# {folder.resolve().name}\n"
    line = line_of(verdict)
    replaced, count = LINE.subn(lambda _: line, text)
    with atomic_file(card) as file:
        file.write_text(replaced if count else f"{text.rstrip()}\n\n{line}", encoding="utf-8")
