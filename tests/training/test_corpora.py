"""Running text: from any source to blocks."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict

from tfm_zoo import built_in_data
from tfm_zoo.training.streaming import texts as text_sources
from tfm_zoo.training.streaming.streams import Stream
from tfm_zoo.training.streaming.texts import Place
from tfm_zoo.training.tasks import language_modeling as corpora
from tfm_zoo.training.tasks.language_modeling import (
    Blocks,
    Corpus,
    Joining,
    LanguageModelingOptions,
    blocks_of_chunk,
    cut_at_the_end,
    load_corpus,
)
from tfm_zoo.training.tokenizers import byte_level_bpe

from ..recipes.conftest import TEXT


@pytest.fixture(scope="module")
def bytes_only():
    return byte_level_bpe([TEXT], 257)


def load(**options) -> dict[str, list[str]]:
    corpus = load_corpus(LanguageModelingOptions(**options))
    return {name: split["text"][:] for name, split in corpus.splits.items()}


def corpus_of(*texts: str) -> Corpus:
    split = Dataset.from_dict({"text": list(texts)})
    return Corpus(DatasetDict(train=split, validation=split), ["train", "validation"], [])


def test_a_text_file_is_one_document_with_its_line_breaks(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo \u00e9\n")
    (tmp_path / "b.txt").write_text("three\n")
    files = {"train_file": str(tmp_path / "a.txt"), "validation_file": str(tmp_path / "b.txt")}
    assert load(**files) == {"train": ["one\n\ntwo \u00e9\n"], "validation": ["three\n"]}


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_a_row_is_a_document(tmp_path, kind):
    path = str(tmp_path / f"rows.{kind}")
    getattr(Dataset.from_dict({"id": [1, 2, 3], "body": ["a b", "c", "d"]}), f"to_{kind}")(path)
    splits = load(train_file=path, validation_file=path, text_column_name="body")
    assert splits == {"train": ["a b", "c", "d"], "validation": ["a b", "c", "d"]}


def test_validation_is_the_end_of_the_text():
    assert cut_at_the_end(["0123456789"], 0.2) == (["01234567"], ["89"])
    assert cut_at_the_end(["01", "2345", "6789"], 0.5) == (["01", "234"], ["5", "6789"])


def test_a_split_of_any_name_alone_is_cut(tmp_path):
    DatasetDict({"all": Dataset.from_dict({"anything": ["abcdefgh", "ij"]})}).save_to_disk(tmp_path / "data")
    assert load(dataset_name=str(tmp_path / "data"), validation_split_percentage=20) == {
        "train": ["abcdefgh"],
        "validation": ["ij"],
    }


def test_built_in_text_is_said_to_be_generated():
    corpus = load_corpus(LanguageModelingOptions(dataset_name=built_in_data.NAME))
    assert "The text is generated" in corpus.notes[0]
    assert len(corpus.splits["train"]) > 1000


@pytest.mark.parametrize("separator", [None, "\n\n"])
def test_documents_are_joined(bytes_only, separator):
    between = bytes_only(separator)["input_ids"] if separator else [bytes_only.eos_token_id]
    row = (
        corpus_of("ab", "c").encode(bytes_only, LanguageModelingOptions(document_separator=separator))["train"].tolist()
    )
    assert row == [*bytes_only("ab")["input_ids"], *between, *bytes_only("c")["input_ids"], *between]


def test_tokens_in_the_cache_are_mapped_and_not_read(bytes_only, tmp_path):
    """A row of int32 lies beside the tokenized split; later runs find it there."""
    Dataset.from_dict({"text": [f"text {i}" for i in range(2500)]}).to_parquet(tmp_path / "a.parquet")
    Dataset.from_dict({"text": ["held out"]}).to_parquet(tmp_path / "b.parquet")
    args = LanguageModelingOptions(train_file=str(tmp_path / "a.parquet"), validation_file=str(tmp_path / "b.parquet"))
    expected = [i for row in Joining(bytes_only)([f"text {i}" for i in range(2500)]) for i in row]
    for _ in range(2):
        tokens = load_corpus(args).encode(bytes_only, args)["train"]
        assert tokens.tolist() == expected and tokens.dtype == torch.int32
        assert any(line.rstrip().endswith(".tokens") for line in Path("/proc/self/maps").read_text().splitlines())


def test_a_tokenizer_without_an_end_joins_nothing(bytes_only):
    tokenizer = byte_level_bpe([TEXT], 257)
    tokenizer.eos_token = None
    assert (
        corpus_of("ab").encode(tokenizer, LanguageModelingOptions())["train"].tolist() == tokenizer("ab")["input_ids"]
    )
    with pytest.raises(ValueError, match="has no end-of-text token: give a document_separator"):
        corpus_of("ab", "c").encode(tokenizer, LanguageModelingOptions())


@pytest.mark.parametrize(("tokens", "sizes"), [(2, [2]), (8, [4, 4]), (9, [4, 4]), (10, [4, 4, 2]), (11, [4, 4, 3])])
def test_blocks_hold_every_token_that_can_be_predicted(tokens, sizes):
    row = torch.arange(1, tokens + 1, dtype=torch.int32)
    blocks = [Blocks(row, 4, filling=99)[i] for i in range(len(Blocks(row, 4)))]
    assert [int((block["labels"] != -100).sum()) for block in blocks] == sizes
    ids = torch.cat([block["input_ids"] for block in blocks])
    labels = torch.cat([block["labels"] for block in blocks])
    assert all(block["input_ids"].shape == (4,) and block["labels"].dtype == torch.int64 for block in blocks)
    assert ids[: sum(sizes)].tolist() == labels[: sum(sizes)].tolist() == row[: sum(sizes)].tolist()
    assert set(ids[sum(sizes) :].tolist()) <= {99}


def test_blocks_are_limited_and_filled_up_for_processes():
    row = torch.arange(40, dtype=torch.int32)
    assert len(Blocks(row, 4, limit=3)) == 3
    blocks = Blocks(row, 4, limit=3, multiple_of=4)
    assert (len(blocks), blocks.size) == (4, 3)
    assert blocks[2]["labels"].tolist() == [8, 9, 10, 11]
    assert blocks[3]["labels"].tolist() == [-100] * 4


@pytest.fixture
def streamed(monkeypatch):
    """Loads a corpus as a stream, whose first `held_out` characters validate, and makes blocks of four tokens of it."""

    def load(held_out: int = 10, **options) -> Corpus:
        monkeypatch.setattr(corpora, "HELD_OUT", held_out)
        return load_corpus(LanguageModelingOptions(streaming=True, **options))

    return load


def blocks_of(corpus: Corpus, tokenizer) -> list[list[int]]:
    """What the blocks of the stream's first read hold, filling left out, in the order of the texts."""
    _, texts = next(Stream(corpus.stream, blocks_of_chunk, seed=0).chunks(Place()))
    blocks = functools.partial(Blocks, block_size=4)
    examples = blocks_of_chunk(texts, np.random.default_rng(0), Joining(tokenizer), blocks)
    return [example["input_ids"][example["labels"] != -100].tolist() for example in examples]


