"""Every option of every recipe is in a document, as its parser has it."""

import re

import pytest
from transformers import HfArgumentParser

from .options import PAGE, classes, offered, page

CLASSES = classes()
WRITTEN = PAGE.read_text(encoding="utf-8")


def test_the_page_is_what_the_options_say():
    assert page(CLASSES) == WRITTEN, "python -m tests.documents.options writes it anew"


@pytest.mark.parametrize("script", CLASSES)
def test_every_option_of_a_parser_is_in_it(script):
    parser = HfArgumentParser(CLASSES[script])
    names = {action.dest for action in parser._actions} - {"help"}
    known = {*re.findall(r"`(\w+)`", WRITTEN)}
    assert {*offered(CLASSES[script])} <= names
    assert not [name for name in names if name not in known and name.removeprefix("no_") not in known]
