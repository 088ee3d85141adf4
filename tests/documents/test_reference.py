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
    data = {"tfm_zoo.NAMED_CONFIGS"}  # it has a heading of its own: a dict has no docstring
    assert {f"tfm_zoo.{name}" for name in tfm_zoo.__all__} - data <= set(NAMES)
    assert len(NAMES) == len(set(NAMES)) and len(tfm_zoo.__all__) == len(set(tfm_zoo.__all__))


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
