"""Running text and documents, from any source, in memory or streamed: which are trained on, which validate, and that
blocks of tokens hold all of them."""

from itertools import chain

import numpy as np
import pytest
import torch
from datasets import Dataset, IterableDataset

from tfm_zoo.training.streaming import streams
from tfm_zoo.training.streaming import texts as text_sources
from tfm_zoo.training.streaming.documents import Documents, load_documents
from tfm_zoo.training.streaming.streams import Stream
from tfm_zoo.training.tasks import language_modeling as corpora
from tfm_zoo.training.tasks.language_modeling import (
    Blocks,
    Corpus,
    Joining,
    LanguageModelingOptions,
    blocks_of_chunk,
    load_corpus,
)
from tfm_zoo.training.tasks.pretraining import PretrainingOptions
from tfm_zoo.training.tokenizers import byte_level_bpe

from ..recipes.conftest import TEXT
from .conftest import TEXTS, read, saved

IN_MEMORY_AND_STREAMED = pytest.mark.parametrize("streaming", [False, True], ids=["in memory", "streamed"])


def documents_of(**options) -> tuple[Documents, list[str], list[str]]:
    """Documents, the texts to train on, and those to validate on."""
    documents = load_documents(PretrainingOptions(**options, seed=0))
    return documents, read(documents.train), read(documents.validation)


