"""A reader follows a document: first its commands, except trainings, then its Python, in a fresh process."""

import json
import os
import re
import shlex
import shutil
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from transformers import PreTrainedConfig
from typer.testing import CliRunner

from tfm_zoo import TfmBertConfig, TfmEncoderDecoderConfig, TfmGPTConfig
from tfm_zoo.cli import app
from tfm_zoo.families.auto_classes import FAMILIES

from ..forks import with_libraries
from ..hub.server import metadata
from .commands import PROGRAMS, BadCommandError, check
from .document import DOCUMENTS, ROOT, split

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
