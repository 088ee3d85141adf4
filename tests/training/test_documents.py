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
    elif kind in ("saved", "built-in"):
        data = Dataset.from_dict({"text": TEXTS})
        options = {"dataset_name": "generated" if kind == "built-in" else saved(tmp_path / "data", train=data)}
    documents, train, validation = load(streaming=streaming, max_eval_samples=7, **options)
    assert isinstance(documents.train.rows, IterableDataset) == streaming
    assert documents.split("One. Two\nThree") == (["One. Two", "Three"] if kind == "txt" else ["One.", "Two", "Three"])
    if kind == "built-in":
        assert len(validation) == 7 and len(train) > 90 and "validation" in documents.own_splits
    elif streaming:
        assert (train, validation) == (sorted(TEXTS[7:]), sorted(TEXTS[:7]))
        assert "characters (7 documents) were taken" in documents.notes[0]
    else:
        assert (len(train), len(validation)) == (90, 7) and {*train, *validation} < {*TEXTS}
        assert not {*train} & {*validation}


@IN_MEMORY_AND_STREAMED
def test_own_splits_are_taken_whole(shards, tmp_path, streaming):
    """Of text files too, whose end is that of a document where no empty line stands there. Any split can be named."""
    files = {"train_file": str(shards / "0.txt"), "validation_file": str(shards / "2.txt")}
    documents, train, validation = load(streaming=streaming, **files)
    assert (train, validation) == (sorted(TEXTS[:50]), sorted(TEXTS[85:]))
    assert "validation" in documents.own_splits and not documents.notes

    texts = [f"{i} one {i} two" for i in range(8)]
    for i in range(4):
        lines = (text.replace(" ", "\n", 1) for text in texts[2 * i : 2 * i + 2])
        (tmp_path / f"{i}.txt").write_text("\n\n".join(lines) + "\n")
    files = str(tmp_path / "*.txt")
    assert load(train_file=files, validation_file=files, streaming=streaming)[1:] == (texts, texts)
    _, train, validation = load(train_file=files, streaming=streaming, max_eval_samples=1)
    assert sorted(train + validation) == texts

    splits = {name: Dataset.from_dict({"text": [f"{name} {i}" for i in range(30)]}) for name in ("train", "other")}
    options = {"dataset_name": saved(tmp_path / "data", **splits), "streaming": streaming, "max_eval_samples": 3}
    _, train, validation = load(train_split_name="other", **options)
    assert {text.split()[0] for text in train + validation} == {"other"}
    with pytest.raises(ValueError, match=r"train_split_name 'no': no such split among \['train'"):
        load(train_split_name="no", **options)


def test_a_document_in_memory_is_whole(tmp_path, monkeypatch):
    """Its parts would be shuffled, and meet in a chunk as if they were different documents."""
    for module in (streams, text_sources):
        monkeypatch.setattr(module, "CHARACTERS", 100)
    texts = ["after", "before", "\n".join(f"{i:04d}" for i in range(90))]
    (tmp_path / "long.txt").write_text("\n\n".join(texts))
    files = dict.fromkeys(("train_file", "validation_file"), str(tmp_path / "long.txt"))
    assert {*load(**files)[0].train.rows["text"]} == {*texts}


def test_what_is_held_out_of_a_stream_has_an_end(tmp_path, monkeypatch):
    """In characters too: a file without an empty line is one document."""
    monkeypatch.setattr("tfm_zoo.training.streaming.documents.CHARACTERS", 50)
    lines = [f"line {i:02d} of many" for i in range(40)]
    (tmp_path / "unbroken.txt").write_text("".join(f"{line}\n" for line in lines))
    files = dict.fromkeys(("train_file", "validation_file"), str(tmp_path / "unbroken.txt"))
    for own, left in (({}, 36), (files, 40)):
        documents, (rest,), _ = load(streaming=True, max_eval_samples=3, **{"train_file": files["train_file"], **own})
        assert documents.validation.rows["text"][:] == ["\n".join(lines[:4])]
        assert "the first 63 characters (1 document) were" in documents.notes[0]
        assert rest.count("line") == left


def test_a_row_of_a_stream_without_a_value_is_an_empty_text(tmp_path):
    rows = [{"text": None if i % 3 else f"text {i}"} for i in range(12)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, train, validation = load(train_file=str(tmp_path / "a.jsonl"), streaming=True, max_eval_samples=1)
    assert (train, validation) == (["text 3", "text 6", "text 9"], ["text 0"])
