"""Fonts for whatever script a text is in."""

from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font


def fonts_for(letters: set[str]) -> tuple[list[str], set[str]]:
    """Fonts of this machine that have what matplotlib's usual one lacks, as few as will do, and what none of them has.

    Args:
        letters: any characters; those that cannot be seen need no font.
    """
    letters = {letter for letter in letters if letter.isprintable() and not letter.isspace()}
    lacking, chosen = letters - found_in(findfont(FontProperties()), letters), []
    if not lacking:  # opening all fonts takes a moment
        return chosen, lacking
    # The last resort has a box for everything.
    fonts = [font for font in fontManager.ttflist if font.style == "normal" and "Last Resort" not in font.name]
    found = {font.name: found_in(font.fname, lacking) for font in fonts}
    while lacking:
        best = max(found, key=lambda name: len(found[name] & lacking))
        if not found[best] & lacking:
            break
        chosen.append(best)
        lacking = lacking - found[best]
    return chosen, lacking


def found_in(path: str, letters: set[str]) -> set[str]:
    try:
        font = get_font(path)
    except (OSError, RuntimeError):  # not there any more, or of a kind that cannot be read
        return set()
    return {letter for letter in letters if font.scalable and font.get_char_index(ord(letter))}
