"""Running text, from any source, becomes blocks of tokens that hold all of it."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict

from tfm_zoo.data import built_in_data
from tfm_zoo.training.streaming import texts as text_sources
from tfm_zoo.training.streaming.streams import Stream
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
from .conftest import saved


@pytest.fixture(scope="module")
def tokenizer():
    return byte_level_bpe([TEXT], 257)


def load(**options) -> dict[str, list[str]]:
    corpus = load_corpus(LanguageModelingOptions(**options))
    return {name: split["text"][:] for name, split in corpus.splits.items()}


def encoded(tokenizer, *texts: str, **options) -> list[int]:
    """The tokens of these documents."""
    split = Dataset.from_dict({"text": list(texts)})
    corpus = Corpus(DatasetDict(train=split, validation=split), ["train", "validation"], [])
    return corpus.encode(tokenizer, LanguageModelingOptions(**options))["train"].tolist()


@pytest.mark.parametrize("kind", ["txt", "csv", "json", "parquet"])
def test_a_text_file_or_a_row_is_a_document(tmp_path, kind):
    files = {f"{split}_file": str(tmp_path / f"{split}.{kind}") for split in ("train", "validation")}
    for name in files.values():
        if kind == "txt":
            Path(name).write_text("one\n\ntwo \u00e9\n")
        else:
            getattr(Dataset.from_dict({"id": [1, 2, 3], "body": ["a b", "c", "d"]}), f"to_{kind}")(name)
    wanted, column = (["one\n\ntwo \u00e9\n"], None) if kind == "txt" else (["a b", "c", "d"], "body")
    assert load(**files, text_column_name=column) == {"train": wanted, "validation": wanted}


def test_validation_is_the_end_of_the_text(tmp_path):
    assert cut_at_the_end(["0123456789"], 0.2) == (["01234567"], ["89"])
    assert cut_at_the_end(["01", "2345", "6789"], 0.5) == (["01", "234"], ["5", "6789"])
    name = saved(tmp_path / "data", all=Dataset.from_dict({"anything": ["abcdefgh", "ij"]}))
    assert load(dataset_name=name, validation_split_percentage=20) == {"train": ["abcdefgh"], "validation": ["ij"]}
    corpus = load_corpus(LanguageModelingOptions(dataset_name=built_in_data.NAME))
    assert "The text is generated" in corpus.notes[0] and len(corpus.splits["train"]) > 1000


def test_documents_are_joined(tokenizer):
    first, second = (tokenizer(text)["input_ids"] for text in ("ab", "c"))
    assert encoded(tokenizer, "ab", "c") == [*first, tokenizer.eos_token_id, *second, tokenizer.eos_token_id]
    between = tokenizer("\n\n")["input_ids"]
    assert encoded(tokenizer, "ab", "c", document_separator="\n\n") == [*first, *between, *second, *between]
    endless = byte_level_bpe([TEXT], 257)
    endless.eos_token = None
    assert encoded(endless, "ab") == first
    with pytest.raises(ValueError, match="has no end-of-text token: give a document_separator"):
        encoded(endless, "ab", "c")


@pytest.mark.parametrize(("tokens", "sizes"), [(2, [2]), (8, [4, 4]), (9, [4, 4]), (10, [4, 4, 2]), (11, [4, 4, 3])])
def test_blocks_hold_every_token_that_can_be_predicted(tokens, sizes):
    row = torch.arange(1, tokens + 1, dtype=torch.int32)
    blocks = [Blocks(row, 4, filling=99)[i] for i in range(len(Blocks(row, 4)))]
    assert [int((block["labels"] != -100).sum()) for block in blocks] == [size - 1 for size in sizes]
    ids, labels = (torch.cat([block[name] for block in blocks]) for name in ("input_ids", "labels"))
    assert all(block["input_ids"].shape == (4,) and block["labels"].dtype == torch.int64 for block in blocks)
    assert ids[: sum(sizes)].tolist() == row[: sum(sizes)].tolist() and labels[labels != -100].equal(
        ids[labels != -100]
    )
    assert set(ids[sum(sizes) :].tolist()) <= {99}


def test_blocks_are_limited_and_filled_up_for_processes():
    row = torch.arange(40, dtype=torch.int32)
    assert len(Blocks(row, 4, limit=3)) == 3
    blocks = Blocks(row, 4, limit=3, multiple_of=4)
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


def test_streamed_files_are_documents_with_their_line_breaks(tmp_path, tokenizer, streamed, monkeypatch):
    """Except for the last line end, and for the cuts of a text that is longer than a block."""
    text = "one\n\ntwo \u00e9\n  three" + "\n" * 3 + "four five six seven eight nine ten."
    files = {f"{split}_file": str(tmp_path / f"{split}.txt") for split in ("train", "validation")}
    for name in files.values():
        Path(name).write_text(text + "\n")
    corpus = streamed(**files)
    assert "validation" in corpus.own_splits and list(corpus.splits) == ["validation"]
    assert corpus.splits["validation"]["text"][:] == ["one\n\ntwo \u00e9\n  three"]
    assert tokens_of(corpus, tokenizer) == [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
    assert list(corpus.texts()) == [text]
    monkeypatch.setattr(text_sources, "CHARACTERS", 20)
    assert "\n".join(streamed(**files).texts()) == text


def test_a_row_of_a_stream_is_a_document(tmp_path, tokenizer, streamed):
    path = str(tmp_path / "rows.jsonl")
    Dataset.from_dict({"id": [1, 2, 3, 4], "body": ["0123456789", "ab", "", "cd"]}).to_json(path)
    corpus = streamed(train_file=path, text_column_name="body")
    assert corpus.splits["validation"]["text"][:] == ["0123456789"]
    assert "the first 10 characters (1 document) were taken" in corpus.notes[0]
    ab, cd = ([*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in ("ab", "cd"))
    assert tokens_of(corpus, tokenizer) == ab + cd


def test_what_is_held_out_of_a_stream_and_what_is_left_are_the_text(tmp_path, tokenizer, streamed):
    """All files of a validation split are used."""
    (tmp_path / "text.txt").write_text(TEXT)
    corpus = streamed(train_file=str(tmp_path / "text.txt"), held_out=100)
    held = corpus.splits["validation"]["text"][0]
    assert 100 <= len(held) < 150
    rest = tokenizer.decode(tokens_of(corpus, tokenizer), skip_special_tokens=True)
    assert f"{held}\n{rest}\n" == TEXT

    for name in "abc":
        (tmp_path / f"part-{name}.txt").write_text(f"text of {name}\n")
    files = dict.fromkeys(("train_file", "validation_file"), str(tmp_path / "part-*.txt"))
    texts = ["text of a", "text of b", "text of c"]
    assert streamed(**files, held_out=100).splits["validation"]["text"][:] == texts
    corpus = streamed(**files, held_out=10)
    assert corpus.splits["validation"]["text"][:] == texts[:2]
    assert corpus.notes == ["Of the validation split the first 18 characters (2 documents) were used."]
