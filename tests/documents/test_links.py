"""Links and paths in the documents point to something, and every block of code is of a kind that is checked."""

import re

import pytest

from .document import DOCUMENTS, PARTS, ROOT, Document, read

ENTRIES = [path.relative_to(ROOT) for part in PARTS for path in (part, *part.rglob("*"))]


def is_broken(document: Document, link: str) -> bool:
    """Whether a link leads to no file, or to no heading."""
    name, _, anchor = link.partition("#")
    target = document.path.parent / name if name else document.path
    if link.startswith("https://") or not anchor:
        return not (link.startswith("https://") or target.exists())
    return target.suffix != ".md" or not target.exists() or anchor not in read(target).anchors


def is_path(span: str) -> bool:
    """Whether it looks like a path in the repository; `*` and `<name>` stand for any name."""
    is_known = any(span.split("/")[0] == part.name for part in PARTS)
    return bool(re.fullmatch(r"[\w.*<>/-]+", span) and (is_known or re.search(r"\S/$|[\w>*]\.(py|yaml|md)$", span)))


def is_missing(span: str) -> bool:
    """Whether no file has this path. Its last parts are enough, as in the rows below a folder in a table."""
    pattern = re.sub(r"<\w+>", "*", span)
    return not any(entry.match(pattern) for entry in ENTRIES)


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_and_paths(document):
    assert [link for link in document.links if is_broken(document, link)] == []
    assert [span for span in document.spans if is_path(span) and is_missing(span)] == []
    assert document.languages <= {"bash", "python", "sh", "text"} and "```" not in document.prose