def test_streamed_files_are_documents_with_their_line_breaks(tmp_path, bytes_only, streamed, monkeypatch):
    """Except for the last line end, and for the cuts of a text that is longer than a block."""
    text = "one\n\ntwo \u00e9\n  three" + "\n" * 3 + "four five six seven eight nine ten."
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(text + "\n")
    files = {"train_file": str(tmp_path / "a.txt"), "validation_file": str(tmp_path / "b.txt")}
    corpus = streamed(**files)
    assert "validation" in corpus.own_splits and list(corpus.splits) == ["validation"]
    assert corpus.splits["validation"]["text"][:] == ["one\n\ntwo \u00e9\n  three"]
    ids = [token for block in blocks_of(corpus, bytes_only) for token in block]
    assert ids == [*bytes_only(text)["input_ids"], bytes_only.eos_token_id]
    assert list(corpus.texts()) == [text]
    monkeypatch.setattr(text_sources, "CHARACTERS", 20)
    assert "\n".join(streamed(**files).texts()) == text


def test_a_row_of_a_stream_is_a_document(tmp_path, bytes_only, streamed):
    path = str(tmp_path / "rows.jsonl")
    Dataset.from_dict({"id": [1, 2, 3, 4], "body": ["0123456789", "ab", "", "cd"]}).to_json(path)
    corpus = streamed(train_file=path, text_column_name="body")
    assert corpus.splits["validation"]["text"][:] == ["0123456789"]
    assert "the first 10 characters (1 document) were taken" in corpus.notes[0]
    end = bytes_only.eos_token_id
    ids = [token for block in blocks_of(corpus, bytes_only) for token in block]
    assert ids == [*bytes_only("ab")["input_ids"], end, *bytes_only("cd")["input_ids"], end]


