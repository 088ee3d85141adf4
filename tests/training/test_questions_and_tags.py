"""Questions are cut into windows that know their answers; each token learns the tag of its word."""

import json
from argparse import Namespace
from dataclasses import replace

import pytest
import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import ByT5Tokenizer, PreTrainedConfig

from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.models import label_fields
from tfm_zoo.training.tasks.question_answering import AnsweringOptions, best_spans, load_questions, padded_at_right
from tfm_zoo.training.tasks.tagging import TaggingOptions, labels_of_tokens, load_tagged_texts, reads_words
from tfm_zoo.training.tokenizers import byte_level_bpe, word_piece_tokenizer

from .conftest import saved


@pytest.mark.parametrize("count", [9, 60])
def test_best_spans_are_those_of_a_search_by_hand(count):
    """Where there are no more, a score is -inf."""
    start, end = torch.randn(2, 2, 7, generator=torch.Generator().manual_seed(0))
    allowed = torch.tensor([[False, True, True, True, True, True, False], [False] * 5 + [True] * 2])
    scores, first, last = best_spans(start, end, allowed, longest=3, count=count)
    assert scores.shape == first.shape == last.shape == (2, count)
    for row in range(2):
        spans = [(i, j) for i in range(7) for j in range(i, min(i + 3, 7)) if allowed[row, i] and allowed[row, j]]
        by_score = sorted(((start[row, i] + end[row, j]).item(), i, j) for i, j in spans)[::-1][:count]
        found = torch.stack([scores[row], first[row], last[row]], dim=1)[: len(by_score)]
        torch.testing.assert_close(found, torch.tensor(by_score))
        assert scores[row, len(by_score) :].isneginf().all()


@pytest.fixture
def load(tmp_path):
    def load(*rows: dict, **options):
        (tmp_path / "train.json").write_text("\n".join(map(json.dumps, rows)))
        args = AnsweringOptions(train_file=str(tmp_path / "train.json"), seed=0, **options)
        return load_questions(args), args

    return load


def row(text: str = "c", start: int = 4) -> dict:
    return {"question": "q", "context": "a b c d e f", "answers": {"text": [text], "answer_start": [start]}}


def test_windows_and_their_answers(load):
    tokenizer = word_piece_tokenizer(["q a b c d e f"])
    questions, args = load(*[row("c d", 4)] * 10, max_seq_length=8, doc_stride=2, validation_split_percentage=10)
    encoded = questions.encode(args, None, tokenizer)
    windows = encoded["train"].select(range(2)).to_list()
    # [CLS] q [SEP] a b c d [SEP] and [CLS] q [SEP] c d e f [SEP]
    assert [(window["start_positions"], window["end_positions"]) for window in windows] == [(5, 6), (3, 4)]
    places = [[begin, begin + 1] for begin in range(0, 12, 2)]
    assert [window["places"][3:-1] for window in windows] == [places[:4], places[2:]]
    assert [window["row"] for window in windows] == [0, 0] and windows[0]["places"][:3] == [None] * 3
    assert "The 9 contexts of the train split were cut into 18 windows." in questions.notes
    questions, args = load(*[row("b", 2)] * 10, max_seq_length=8, doc_stride=1)
    outside = questions.encode(args, None, tokenizer)["train"][1]
    assert (outside["start_positions"], outside["end_positions"]) == (0, 0)  # the CLS token stands for no answer
    # A question is not cut. It comes first, and padding last, whatever the tokenizer's side was.
    tokenizer.padding_side, tokenizer.pad_token, tokenizer.eos_token = "left", None, "[SEP]"
    long = row("b", 2) | {"question": "q " * 70}
    blank = row() | {"context": " ", "answers": {"text": [], "answer_start": []}}
    questions, args = load(blank, *[long] * 20, max_seq_length=80, version_2_with_negative=True)
    window = questions.encode(args, None, padded_at_right(tokenizer))["train"][0]
    assert tokenizer.pad_token == "[SEP]" and window["start_positions"] == 1 + 70 + 1 + 1
    said = "1 of the 21 rows of the train split, whose 'question' or 'context' is empty, were left out."
    assert said in questions.notes
    with pytest.raises(
        ValueError, match="max_seq_len=60 leaves no room for the context beside a question of 60 tokens"
    ):
        questions.encode(replace(args, max_seq_length=60), None, tokenizer)


