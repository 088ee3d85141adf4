"""Fonts for texts in any script."""

from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font


def fonts_for(letters: set[str]) -> tuple[list[str], set[str]]:
    """The fewest fonts of this machine that have the letters which matplotlib's default font lacks.

    Args:
        letters: any characters; those that cannot be seen need no font.

    Returns:
        The names of the fonts, and the letters that no font has.
    """
    visible = {letter for letter in letters if letter.isprintable() and not letter.isspace()}
    lacking, chosen = visible - letters_in(findfont(FontProperties()), visible), []
    if not lacking:  # opening all fonts takes a moment
        return chosen, lacking
    # The font "Last Resort" has a box for every letter.
    fonts = [font for font in fontManager.ttflist if font.style == "normal" and "Last Resort" not in font.name]
    known = {font.name: letters_in(font.fname, lacking) for font in fonts}
    while lacking:
        best = max(sorted(known), key=lambda name: len(known[name] & lacking))
        if not known[best] & lacking:
            break
        chosen.append(best)
        lacking = lacking - known[best]
    return chosen, lacking


def letters_in(path: str, letters: set[str]) -> set[str]:
    """Those of the letters that a font has. A font that is gone or cannot be read has no letters."""
    try:
        font = get_font(path)
    except (OSError, RuntimeError):
        return set()
    return {letter for letter in letters if font.scalable and font.get_char_index(ord(letter))}