def test_all_files_of_a_validation_split_are_used(tmp_path, streamed):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"text of {name}\n")
    files = str(tmp_path / "*.txt")
    texts = ["text of a", "text of b", "text of c"]
    assert streamed(train_file=files, validation_file=files, held_out=100).splits["validation"]["text"][:] == texts
    corpus = streamed(train_file=files, validation_file=files, held_out=10)
    assert corpus.splits["validation"]["text"][:] == texts[:2]
    assert corpus.notes == ["Of the validation split the first 18 characters (2 documents) were used."]


def test_blocks_of_a_stream_hold_its_text(tmp_path, bytes_only, streamed):
    (tmp_path / "a.txt").write_text(TEXT)
    corpus = streamed(train_file=str(tmp_path / "a.txt"), held_out=100)
    held = corpus.splits["validation"]["text"][0]
    assert 100 <= len(held) < 150
    blocks = blocks_of(corpus, bytes_only)
    assert [len(block) for block in blocks[:-1]] == [4] * (len(blocks) - 1)
    text = bytes_only.decode([token for block in blocks for token in block], skip_special_tokens=True)
    assert f"{held}\n{text}\n" == TEXT


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("small.txt", {"held_out": 100}, "nothing is left to train on: .* or do not stream it"),
        ("empty.txt", {}, "there is no text in the train split"),
        ("two.csv", {}, r"give text_column_name: .* \['a', 'b'\]"),
        ("two.csv", {"text_column_name": "b"}, "text_column_name 'b': a row holds 1, not text"),
    ],
)
def test_streams_that_are_no_corpus_are_refused(tmp_path, streamed, file, options, message):
    (tmp_path / "small.txt").write_text("a few words\n")
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "two.csv").write_text("a,b\nx,1\n")
    with pytest.raises(ValueError, match=message):
        streamed(train_file=str(tmp_path / file), **options)


def test_tokenizer_of_the_text():
    texts = ["the cat sat on the mat", "the dog"] * 5
    tokenizer, again = (byte_level_bpe(texts, 270) for _ in range(2))
    assert len(tokenizer) <= 270 and tokenizer.get_vocab() == again.get_vocab()
    text = "the cat, na\u00efvely\n\t\U0001f600"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer("the")["input_ids"]) == 1 < len(byte_level_bpe(texts, 257)("the")["input_ids"])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"train_file": "nowhere.txt"}, FileNotFoundError, "train_file 'nowhere.txt': no such file"),
        ({"train_file": __file__}, ValueError, "expected one of .txt, .csv, .tsv, .json, .jsonl, .parquet, not '.py'"),
        ({"train_file": "empty.txt"}, ValueError, "there is no text in the train split"),
        ({"train_file": "latin.txt"}, ValueError, "train_file '.*latin.txt' cannot be read: .*utf-8"),
        (
            {"train_file": "latin.csv"},
            ValueError,
            r"train_file '.*latin.csv' cannot be read: .*utf-8.*\(save it as UTF-8\)$",
        ),
        ({"train_file": "broken.json"}, ValueError, "train_file '.*broken.json' cannot be read"),
        ({"train_file": "two.csv"}, ValueError, r"give text_column_name: .* \['a', 'b'\]"),
        ({"train_file": "two.csv", "text_column_name": "c"}, ValueError, "text_column_name 'c': no such column"),
        (
            {"train_file": "two.csv", "text_column_name": "b"},
            ValueError,
            "text_column_name 'b' holds .*int64.*, not text",
        ),
        ({"train_file": "fine.txt", "validation_split_percentage": 0}, ValueError, "there is no validation split"),
        ({"dataset_name": "no/where"}, (ValueError, FileNotFoundError), "no/where"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused(tmp_path, options, error, message):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "fine.txt").write_text("fine")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "latin.csv").write_bytes(b"text\ncaf\xe9")
    (tmp_path / "broken.json").write_text('[{"text": "a"')
    (tmp_path / "two.csv").write_text("a,b\nx,1\n")
    file = options.get("train_file")
    if file and (tmp_path / file).exists():
        options = options | {"train_file": str(tmp_path / file)}
    with pytest.raises(error, match=message):
        load_corpus(LanguageModelingOptions(**options))


@pytest.mark.parametrize(("vocab_size", "message"), [(256, "must be at least 257"), (0, "not 0")])
def test_too_small_vocabulary_is_refused(vocab_size, message):
    with pytest.raises(ValueError, match=message):
        byte_level_bpe([TEXT], vocab_size)
