"""What the pictures share: their colours, and how they come into a file."""

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.text import Text

from .fonts import fonts_for

#: colour maps whose steps look alike; of amounts, where nothing is white, and of values with a sign, where zero is
AMOUNTS, SIGNED = "magma_r", "RdBu_r"
LINES = ("#3b5b92", "#c4473a", "#3f8f6b", "#8a5aa8", "#c08a2d", "#4aa3b5", "#7a8aa0", "#a0522d")
IMAGES = (".png", ".svg", ".pdf")
DPI = 150
logger = logging.getLogger(__name__)


def check_suffix(path: str | Path, allowed: Sequence[str] = IMAGES) -> Path:
    """The path of a file to write, whose suffix says its format.

    Raises:
        ValueError: for a suffix that is none of `allowed`.
    """
    path = Path(path)
    if path.suffix.lower() not in allowed:
        raise ValueError(f"{str(path)!r} should end in one of {', '.join(allowed)}: the suffix is the format.")
    return path


def save(figure: Figure, path: str | Path) -> None:
    """Write a picture, each letter in a font that has it; letters that no font has are logged."""
    path = check_suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = figure.findobj(Text)
    others, lacking = fonts_for({letter for text in texts for letter in text.get_text()})
    for text in texts:
        text.set_fontfamily([*text.get_fontfamily(), *others])
    if lacking:
        letters = "".join(sorted(lacking)[:10]) + "…" * (len(lacking) > 10)
        logger.warning(f"{path} has boxes for {letters}, which no installed font has: a page (.html) shows them.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # said above, once
        figure.savefig(path, dpi=DPI, bbox_inches="tight")
