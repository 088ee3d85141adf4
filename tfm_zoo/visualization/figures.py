"""What all pictures share: their colours, their axes, and how they are saved."""

import logging
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from .fonts import fonts_for

#: colour maps for amounts, where zero is the lightest, and for values with a sign, where zero is white
AMOUNTS, SIGNED = "magma_r", "RdBu_r"
LINES = ("#3b5b92", "#c4473a", "#3f8f6b", "#8a5aa8", "#c08a2d", "#4aa3b5", "#7a8aa0", "#a0522d")
IMAGES = (".png", ".svg", ".pdf")
DPI = 150
logger = logging.getLogger(__name__)


def check_suffix(path: str | Path, allowed: Sequence[str] = IMAGES) -> Path:
    """The path of a file that can be written; its suffix is the format."""
    path = Path(path)
    if path.suffix.lower() not in allowed:
        raise ValueError(f"{str(path)!r} should end in one of {', '.join(allowed)}: the suffix is the format.")
    try:
        nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
    except OSError as error:  # such as a name that is too long
        raise ValueError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
    if path.is_dir() or not (nearest == path or nearest.is_dir()):
        raise ValueError(f"{str(path)!r} cannot be written: {nearest} is a {'folder' if path.is_dir() else 'file'}.")
    if not os.access(nearest, os.W_OK):
        raise ValueError(f"{str(path)!r} cannot be written: {nearest} is not yours to write to.")
    return path


def plain(panel: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    """Axes with a faint grid and no frame."""
    panel.grid(axis=grid, alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)


def title_of_source(source: str | Path) -> str:
    """A Hub id, or a folder as the user names it; of a path that begins elsewhere than here, the last part."""
    path = Path(source)
    return str(path) if path.name and not path.is_absolute() and ".." not in path.parts else path.resolve().name


def save(figure: Figure, path: str | Path) -> None:
    """Write a picture with fonts that have its letters. Letters that no font has are logged."""
    path = check_suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = figure.findobj(Text)
    more, lacking = fonts_for({letter for text in texts for letter in text.get_text()})
    for text in texts:
        text.set_fontfamily([*text.get_fontfamily(), *more])
    if lacking:
        letters = "".join(sorted(lacking)[:10]) + "…" * (len(lacking) > 10)
        logger.warning(f"{path} has boxes for {letters}, which no installed font has: a page (.html) shows them.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the warning above names them all
        figure.savefig(path, dpi=DPI, bbox_inches="tight")
