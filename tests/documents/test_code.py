"""Commands and Python of documents run, links lead somewhere, options are the parsers', and notebooks learn."""

import io
import json
import os
import re
import shutil
import sys
from contextlib import redirect_stdout, suppress
from dataclasses import fields
from functools import cache

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import PreTrainedConfig

from tfm_zoo import TfmBertConfig, TfmEncoderDecoderConfig, TfmGPTConfig
from tfm_zoo.families.auto_classes import FAMILIES
from tfm_zoo.hub.model_card import PIPELINES

from ..command import tfm_zoo as command
from ..forks import with_libraries
from ..hub.server import metadata_errors
from ..recipes.conftest import imported
from .commands import PROGRAMS, check
from .document import CARDS, DOCUMENTS, PARTS, ROOT, Document, read, split

pages = imported(ROOT / "docs" / "pages.py")
#: how the names of fields end that need no explanation
PLAIN = ("_size", "_dropout", "_token_id", "_heads", "_layers", "_embeddings", "head_dim")
AXES = next(each for each in DOCUMENTS if str(each) == "recipes/axes.md")
EVERY = pytest.mark.parametrize("document", DOCUMENTS, ids=str)


@pytest.mark.slow
@pytest.mark.parametrize("document", [each for each in DOCUMENTS if each.code("bash", "sh", "python")], ids=str)
def test_reader(document, clone, forked, online, hub_server, hold, checkpoints, tmp_path):
    if tags := ModelCard(document.text).data.tags:
        hold("user/model", checkpoints[tags[1]])
    for words in document.commands:
        trained = check(words)
        if recipe := next((word for word in words if trained and word in checkpoints), None):
            shutil.copytree(checkpoints[recipe], trained, dirs_exist_ok=True)
            (trained / "trainer_state.json").write_text(json.dumps({"log_history": [{"step": 1, "eval_loss": 2}]}))
        if words[0] == "tfm-zoo" and words[1] != "serve":
            command(*words[1:])
    if "python" in document.languages:
        script = tmp_path / document.path.name
        script.write_text(document.code("python"), encoding="utf-8")
        environment = os.environ | hub_server.environment(tmp_path / "home")
        ended = with_libraries().run([sys.executable, script], env=environment)
        assert ended.returncode == 0, ended.stderr


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


@cache
def known_options() -> list[set[str]]:
    """The options that each recipe's `--help` has."""
    helps = []
    for recipe in ROOT.glob("recipes/*.py"):
        helps.append(io.StringIO())
        with redirect_stdout(helps[-1]), suppress(Exception, SystemExit):
            imported(recipe).main(["--help"])
    return [set(re.findall(r"--\w+", said.getvalue())) for said in helps]


@EVERY
def test_commands_and_options_in_prose(document, clone):
    for span in document.spans:
        if span.startswith(PROGRAMS):
            check(split(span))
        elif span.startswith("--"):
            named = {name.replace("-", "_").replace("__", "--", 1) for name in re.findall(r"--[\w-]+", span)}
            assert any(named <= own for own in known_options()), span


@pytest.mark.parametrize("path", pages.PAGES, ids=lambda path: path.name)
def test_a_page_is_what_the_code_says(path):
    assert pages.PAGES[path]() == path.read_text(encoding="utf-8"), "python docs/pages.py writes it anew"


ENTRIES = [path.relative_to(ROOT) for part in PARTS for path in (part, *part.rglob("*"))]


def is_broken(document: Document, link: str) -> bool:
    """Whether a link leads to no file, or to no heading."""
    name, _, anchor = link.partition("#")
    target = document.path.parent / name if name else document.path
    if link.startswith("https://") or not anchor:
        return not (link.startswith("https://") or target.exists())
    return target.suffix != ".md" or not target.exists() or anchor not in read(target).anchors


def is_missing(span: str) -> bool:
    """Whether it looks like a path in the repository, and no file has it; `*` and `<name>` stand for any name. The last
    parts of a path are enough, as in the rows below a folder in a table."""
    is_known = any(span.split("/")[0] == part.name for part in PARTS)
    is_path = re.fullmatch(r"[\w.*<>/-]+", span) and (is_known or re.search(r"\S/$|[\w>*]\.(py|yaml|md)$", span))
    return bool(is_path) and not any(entry.match(re.sub(r"<\w+>", "*", span)) for entry in ENTRIES)


@EVERY
def test_links_and_paths(document):
    assert [link for link in document.links if is_broken(document, link)] == []
    assert [span for span in document.spans if is_missing(span)] == []
    assert document.languages <= {"bash", "python", "sh", "text"} and "```" not in document.prose


# Model cards

TYPES = {config_class.model_type for config_class in FAMILIES.values()}


@pytest.mark.parametrize("document", CARDS, ids=str)
def test_metadata_of_a_card(document):
    data, name = ModelCard.load(document.path).data, document.path.stem
    assert metadata_errors(document.text) == []
    assert data.library_name == "transformers" and data.pipeline_tag in {*PIPELINES.values(), "text2text-generation"}
    assert data.tags[0] == "tfm_zoo" and data.tags[1] in TYPES
    if name in TYPES:
        assert data.license == "apache-2.0"
        return
    assert data.model_name == name and [result.metric_type for result in data.eval_results] == data.metrics
    assert {result.dataset_type for result in data.eval_results} == set(data.datasets)


# Notebooks

store = imported(ROOT / "recipes" / "notebooks" / "store.py")
#: by notebook, a figure that it ends with, and the bounds of what a model that has learned gets
LEARNED = {"encoder": ("accuracy", 0.75, 1), "decoder": ("validation_loss", 0, 1.5)}
LEARNED["encoder_decoder"] = "exact", 0.9, 1


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in store.NOTEBOOKS.glob("*.ipynb")))
def test_a_notebook_runs_and_its_model_learns(name):
    variables, notebook = {}, json.loads((store.NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    with torch.random.fork_rng([]):
        outputs = store.run(notebook, name, variables)
    stored = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    kinds = [[[output["output_type"] for output in cell] for cell in cells] for cells in (stored, outputs)]
    assert kinds[0] == kinds[1], "run python recipes/notebooks/store.py"
    figure, least, most = LEARNED[name]
    assert least <= variables[figure] <= most
