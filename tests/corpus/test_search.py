"""`search.py`, and the lines of its page, find the nearest texts in a folder that `predict.py` wrote."""

import json
import shutil
from pathlib import Path

import pytest

from tfm_zoo import CorpusReader
from tfm_zoo.corpus.run import CorpusRun
from tfm_zoo.corpus.source import Corpus

from ..documents.document import ROOT, read
from ..encoders import write_files
from ..hub.editing import edit
from ..recipes.conftest import imported

SEARCH = imported(ROOT / "recipes" / "search.py")


@pytest.fixture(scope="module")
def vectors(encoder, texts, tmp_path_factory) -> Path:
    """Vectors of length 1, of a model with the files of sentence-transformers."""
    folder = tmp_path_factory.mktemp("search")
    shutil.copytree(encoder, folder / "model")
    write_files(folder / "model", prompt="", cut=80)
    (folder / "texts.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    corpus = Corpus.open(data_files=[str(folder / "texts.jsonl")], keep=["text"])
    reader = CorpusReader.from_pretrained(str(folder / "model"), pooling="cls+mean")
    CorpusRun(corpus, reader, folder / "cls+mean", 30)()
    CorpusRun(corpus, CorpusReader.from_pretrained(str(folder / "model")), folder / "vectors/imdb", 30)()
    return folder


def test_the_nearest_text_is_the_question_itself(vectors, texts, capsys):
    asked = [text for text in texts if 40 < len(text) < 90][:3]
    SEARCH.main([str(vectors / "cls+mean"), *asked, "--top", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[::3] == asked
    for question, best, second in zip(asked, lines[1::3], lines[2::3], strict=True):
        assert best.split(maxsplit=2) == ["1.000", str(texts.index(question)), question]
        assert float(second.split()[0]) < 1


def test_the_lines_of_the_page_find_what_the_script_finds(vectors, capsys, monkeypatch):
    monkeypatch.chdir(vectors)
    code = read(ROOT / "recipes/results/search.md").code("text").partition("import faiss")[0]
    exec(code.replace("sentence-transformers/all-MiniLM-L6-v2", "model"))
    lines = capsys.readouterr().out.splitlines()
    SEARCH.main(["vectors/imdb", "a documentary about animals in the wild"])
    found = capsys.readouterr().out.splitlines()[1:]
    shown = [line.split(maxsplit=2)[2].removesuffix(" ...") for line in found]  # long ones are cut
    assert len(shown) == len(lines) == 3 and all(map(str.startswith, lines, shown))


def test_what_cannot_be_searched(vectors, tmp_path, capsys):
    out = shutil.copytree(vectors / "vectors/imdb", tmp_path / "out")
    for changes, said in (
        ({"results": "labels"}, "holds labels, and a search needs vectors"),
        ({"results": "embeddings", "model": "another"}, "vectors of another model than"),
    ):
        edit(out, "_corpus.json", **changes)
        with pytest.raises(SystemExit):
            SEARCH.main([str(out), "a film"])
        assert said in capsys.readouterr().err
