"""Links and paths in the documents point to something, and every block of code is checked."""

import re

import pytest

from .document import DOCUMENTS, PARTS, ROOT, Document, read

ENTRIES = [path.relative_to(ROOT) for part in PARTS for path in (part, *part.rglob("*"))]


def broken_links(document: Document) -> list[str]:
    """Relative links to no file, or to no heading."""

    def is_broken(link: str) -> bool:
        name, _, anchor = link.partition("#")
        target = document.path.parent / name
        if not name or not anchor:
            return anchor not in document.anchors if anchor else not target.exists()
        return target.suffix != ".md" or not target.exists() or anchor not in read(target).anchors

    return [link for link in document.links if is_broken(link) and not link.startswith("https://")]


def is_path(span: str) -> bool:
    """Whether it looks like a path in the repository; `*` and `<name>` stand for any name."""
    is_known = any(span.split("/")[0] == part.name for part in PARTS)
    return bool(re.fullmatch(r"[\w.*<>/-]+", span) and (is_known or re.search(r"\S/$|[\w>*]\.(py|yaml|md)$", span)))


def missing_paths(document: Document) -> list[str]:
    """Paths that no file has. The last parts of a path are enough, as in the rows below a folder in a table."""
    patterns = {span: re.sub(r"<\w+>", "*", span) for span in document.spans if is_path(span)}
    return [span for span, pattern in patterns.items() if not any(entry.match(pattern) for entry in ENTRIES)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_and_paths(document):
    assert broken_links(document) == []
    assert missing_paths(document) == []
    assert document.languages <= {"bash", "python", "sh", "text"} and "```" not in document.prose


def test_there_is_something_to_check():
    readme, contributing = (read(ROOT / name) for name in ("README.md", "CONTRIBUTING.md"))
    assert len(readme.links) > 5 and len(readme.commands) > 10
    assert len(list(filter(is_path, contributing.spans))) > 20


@pytest.mark.parametrize(
    ("text", "links", "paths"),
    [
        ("[a](recipes) [b](https://example.org/x) [c](README.md#two-commands)", [], []),
        ("# Why, and `how`\n\n[a](#why-and-how) [b](#why)", ["#why"], []),
        ("[a](recipes/x.py) [b](README.md#x) [c](LICENSE#x)", ["recipes/x.py", "README.md#x", "LICENSE#x"], []),
        ("`tests/equivalence`, `recipes/configs/*.yaml`, `modeling_tfm_<family>.py`, `user/model`, `a.b`", [], []),
        (
            "`tests/x` `recipes/*.toml` `x.py` `modelling_<x>.py` `x/`",
            [],
            "tests/x recipes/*.toml x.py modelling_<x>.py x/",
        ),
        ("```text\n[a](nothing) `tests/nothing`\n```\n", [], []),
    ],
)
def test_what_points_nowhere_is_found(text, links, paths):
    document = Document(ROOT / "use.md", text)
    assert broken_links(document) == links
    assert missing_paths(document) == (paths and paths.split())


@pytest.mark.parametrize("block", ["```console\n$ make test\n```\n", "- as\n  ```bash\n  make test\n  ```\n"])
def test_a_block_that_nobody_checks_is_found(block):
    with pytest.raises(AssertionError):
        test_links_and_paths(Document(ROOT / "use.md", block))
