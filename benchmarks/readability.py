"""How easy the documents read: a row for each of them, and one for all (Markdown).

Paragraphs and items of lists are counted, without code, tables and headings. Flesch's reading ease is high for short
sentences of short words, and 60 is plain English. A sentence is long beyond 25 words, and crowded with two `;` or `:`.
"""

import re
from collections.abc import Iterator

from tests.documents.document import BLOCK, DOCUMENTS, SPAN

from .timing import table

TICS = (  # turns of phrase that readers stumbled over
    r"(?<!there )(?<!There )\b(?:is|are|was|were) no (?!longer\b|more\b)\w",
    r"(?<!or )(?<![\"'\w=-])none(?![\"'\w-])(?! of\b)",
    r"(?<!each )(?<!one )(?<!some )\bof which\b|\b(?:in the place of|hand on)\b",
    r"\bwhose\b[^.;:]* has not\b|; those there are\b",
)
LINK, SKIPPED = re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), re.compile(r"^(\||#|:::|options:|---|!\[)")


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs and items of lists of a document, each on one line."""
    text = BLOCK.sub("\n", re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL))
    for part in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", "\n" + text):
        lines = [line for line in part.strip().splitlines() if not SKIPPED.match(line.strip())]
        if line := LINK.sub(r"\1", SPAN.sub("Name", " ".join(lines))):
            yield " ".join(line.split())


def tics(text: str) -> list[str]:
    """The tics in a text. What stands in backticks is a name, and not looked at."""
    text = " ".join(SPAN.sub("`", BLOCK.sub("", text)).split())
    return [found[0] for tic in TICS for found in re.finditer(tic, text)]


def syllables(word: str) -> int:
    groups = len(re.findall(r"[aeiouy]+", word.lower()))
    return max(groups - bool(re.search(r"[^l]e$", word.lower())), 1)


def measure(text: str) -> list[int]:
    """How many words, sentences, syllables, long sentences, crowded sentences and tics there are."""
    sentences = [one for part in paragraphs(text) for one in re.split(r"(?<=[.!?])\W*\s+(?=[^a-z])", part)]
    words = [re.findall(r"[A-Za-z][\w'-]*", sentence) for sentence in sentences]
    count, told = sum(map(len, words)), sum(map(bool, words))
    crowded = sum(len(re.findall(r"[;:](?=\s)", sentence)) > 1 for sentence in sentences)
    sounds, long = sum(syllables(word) for each in words for word in each), sum(len(each) > 25 for each in words)
    return [len(text.split()), count, told, sounds, long, crowded, len(tics(text))]


def rows() -> Iterator[list]:
    counts = {str(each): measure(each.text) for each in DOCUMENTS}
    counts["all"] = [sum(column) for column in zip(*counts.values(), strict=True)]
    for name, (whole, words, told, sounds, long, crowded, found) in counts.items():
        length, ease = words / max(told, 1), 206.835 - 84.6 * sounds / max(words, 1)
        yield [name, whole, words, f"{length:.1f}", long, crowded, f"{ease - 1.015 * length:.0f}", found]


def main() -> None:
    """Counts words and sentences of every document, and how easy they read."""
    columns = ("document", "words in all", "of text", "words a sentence", "long", "crowded", "reading ease", "tics")
    table([*columns], rows())