@IN_MEMORY_AND_STREAMED
@pytest.mark.parametrize("kind", ["txt", "jsonl", "folder", "saved", "built-in"])
def test_some_documents_are_held_out(shards, tmp_path, streaming, kind):
    """Of a stream the first of the first shard; of texts in memory some that the seed picks, and at most so many."""
    options = {"train_file": str(shards / f"*.{kind}")}
    if kind == "folder":
        for file in shards.glob("*.jsonl"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
        options = {"dataset_name": str(tmp_path)}
    elif kind in ("saved", "built-in"):
        data = Dataset.from_dict({"text": TEXTS})
        options = {"dataset_name": "generated" if kind == "built-in" else saved(tmp_path / "data", train=data)}
    documents, train, validation = documents_of(streaming=streaming, max_eval_samples=7, **options)
    assert isinstance(documents.train.rows, IterableDataset) == streaming
    assert documents.split("One. Two\nThree") == (["One. Two", "Three"] if kind == "txt" else ["One.", "Two", "Three"])
    if kind == "built-in":
        assert len(validation) == 7 and len(train) > 90
    elif streaming:
        assert (train, validation) == (sorted(TEXTS[7:]), sorted(TEXTS[:7]))
        assert "characters (7 documents) were taken" in documents.notes[0]
    else:
        assert (len(train), len(validation)) == (90, 7) and {*train, *validation} < {*TEXTS}
        assert not {*train} & {*validation}


@IN_MEMORY_AND_STREAMED
def test_any_split_can_be_trained_on(tmp_path, streaming):
    splits = {name: Dataset.from_dict({"text": [f"{name} {i}" for i in range(30)]}) for name in ("train", "other")}
    options = {"dataset_name": saved(tmp_path / "data", **splits), "streaming": streaming, "max_eval_samples": 3}
    _, train, validation = documents_of(train_split_name="other", **options)
    assert {text.split()[0] for text in train + validation} == {"other"}


def test_a_document_in_memory_is_whole(tmp_path, monkeypatch):
    """Its parts would be shuffled, and meet in a chunk as if they were different documents."""
    for module in (streams, text_sources):
        monkeypatch.setattr(module, "CHARACTERS", 100)
    texts = ["after", "before", "\n".join(f"{i:04d}" for i in range(90))]
    (tmp_path / "long.txt").write_text("\n\n".join(texts))
    files = dict.fromkeys(("train_file", "validation_file"), str(tmp_path / "long.txt"))
    assert {*documents_of(**files)[0].train.rows["text"]} == {*texts}


def test_what_is_held_out_of_a_stream_has_an_end(tmp_path, monkeypatch):
    """In characters too: a file without an empty line is one document."""
    monkeypatch.setattr("tfm_zoo.training.streaming.documents.CHARACTERS", 50)
    lines = [f"line {i:02d} of many" for i in range(40)]
    (tmp_path / "unbroken.txt").write_text("".join(f"{line}\n" for line in lines))
    files = dict.fromkeys(("train_file", "validation_file"), str(tmp_path / "unbroken.txt"))
    for own, left in (({}, 36), (files, 40)):
        documents, (rest,), _ = documents_of(streaming=True, **{"train_file": files["train_file"], **own})
        assert documents.validation.rows["text"][:] == ["\n".join(lines[:4])]
        assert "the first 63 characters (1 document) were" in documents.notes[0]
        assert rest.count("line") == left


@pytest.fixture(scope="module")
def tokenizer():
    return byte_level_bpe([TEXT], 257)


@pytest.mark.parametrize(
    ("texts", "share", "train", "validation"),
    [
        (["0123456789"], 20, ["01234567"], ["89"]),
        (["01", "2345", "6789"], 50, ["01", "234"], ["5", "6789"]),
    ],
)
def test_the_end_of_running_text_validates(tmp_path, texts, share, train, validation):
    name = saved(tmp_path / "data", all=Dataset.from_dict({"anything": texts}))
    splits = load_corpus(LanguageModelingOptions(dataset_name=name, validation_split_percentage=share)).splits
    assert (splits["train"]["text"][:], splits["validation"]["text"][:]) == (train, validation)


def test_documents_are_joined_in_one_row(tokenizer, tmp_path):
    def encoded(tokenizer, *texts: str, **options) -> torch.Tensor:
        for name in ("a", "b"):
            Dataset.from_dict({"text": [*texts]}).to_parquet(tmp_path / f"{name}.parquet")
        files = {"train_file": str(tmp_path / "a.parquet"), "validation_file": str(tmp_path / "b.parquet")}
        args = LanguageModelingOptions(**files, **options)
        return load_corpus(args).encode(tokenizer, args)["train"]

    first, second = (tokenizer(text)["input_ids"] for text in ("ab", "c"))
    wanted = [*first, tokenizer.eos_token_id, *second, tokenizer.eos_token_id]
    tokens = encoded(tokenizer, *["ab", "c"] * 1500)
    assert tokens.tolist() == wanted * 1500 and tokens.dtype == torch.int32
    between = tokenizer("\n\n")["input_ids"]
    tokens = encoded(tokenizer, "ab", "c", document_separator="\n\n")
    assert tokens.tolist() == [*first, *between, *second, *between]
    endless = byte_level_bpe([TEXT], 257)
    endless.eos_token = None
    assert encoded(endless, "ab").tolist() == first
    with pytest.raises(ValueError, match="has no end-of-text token: give a document_separator"):
        encoded(endless, "ab", "c")


@pytest.mark.parametrize(("tokens", "sizes"), [(2, [2]), (8, [4, 4]), (9, [4, 4]), (10, [4, 4, 2]), (11, [4, 4, 3])])
def test_blocks_hold_every_token_that_can_be_predicted(tokens, sizes):
    row = torch.arange(1, tokens + 1, dtype=torch.int32)
    blocks = [Blocks(row, 4, filling=99)[i] for i in range(len(Blocks(row, 4)))]
    assert [int((block["labels"] != -100).sum()) for block in blocks] == [size - 1 for size in sizes]
    ids, labels = (torch.cat([block[name] for block in blocks]) for name in ("input_ids", "labels"))
    assert all(block["input_ids"].shape == (4,) and block["labels"].dtype == torch.int64 for block in blocks)
    assert ids[: sum(sizes)].equal(row[: sum(sizes)].long()) and {*ids[sum(sizes) :].tolist()} <= {99}
    assert labels[labels != -100].equal(ids[labels != -100])


def test_blocks_are_limited_and_filled_up_for_processes():
    blocks = Blocks(torch.arange(40, dtype=torch.int32), 4, limit=3, multiple_of=4)
    assert (len(blocks), blocks.size) == (4, 3)
    assert [blocks[index]["labels"].tolist() for index in (2, 3)] == [[-100, 9, 10, 11], [-100] * 4]


@pytest.fixture
def streamed(monkeypatch):
    """Loads a corpus as a stream, whose first `held_out` characters validate."""

    def load(held_out: int = 10, **options) -> Corpus:
        monkeypatch.setattr(corpora, "HELD_OUT", held_out)
        return load_corpus(LanguageModelingOptions(streaming=True, **options))

    return load


def tokens_of(corpus: Corpus, tokenizer) -> list[int]:
    """What the blocks of four tokens of the stream hold, filling left out, in the order of the texts."""
    texts = next(Stream(corpus.stream, lambda texts, _: [texts], seed=0).first_pass())
    examples = blocks_of_chunk(
        texts, np.random.default_rng(0), Joining(tokenizer), lambda row: Blocks(row, 4, filling=-1)
    )
    blocks = [[token for token in example["input_ids"].tolist() if token >= 0] for example in examples]
    assert [len(block) for block in blocks[:-1]] == [4] * (len(blocks) - 1)
    return [*chain.from_iterable(blocks)]


def test_streamed_files_are_running_text_with_its_line_breaks(tmp_path, tokenizer, streamed, monkeypatch):
    """Except for the last line end, and for the cuts of a text that is longer than a block."""
    text, file = "one\n\ntwo \u00e9\n  three" + "\n" * 3 + "four five six seven eight nine ten.", tmp_path / "a.txt"
    file.write_text(text + "\n")
    files = dict.fromkeys(("train_file", "validation_file"), str(file))
    corpus = streamed(**files)
    assert corpus.splits["validation"]["text"][:] == ["one\n\ntwo \u00e9\n  three"]
    assert tokens_of(corpus, tokenizer) == [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
    assert list(corpus.texts()) == [text]
    with monkeypatch.context() as patch:
        patch.setattr(text_sources, "CHARACTERS", 20)
        assert "\n".join(streamed(**files).texts()) == text

    file.write_text(TEXT)  # what is held out and what is left are the text
    corpus = streamed(train_file=str(file), held_out=100)
    held = corpus.splits["validation"]["text"][0]
    assert 100 <= len(held) < 150
    assert f"{held}\n{tokenizer.decode(tokens_of(corpus, tokenizer), skip_special_tokens=True)}\n" == TEXT


def test_a_row_of_a_stream_is_a_text_and_all_files_of_a_split_are_used(tmp_path, streamed):
    path = str(tmp_path / "rows.jsonl")
    Dataset.from_dict({"id": [1, 2, 3, 4], "body": ["0123456789", "ab", "", "cd"]}).to_json(path)
    corpus = streamed(train_file=path, text_column_name="body")
    assert (corpus.splits["validation"]["text"][:], read(corpus.stream)) == (["0123456789"], ["ab", "cd"])
    assert "the first 10 characters (1 document) were taken" in corpus.notes[0]

    texts = [f"text of {name}" for name in "abc"]
    for text in texts:
        (tmp_path / f"part-{text[-1]}.txt").write_text(f"{text}\n")
    files = dict.fromkeys(("train_file", "validation_file"), str(tmp_path / "part-*.txt"))
    assert streamed(**files, held_out=100).splits["validation"]["text"][:] == texts
    corpus = streamed(**files, held_out=10)
    assert corpus.splits["validation"]["text"][:] == texts[:2]
    assert corpus.notes == ["Of the validation split the first 18 characters (2 documents) were used."]
