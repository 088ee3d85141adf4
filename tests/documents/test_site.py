"""The site: it is built strictly, needs no network, and no entry of its reference is without text."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from .document import ROOT
from .test_reference import NAMES

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """What a page loads and links to, and the text below the heading of each entry of the reference."""

    def __init__(self, path: Path):
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.texts: dict[str, str] = {}
        self.entry, self.is_quiet = "", False
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag in ("script", "img") and "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") != "canonical":
            self.loaded.append(given.get("href", ""))
        elif tag == "a":
            self.links.append(given.get("href", ""))
        self.is_quiet = tag in ("h2", "h3", "pre", "code")
        if tag == "h2":
            self.entry = given.get("id", "")

    def handle_data(self, data: str) -> None:
        if self.entry and not self.is_quiet:
            self.texts[self.entry] = self.texts.get(self.entry, "") + data


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


def test_nothing_is_loaded_from_elsewhere_and_links_lead_somewhere(site):
    for path in site.rglob("*.html"):
        page = Page(path)
        local = [link for link in [*page.loaded, *page.links] if not re.match(r"https://|mailto:|#|$", link)]
        assert not [link for link in page.loaded if "//" in link], path
        if path.name != "404.html":  # its links begin at the root
            assert not [link for link in local if not (path.parent / re.split("[#?]", link)[0]).exists()], path


def test_every_entry_of_the_reference_has_text(site):
    texts = {}
    for path in (site / "docs" / "reference").glob("*.html"):
        texts |= Page(path).texts
    assert [name for name in NAMES if len(texts.get(name, "").split()) < 3] == []
    index = (site / "search" / "search_index.json").read_text("utf-8")
    assert [name for name in NAMES if name.rpartition(".")[2] not in index] == []
