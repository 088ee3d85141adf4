"""Documents from any source: which are trained on and which validate, in memory as streamed."""

import json

import pytest
from datasets import Dataset, IterableDataset

from tfm_zoo.training.streaming import streams
from tfm_zoo.training.streaming import texts as text_sources
from tfm_zoo.training.streaming.documents import Documents, load_documents
from tfm_zoo.training.tasks.pretraining import PretrainingOptions

from .conftest import TEXTS, read, saved

IN_MEMORY_AND_STREAMED = pytest.mark.parametrize("streaming", [False, True], ids=["in memory", "streamed"])


def load(**options) -> tuple[Documents, list[str], list[str]]:
    """Documents, the texts to train on, and those to validate on."""
    documents = load_documents(PretrainingOptions(**options, seed=0))
    return documents, read(documents.train), read(documents.validation)


@IN_MEMORY_AND_STREAMED
@pytest.mark.parametrize("kind", ["txt", "jsonl", "parquet", "folder", "saved", "built-in"])
def test_some_are_held_out(shards, tmp_path, streaming, kind):
    """Of a stream the first of the first shard; of texts in memory some that the seed picks, and at most so many."""
    options = {"train_file": str(shards / f"*.{kind}")}
    if kind == "folder":
        for file in shards.glob("*.jsonl"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
        options = {"dataset_name": str(tmp_path)}
    elif kind == "saved":
        options = {"dataset_name": saved(tmp_path / "data", train=Dataset.from_dict({"text": TEXTS}))}
    elif kind == "built-in":
        options = {"dataset_name": "generated"}
    documents, train, validation = load(streaming=streaming, max_eval_samples=7, **options)
    assert isinstance(documents.train.rows, IterableDataset) == streaming
    assert ("validation" in documents.own_splits) == (kind == "built-in")
    if kind == "built-in":
        assert len(validation) == 7 and len(train) > 90
    elif streaming:
        assert (train, validation) == (sorted(TEXTS[7:]), sorted(TEXTS[:7]))
        assert "characters (7 documents) were taken" in documents.notes[0]
    else:
        assert (len(train), len(validation)) == (90, 7) and {*train, *validation} < {*TEXTS}
        assert not {*train} & {*validation}
    assert documents.split("One. Two\nThree") == (["One. Two", "Three"] if kind == "txt" else ["One.", "Two", "Three"])


@IN_MEMORY_AND_STREAMED
def test_own_splits_are_taken_whole(shards, tmp_path, streaming):
    """Of text files too, whose end is that of a document where no empty line stands there. Any split can be named."""
    files = {"train_file": str(shards / "0.txt"), "validation_file": str(shards / "2.txt")}
    documents, train, validation = load(streaming=streaming, **files)
    assert (train, validation) == (sorted(TEXTS[:50]), sorted(TEXTS[85:]))
    assert "validation" in documents.own_splits and not documents.notes

    texts = [f"{i} {first}\n{i} {second}" for i in range(4) for first, second in (("one", "two"), ("three", "four"))]
    for i in range(4):
        (tmp_path / f"{i}.txt").write_text("\n\n".join(texts[2 * i : 2 * i + 2]) + "\n")
    files, texts = str(tmp_path / "*.txt"), [text.replace("\n", " ", 1) for text in texts]
    _, train, validation = load(train_file=files, validation_file=files, streaming=streaming)
    assert train == validation == texts
    _, train, validation = load(train_file=files, streaming=streaming, max_eval_samples=1)
    assert sorted(train + validation) == texts

    splits = {name: Dataset.from_dict({"text": [f"{name} {i}" for i in range(30)]}) for name in ("train", "other")}
    name = saved(tmp_path / "data", **splits)
    _, train, validation = load(dataset_name=name, train_split_name="other", streaming=streaming, max_eval_samples=3)
    assert {text.split()[0] for text in train + validation} == {"other"}
    with pytest.raises(ValueError, match=r"train_split_name 'no': no such split among \['train'"):
        load(dataset_name=name, train_split_name="no", streaming=streaming)


def test_a_document_in_memory_is_whole(tmp_path, monkeypatch):
    """Its parts would be shuffled, and meet in a chunk as if they were different documents."""
    for module in (streams, text_sources):
        monkeypatch.setattr(module, "CHARACTERS", 100)
    texts = ["after", "before", "\n".join(f"{i:04d}" for i in range(90))]
    (tmp_path / "long.txt").write_text("\n\n".join(texts))
    files = dict.fromkeys(("train_file", "validation_file"), str(tmp_path / "long.txt"))
    assert {*load(**files)[0].train.rows["text"]} == {*texts}


@pytest.mark.parametrize("own", [False, True])
def test_what_is_held_out_of_a_stream_has_an_end(tmp_path, monkeypatch, own):
    """In characters too: a file without an empty line is one document."""
    monkeypatch.setattr("tfm_zoo.training.streaming.documents.CHARACTERS", 50)
    path = tmp_path / "unbroken.txt"
    path.write_text("".join(f"line {i:02d} of many\n" for i in range(40)))
    files = {"train_file": str(path)} | ({"validation_file": str(path)} if own else {})
    documents, (rest,), _ = load(streaming=True, max_eval_samples=3, **files)
    (held_out,) = documents.validation.rows["text"]
    assert held_out.split("\n") == [f"line {i:02d} of many" for i in range(4)]
    assert "the first 63 characters (1 document) were" in documents.notes[0]
    assert rest.count("line") == (40 if own else 36)


def test_a_row_of_a_stream_without_a_value_is_an_empty_text(tmp_path):
    rows = [{"text": None if i % 3 else f"text {i}"} for i in range(12)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, train, validation = load(train_file=str(tmp_path / "a.jsonl"), streaming=True, max_eval_samples=1)
    assert (train, validation) == (["text 3", "text 6", "text 9"], ["text 0"])
