"""Texts from any source, in memory or streamed: which train, which validate, and that blocks hold all tokens."""

from itertools import chain

import numpy as np
import pytest
import torch
from datasets import Dataset

from tfm_zoo.training.streaming import streams
from tfm_zoo.training.streaming import texts as text_sources
from tfm_zoo.training.streaming.documents import Documents, load_documents
from tfm_zoo.training.streaming.streams import Stream
from tfm_zoo.training.tasks import language_modeling as corpora
from tfm_zoo.training.tasks.pretraining import PretrainingOptions
from tfm_zoo.training.tokenizers import byte_level_bpe

from ..recipes.conftest import TEXT
from .conftest import TEXTS, load, read, saved

IN_MEMORY_AND_STREAMED = pytest.mark.parametrize("streaming", [False, True], ids=["in memory", "streamed"])


def documents_of(**options) -> tuple[Documents, list[str], list[str]]:
    """Documents, the texts to train on, and those to validate on."""
    documents = load_documents(PretrainingOptions(**options, seed=0))
    return documents, read(documents.train), read(documents.validation)


@IN_MEMORY_AND_STREAMED
@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_some_documents_are_held_out(shards, streaming, kind):
    """Of a stream the first of the first shard; of texts in memory some that the seed picks, and at most so many."""
    most = {"streaming": streaming, "max_eval_samples": 7, "max_train_samples": None if streaming else 80}
    documents, train, validation = documents_of(train_file=str(shards / f"*.{kind}"), **most)
    assert documents.split("One. Two\nThree") == (["One. Two", "Three"] if kind == "txt" else ["One.", "Two", "Three"])
    if streaming:
        assert (train, validation) == (sorted(TEXTS[7:]), sorted(TEXTS[:7]))
    else:
        assert (len(train), len(validation)) == (80, 7) and {*train, *validation} < {*TEXTS}
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


@pytest.fixture(scope="module")
def tokenizer():
    return byte_level_bpe([TEXT], 257)


def test_documents_are_joined_in_one_row(tokenizer, tmp_path):
    def encoded(tokenizer, *texts: str, **options) -> torch.Tensor:
        for name in ("a", "b"):
            Dataset.from_dict({"text": [*texts]}).to_parquet(tmp_path / f"{name}.parquet")
        files = {"train_file": str(tmp_path / "a.parquet"), "validation_file": str(tmp_path / "b.parquet")}
        args = corpora.LanguageModelingOptions(**files, **options)
        return corpora.load_corpus(args).rows_of_tokens(tokenizer, args)["train"]

    first, second = (tokenizer(text)["input_ids"] for text in ("ab", "c"))
    wanted = [*first, tokenizer.eos_token_id, *second, tokenizer.eos_token_id]
    tokens = encoded(tokenizer, *["ab", "c"] * 1500)
    assert tokens.tolist() == wanted * 1500 and tokens.dtype == torch.int32
    between = tokenizer("\n\n")["input_ids"]
    tokens = encoded(tokenizer, "ab", "c", document_separator="\n\n")
    assert tokens.tolist() == [*first, *between, *second, *between]
    with pytest.raises(ValueError, match="split 'train' holds 1 token: too few to predict any"):
        encoded(tokenizer, "a", document_separator="")
    (endless := byte_level_bpe([TEXT], 257)).eos_token = None
    with pytest.raises(ValueError, match="has no end-of-text token: give a document_separator"):
        encoded(endless, "ab", "c")


@pytest.mark.parametrize(("tokens", "sizes"), [(2, [2]), (8, [4, 4]), (9, [4, 4]), (10, [4, 4, 2]), (11, [4, 4, 3])])
def test_blocks_hold_every_token_that_can_be_predicted(tokens, sizes):
    row = torch.arange(1, tokens + 1, dtype=torch.int32)
    blocks = [corpora.Blocks(row, 4, filling=99)[i] for i in range(len(corpora.Blocks(row, 4)))]
    assert [int((block["labels"] != -100).sum()) for block in blocks] == [size - 1 for size in sizes]
    ids, labels = (torch.cat([block[name] for block in blocks]) for name in ("input_ids", "labels"))
    assert all(block["input_ids"].shape == (4,) and block["labels"].dtype == torch.int64 for block in blocks)
    assert ids[: sum(sizes)].equal(row[: sum(sizes)].long()) and {*ids[sum(sizes) :].tolist()} <= {99}
    assert labels[labels != -100].equal(ids[labels != -100])


def tokens_of(corpus: corpora.Corpus, tokenizer) -> list[int]:
    """What the blocks of four tokens of the stream hold, filling left out, in the order of the texts."""
    texts = next(Stream(corpus.stream, lambda texts, _: [texts], seed=0).first_pass())
    examples = corpora.blocks_of_chunk(
        texts,
        np.random.default_rng(0),
        lambda texts: corpora.ids_of(texts, tokenizer, [tokenizer.eos_token_id]),
        lambda row: corpora.Blocks(row, 4, filling=-1),
    )
    blocks = [[token for token in example["input_ids"].tolist() if token >= 0] for example in examples]
    assert [len(block) for block in blocks[:-1]] == [4] * (len(blocks) - 1)
    return [*chain.from_iterable(blocks)]


def test_streamed_files_are_running_text_with_its_line_breaks(tmp_path, tokenizer, monkeypatch):
    """Except for the last line end, and for the cuts of a text that is longer than a block."""
    text, file = "one\n\ntwo \u00e9\n  three" + "\n" * 3 + "four five six seven eight nine ten.", tmp_path / "a.txt"
    file.write_text(f"{text}\n")
    corpus = load("streamed corpus", **dict.fromkeys(("train_file", "validation_file"), str(file)))
    assert tokens_of(corpus, tokenizer) == [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
    assert list(corpus.texts()) == [text]
    file.write_text(TEXT)  # what is held out and what is left are the text
    monkeypatch.setattr(corpora, "HELD_OUT", 100)
    corpus = load("streamed corpus", train_file=str(file))
    held = corpus.splits["validation"]["text"][0]
    assert 100 <= len(held) < 150
    assert f"{held}\n{tokenizer.decode(tokens_of(corpus, tokenizer), skip_special_tokens=True)}\n" == TEXT
