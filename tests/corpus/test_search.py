"""`search.py` finds the nearest texts in a folder that `predict.py` wrote."""

import json
from pathlib import Path

import pytest

from tfm_zoo import CorpusReader
from tfm_zoo.corpus.run import CorpusRun
from tfm_zoo.corpus.source import Corpus

from ..recipes.conftest import imported

SEARCH = imported(Path(__file__).parents[2] / "recipes" / "search.py")


@pytest.fixture
def vectors(encoder, texts, tmp_path) -> Path:
    (tmp_path / "texts.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    corpus = Corpus.open(data_files=[str(tmp_path / "texts.jsonl")], keep=["text"])
    CorpusRun(corpus, CorpusReader.from_pretrained(str(encoder), pooling="cls+mean"), tmp_path / "out", 30)()
    return tmp_path / "out"


def test_the_nearest_text_is_the_question_itself(vectors, texts, capsys):
    asked = [text for text in texts if 40 < len(text) < 90][:3]
    SEARCH.main([str(vectors), *asked, "--top", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[::3] == asked
    for question, best, second in zip(asked, lines[1::3], lines[2::3], strict=True):
        assert best.split(maxsplit=2) == ["1.000", str(texts.index(question)), question]
        assert float(second.split()[0]) < 1


def test_what_cannot_be_searched(vectors, encoder, tmp_path, capsys):
    about = json.loads((vectors / "_corpus.json").read_text())
    changes = {"holds labels, and a search needs vectors": "results", "vectors of another model than": "model"}
    for message, name in changes.items():
        (vectors / "_corpus.json").write_text(json.dumps(about | {name: "labels"}))
        with pytest.raises(SystemExit):
            SEARCH.main([str(vectors), "a film"])
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        SEARCH.main([str(tmp_path), "a film"])
    assert "not a folder that predict.py wrote" in capsys.readouterr().err
