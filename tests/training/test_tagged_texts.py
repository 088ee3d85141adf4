"""Each token learns the tag of its word, and no word is counted twice."""

from dataclasses import replace
from itertools import pairwise

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import ByT5Tokenizer, PreTrainedConfig

from tfm_zoo import built_in_data
from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.models import label_fields
from tfm_zoo.training.tasks.tagging import TaggingOptions, labels_of_tokens, load_tagged_texts, reads_words
from tfm_zoo.training.tokenizers import byte_level_bpe, word_piece_tokenizer


def test_labels_of_tokens():
    label2id = {"O": 0, "B-a": 1, "I-a": 2, "B-b": 3}
    words, tags = [None, 0, 0, 1, 2, 2, None], ["B-a", "O", "B-b"]
    assert labels_of_tokens(words, tags, label2id, all_tokens=False) == [-100, 1, -100, 0, 3, -100, -100]
    assert labels_of_tokens(words, tags, label2id, all_tokens=True) == [-100, 1, 2, 0, 3, 3, -100]


def test_names_of_class_labels_and_words_that_are_cut(tmp_path):
    features = Features({"tokens": List(Value("string")), "ner_tags": List(ClassLabel(names=["O", "B-x"]))})
    columns = {"tokens": [["ab", "c", "d"]] * 10 + [[]], "ner_tags": [[1, 0, 0]] * 10 + [[]]}
    rows = Dataset.from_dict(columns, features=features)
    DatasetDict(train=rows).save_to_disk(tmp_path)
    args = TaggingOptions(dataset_name=str(tmp_path), max_seq_length=5, label_all_tokens=True, seed=0)
    data = load_tagged_texts(args)
    assert data.notes[0] == "1 of the 11 rows of the train split, whose 'words' is empty, were left out."
    assert data.label_names == ["O", "B-x"] and next(iter(data.texts())) == "ab c d"
    tokenizer = word_piece_tokenizer(["a b c d"])
    encoded = data.encode(tokenizer, args, PreTrainedConfig(**label_fields(["O", "B-x"])))
    assert encoded["train"][0]["labels"] == [IGNORED, 1, 1, 0, IGNORED]
    assert encoded["validation"][0]["labels"] == [IGNORED, 1, IGNORED, 0, IGNORED]  # figures are those of words
    assert any(note.startswith("9 of the 27 words of the train split were left out") for note in data.notes)
    with pytest.raises(ValueError, match="max_seq_length 2: no word of the train split has a token"):
        data.encode(tokenizer, replace(args, max_seq_length=2), PreTrainedConfig(**label_fields(["O", "B-x"])))


def test_a_tokenizer_of_bytes_keeps_words_apart():
    tokenizer = reads_words(byte_level_bpe(["one two"], 300))
    tokens = tokenizer([["one", "two"]], is_split_into_words=True)["input_ids"][0]
    assert tokenizer.decode(tokens) == " one two" and tokenizer.pad_token == "<|endoftext|>"
    in_parts = byte_level_bpe(["one two"], 300)  # as those of Llama 3 and Qwen2
    in_parts.backend_tokenizer.pre_tokenizer = Sequence([Digits(), ByteLevel(add_prefix_space=False)])
    tokens = reads_words(in_parts)([["one", "two"]], is_split_into_words=True)["input_ids"][0]
    assert tokenizer.decode(tokens) == " one two"


def test_a_slow_tokenizer_is_refused():
    with pytest.raises(ValueError, match=r"'some/model' is slow \(written in Python\) .*: give a fast one"):
        reads_words(ByT5Tokenizer(name_or_path="some/model"))


def test_built_in_sentences(monkeypatch):
    monkeypatch.setattr(built_in_data, "SENTENCES", {"train": 400, "validation": 100, "test": 200})
    splits = built_in_data.tagged_sentences()
    names = splits["train"].features["ner_tags"].feature.names
    seen = {split: {word for row in splits[split]["tokens"] for word in row} for split in ("train", "test")}
    assert {"stirling", "simon"} <= seen["test"] - seen["train"]
    ambiguous = {
        names[tag] for row in splits["train"] for word, tag in zip(*row.values(), strict=True) if word == "jordan"
    }
    assert ambiguous == {"B-person", "B-place"}
    for row in splits["validation"]["ner_tags"]:
        tags = ["O", *(names[tag] for tag in row)]
        assert all(before[1:] == tag[1:] for before, tag in pairwise(tags) if tag.startswith("I-"))
