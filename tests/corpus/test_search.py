"""`search.py`, and the lines of its page, find the nearest texts in a folder that `predict.py` wrote."""

import json
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from tfm_zoo import CorpusReader
from tfm_zoo.corpus.reader import digests_of

from ..documents.document import ROOT, read
from ..encoders import write_files
from ..hub.editing import edit
from ..recipes.conftest import imported
from .conftest import run

SEARCH = imported(ROOT / "recipes" / "search.py")


@pytest.fixture(scope="module")
def vectors(encoder, texts, tmp_path_factory) -> Path:
    """Vectors of length 1, of a model with the files of sentence-transformers."""
    folder = tmp_path_factory.mktemp("search")
    shutil.copytree(encoder, folder / "model")
    write_files(folder / "model", prompt="", cut=80)
    (folder / "texts.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    for name, pooling in (("cls+mean", "cls+mean"), ("vectors/imdb", None)):
        reader = CorpusReader.from_pretrained(os.path.relpath(folder / "model"), pooling=pooling)
        run(reader, [str(folder / "texts.jsonl")], folder / name, keep=["text"])
    return folder


@pytest.fixture
def search(vectors, tmp_path, capsys, monkeypatch):
    """Gives the lines of a search, or its error, in a folder with a copy of the vectors, `out`."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(vectors / "vectors/imdb", "out")

    def search(*argv: object) -> list[str]:
        try:
            SEARCH.main([*map(str, argv)])
        except SystemExit:
            return capsys.readouterr().err.splitlines()[-1:]
        return capsys.readouterr().out.splitlines()

    return search


def test_the_nearest_text_is_the_question_itself(vectors, texts, search):
    asked = [text for text in texts if 40 < len(text) < 90][:3]
    lines = search(vectors / "cls+mean", *asked, "--top", 2)
    assert lines[::3] == asked
    for question, best, second in zip(asked, lines[1::3], lines[2::3], strict=True):
        assert best.split(maxsplit=2) == ["1.000", str(texts.index(question)), question]
        assert float(second.split()[0]) < 1


def test_the_lines_of_the_page_find_what_the_script_finds(vectors, search, capsys, monkeypatch):
    monkeypatch.chdir(vectors)
    code = read(ROOT / "recipes/results/search.md").code("text").partition("import faiss")[0]
    exec(code.replace("sentence-transformers/all-MiniLM-L6-v2", "model"))
    lines = capsys.readouterr().out.splitlines()
    found = search("vectors/imdb", "a documentary about animals in the wild")[1:]
    shown = [line.split(maxsplit=2)[2].removesuffix(" ...") for line in found]  # long ones are cut
    assert len(shown) == len(lines) == 3 and all(map(str.startswith, lines, shown))


def test_the_model_is_found_from_any_folder(vectors, search):
    """By the proof of an earlier version; where it was moved, and saved again. What else differs, `verify` says."""
    lines, there, moved = search("out", "a film"), Path("model").resolve(), Path("elsewhere").resolve()
    edit(Path("out"), "_corpus.json", source="model")
    assert search("out", "a film") == lines and len(lines) == 4
    edit(Path("out"), "_proof.json", source=str(there))
    assert f"{there}: no such folder; if it was moved, give --model" in search("out", "a film")[0]
    shutil.copytree(vectors / "model", moved)
    edit(moved, "config.json", use_cache=False, dtype=..., transformers_version="5.0.0", _name_or_path="a/b")
    assert search("out", "a film", "--model", moved) == lines
    edit(moved, "config.json", layer_norm_eps=1e-3)
    assert f"`tfm-zoo verify out --model {moved}` names what" in search("out", "a film", "--model", moved)[0]


def test_digests_of_earlier_versions_are_those_of_the_model():
    settings = {"hidden_size": 4, "use_cache": True}
    of = Mock(return_value={"input_ids": []}, state_dict=dict, get_vocab=dict, to_diff_dict=lambda: settings)
    assert any(digest.startswith("885bf2f55489fc1d") for digest in digests_of(of, of, of))


def test_several_folders_are_searched_together(vectors, search):
    """Each line names the folder. Vectors of another pooling cannot be compared."""
    lines, names = search("out", "a film")[1:], ("out", str(vectors / "vectors/imdb"))
    both = search(*names, "a film", "--top", 6)[1:]
    assert {*both} == {f"{line[:10]}{name}  {line[10:]}" for line in lines for name in names}
    (unlike,) = search("out", vectors / "cls+mean", "a film")
    assert unlike.endswith("cls+mean has pooling 'cls+mean', and out 'mean': search each alone")


def test_what_cannot_be_searched(search):
    assert "give a question, too: out and out are folders of vectors" in search("out", "out")[0]
    assert "out/_corpus.json: not a folder that predict.py wrote" in search("out", "out/_corpus.json", "a film")[0]
    edit(Path("out"), "_corpus.json", results="labels")
    assert "out holds labels, and a search needs vectors" in search("out", "a film")[0]
    assert "texts: not a folder that predict.py wrote" in search("texts", "a film")[0]
