"""A reader follows a document: first its commands, except trainings, then its Python, in a fresh process; links lead
somewhere, and every option of every recipe is named, as its parser has it."""

import json
import os
import re
import shlex
import shutil
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from transformers import HfArgumentParser, PreTrainedConfig
from typer.testing import CliRunner

from tfm_zoo import TfmBertConfig, TfmEncoderDecoderConfig, TfmGPTConfig
from tfm_zoo.cli import app
from tfm_zoo.families.auto_classes import FAMILIES

from ..forks import with_libraries
from ..hub.server import metadata
from .commands import PROGRAMS, BadCommandError, check
from .document import DOCUMENTS, PARTS, ROOT, Document, read, split
from .options import PAGE, classes, offered, page

#: how the names of fields end that need no explanation
PLAIN = ("_size", "_dropout", "_token_id", "_heads", "_layers", "_embeddings", "head_dim")
AXES, RECIPES = (next(each for each in DOCUMENTS if str(each) == f"recipes/{name}.md") for name in ("axes", "README"))


@pytest.mark.slow
@pytest.mark.parametrize("document", [each for each in DOCUMENTS if each.code("bash", "sh", "python")], ids=str)
def test_reader(document, clone, forked, online, hub_server, hold, checkpoints, tmp_path):
    if head := metadata.read(document.text):
        hold("user/model", checkpoints[head["tags"][1]])
    for words in document.commands:
        trained = check(words)
        if recipe := next((word for word in words if trained and word in checkpoints), None):
            shutil.copytree(checkpoints[recipe], trained, dirs_exist_ok=True)
            (trained / "trainer_state.json").write_text(json.dumps({"log_history": [{"step": 1, "eval_loss": 2}]}))
        if words[0] == "tfm-zoo" and words[1] != "serve":
            done = CliRunner().invoke(app, words[1:])
            assert done.exit_code == 0, f"{shlex.join(words)}: {done.output}"
    if "python" in document.languages:
        script = tmp_path / document.path.name
        script.write_text(document.code("python"), encoding="utf-8")
        environment = os.environ | hub_server.environment(tmp_path / "home")
        ended = with_libraries().run([sys.executable, script], env=environment)
        assert ended.returncode == 0, ended.stderr


def test_each_training_has_a_folder_of_its_own(clone):
    """Else a reader who pastes one after the other is refused."""
    trainings = ("recipes/finetune", "recipes/train", "recipes/pretrain", "recipes/compare")
    folders = [check(words) for words in RECIPES.commands if any(word.startswith(trainings) for word in words)]
    assert len(folders) == len(set(folders)) > 15 and Path("output") not in folders


def test_every_axis_is_named():
    """Each field that all configurations of transformers do not have, but for sizes, dropouts and token ids."""
    spans = {span for document in DOCUMENTS for span in document.spans}
    known = {field.name for field in fields(PreTrainedConfig)} | {"official", "use_cache"}
    names = {field.name for config_class in FAMILIES.values() for field in fields(config_class)} - known
    assert {name for name in names - spans if not name.endswith(PLAIN)} == set()


def test_the_defaults_of_the_axes():
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \| (.+) \|$", AXES.text, re.MULTILINE)
    assert len(rows) > 60
    for kind, config in enumerate((TfmBertConfig(), TfmGPTConfig(), TfmEncoderDecoderConfig()), 1):
        own = {field.name for field in fields(config)}
        told = {row[0]: eval(row[kind].strip("`")) for row in rows if row[kind] != "-"}
        assert told == {name: getattr(config, name) for name, *_ in rows if name in own}


def takes(recipe: Path, span: str) -> bool:
    """Whether it has these options; one that wants a value may go without in prose."""
    try:
        check(["python", str(recipe), *split(span)])
    except BadCommandError as error:
        return "expected one argument" in str(error) or "expected at least one argument" in str(error)
    return True


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_commands_and_options_in_prose(document, clone):
    for span in document.spans:
        if span.startswith(PROGRAMS):
            check(split(span))
        elif span.startswith("--") and "--help" not in span:
            assert any(takes(recipe, span) for recipe in ROOT.glob("recipes/*.py")), span


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