def test_the_json_of_squad(load):
    asked = {"id": "x", "question": "q", "answers": [{"text": "c", "answer_start": 4}], "is_impossible": False}
    refused = {"id": "y", "question": "r", "answers": [], "plausible_answers": [], "is_impossible": True}
    articles = [{"title": "t", "paragraphs": [{"context": "a b c d", "qas": [asked, refused]}] * 5}]
    splits = load({"version": "v2.0", "data": articles}, version_2_with_negative=True)[0].splits
    rows = {each["id"]: each for part in splits.values() for each in part}
    assert sum(map(len, splits.values())) == 10 and rows["y"]["answers"] == {"text": [], "answer_start": []}
    answers = {"text": ["c"], "answer_start": [4]}
    assert rows["x"] == {"id": "x", "question": "q", "context": "a b c d", "answers": answers}


def test_labels_of_tokens():
    label2id = {"O": 0, "B-a": 1, "I-a": 2, "B-b": 3}
    words, tags = [None, 0, 0, 1, 2, 2, None], ["B-a", "O", "B-b"]
    assert labels_of_tokens(words, tags, label2id, all_tokens=False) == [-100, 1, -100, 0, 3, -100, -100]
    assert labels_of_tokens(words, tags, label2id, all_tokens=True) == [-100, 1, 2, 0, 3, 3, -100]


def test_names_of_class_labels_and_words_that_are_cut(tmp_path):
    features = Features({"tokens": List(Value("string")), "ner_tags": List(ClassLabel(names=["O", "B-x"]))})
    columns = {"tokens": [["ab", "c", "d"]] * 10 + [[]], "ner_tags": [[1, 0, 0]] * 10 + [[]]}
    name = saved(tmp_path / "data", train=Dataset.from_dict(columns, features=features))
    args = TaggingOptions(dataset_name=name, max_seq_length=5, label_all_tokens=True, seed=0)
    data = load_tagged_texts(args)
    assert data.notes[0] == "1 of the 11 rows of the train split, whose 'words' is empty, were left out."
    assert data.label_names == ["O", "B-x"] and next(iter(data.texts())) == "ab c d"
    tokenizer, config = word_piece_tokenizer(["a b c d"]), PreTrainedConfig(**label_fields(["O", "B-x"]))
    model = Namespace(config=config)
    encoded = data.encode(args, model, tokenizer)
    assert encoded["train"][0]["labels"] == [IGNORED, 1, 1, 0, IGNORED]
    assert encoded["validation"][0]["labels"] == [IGNORED, 1, IGNORED, 0, IGNORED]  # figures are those of words
    assert any(note.startswith("9 of the 27 words of the train split were left out") for note in data.notes)
    with pytest.raises(ValueError, match="max_seq_length 2: no word of the train split has a token"):
        data.encode(replace(args, max_seq_length=2), model, tokenizer)


def test_a_tokenizer_of_bytes_keeps_words_apart_and_a_slow_one_is_refused():
    made, in_parts = (byte_level_bpe(["one two"], 300) for _ in range(2))
    in_parts.backend_tokenizer.pre_tokenizer = Sequence([Digits(), ByteLevel(add_prefix_space=False)])
    for tokenizer in map(reads_words, (made, in_parts)):  # the second as those of Llama 3 and Qwen2
        tokens = tokenizer([["one", "two"]], is_split_into_words=True)["input_ids"][0]
        assert tokenizer.decode(tokens) == " one two" and tokenizer.pad_token == "<|endoftext|>"
    with pytest.raises(ValueError, match=r"'some/model' is slow \(written in Python\) .*: give a fast one"):
        reads_words(ByT5Tokenizer(name_or_path="some/model"))
