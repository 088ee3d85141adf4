"""The reference holds every public name with its docstring; the site is built strictly, and needs no network."""

import re
import subprocess
import sys
from html import unescape
from importlib import import_module
from pathlib import Path

import pytest

import tfm_zoo

from . import architectures
from .document import REFERENCE, ROOT

NAMES = [name for page in REFERENCE for name in re.findall(r"^::: ([\w.]+)$", page.text, re.MULTILINE)]


def test_every_public_name_stands_there_once():
    """Data, such as `NAMED_CONFIGS`, has no docstring."""
    rooms = [import_module(f"tfm_zoo.{room}") for room in ("converters", "hub", "proof", "visualization")]
    public = {name: getattr(room, name) for room in (tfm_zoo, *rooms) for name in room.__all__}
    documented = [name.rpartition(".")[2] for name in NAMES]
    assert {name for name, value in public.items() if callable(value)} - {*documented} == set()
    assert len(documented) == len(set(documented)) and len(tfm_zoo.__all__) == len(set(tfm_zoo.__all__))


def test_each_name_has_a_docstring():
    """Of its own: a dataclass that was given none begins it with its name and its fields."""
    lacking = []
    for name in NAMES:
        module, _, attribute = name.rpartition(".")
        text = getattr(import_module(module), attribute).__doc__
        lacking += [] if text and not text.startswith(f"{attribute}(") else [name]
    assert lacking == []


def test_the_page_of_architectures_is_what_the_tables_say():
    assert architectures.page() == architectures.PAGE.read_text("utf-8"), "python -m tests.documents.architectures"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere_and_links_lead_somewhere(site):
    for path in site.rglob("*.html"):
        tags = re.findall(r"<(a|script|img|link)\b([^>]*)>", path.read_text("utf-8"))
        urls = [
            (tag, re.search(r'\b(?:href|src)="?([^"\s>]*)', given)) for tag, given in tags if "canonical" not in given
        ]
        urls = [(tag, unescape(url[1])) for tag, url in urls if url]
        assert not [url for tag, url in urls if tag != "a" and "//" in url], path
        local = [url for _, url in urls if not re.match(r"https://|mailto:|#|$", url)]
        if path.name != "404.html":  # its links begin at the root
            assert not [url for url in local if not (path.parent / re.split("[#?]", url)[0]).exists()], path


@pytest.mark.slow
def test_every_entry_of_the_reference_has_text(site):
    texts = {}
    for path in (site / "docs" / "reference").glob("*.html"):
        for entry in re.split(r"<h2\b", path.read_text("utf-8"))[1:]:
            name = re.search(r'id="?([\w.]+)', entry)
            texts[name and name[1]] = re.findall(r"<p>(.+?)</p>", entry, re.DOTALL)
    assert [name for name in NAMES if not texts.get(name)] == []
    index = (site / "search" / "search_index.json").read_text("utf-8")
    assert [name for name in NAMES if name.rpartition(".")[2] not in index] == []


@pytest.mark.slow
def test_no_page_is_empty_and_no_line_of_code_is_cut_off(site):
    articles = {path: path.read_text("utf-8").partition("<article")[2] for path in site.rglob("*.html")}
    words = {path.name: len(re.sub("<[^>]*>", " ", article).split()) for path, article in articles.items()}
    assert {name for name, count in words.items() if count < 20} <= {"404.html"}
    assert "white-space: pre-wrap" in (site / "docs" / "style" / "site.css").read_text("utf-8")
