"""Questions are cut into windows that know their answers, and the best spans are found in these."""

import json
from dataclasses import replace

import pytest
import torch

from tfm_zoo.training.tasks.question_answering import AnsweringOptions, best_spans, load_questions, padded_at_right
from tfm_zoo.training.tokenizers import word_piece_tokenizer


def test_best_spans_are_those_of_a_search_by_hand():
    start, end = torch.randn(2, 2, 7, generator=torch.Generator().manual_seed(0))
    allowed = torch.tensor([[False, True, True, True, True, True, False], [False] * 5 + [True] * 2])
    scores, first, last = best_spans(start, end, allowed, longest=3, count=9)
    for row in range(2):
        spans = [(i, j) for i in range(7) for j in range(i, min(i + 3, 7)) if allowed[row, i] and allowed[row, j]]
        by_score = sorted(((start[row, i] + end[row, j]).item(), i, j) for i, j in spans)[::-1][:9]
        found = torch.stack([scores[row], first[row], last[row]], dim=1)[: len(by_score)]
        torch.testing.assert_close(found, torch.tensor(by_score))
        assert scores[row, len(by_score) :].isneginf().all()


@pytest.fixture
def load(tmp_path):
    def load(rows: list[dict], **options):
        (tmp_path / "train.json").write_text("\n".join(map(json.dumps, rows)))
        args = AnsweringOptions(train_file=str(tmp_path / "train.json"), seed=0, **options)
        return load_questions(args), args

    return load


def row(text: str = "c", start: int = 4) -> dict:
    return {"question": "q", "context": "a b c d e f", "answers": {"text": [text], "answer_start": [start]}}


def test_windows_and_their_answers(load):
    questions, args = load([row("c d", 4)] * 10, max_seq_length=8, doc_stride=2, validation_split_percentage=10)
    encoded = questions.encode(word_piece_tokenizer(["q a b c d e f"]), args)
    windows = encoded["train"].select(range(2)).to_list()
    # [CLS] q [SEP] a b c d [SEP] and [CLS] q [SEP] c d e f [SEP]
    assert [(window["start_positions"], window["end_positions"]) for window in windows] == [(5, 6), (3, 4)]
    places = [[begin, begin + 1] for begin in range(0, 12, 2)]
    assert [window["places"] for window in windows] == [places[:4], places[2:]]
    assert [window["row"] for window in windows] == [0, 0] and windows[0]["context_start"] == 3
    assert "The 9 contexts of the train split were cut into 18 windows." in questions.notes
    questions, args = load([row("b", 2)] * 10, max_seq_length=8, doc_stride=1)
    tokenizer = word_piece_tokenizer(["q a b c d e f"])
    outside = questions.encode(tokenizer, args)["train"][1]
    assert (outside["start_positions"], outside["end_positions"]) == (0, 0)  # the CLS token stands for no answer
    # A question is not cut. It comes first, and padding last, whatever the tokenizer's side was.
    tokenizer.padding_side, tokenizer.pad_token = "left", None
    tokenizer.eos_token = "[SEP]"
    long = row("b", 2) | {"question": "q " * 70}
    blank = row() | {"context": " ", "answers": {"text": [], "answer_start": []}}
    options = {"max_seq_length": 80, "version_2_with_negative": True}
    questions, args = load([blank, *[long] * 20], **options)
    window = questions.encode(padded_at_right(tokenizer), args)["train"][0]
    assert tokenizer.pad_token == "[SEP]" and window["start_positions"] == 1 + 70 + 1 + 1
    assert (
        "1 of the 21 rows of the train split, whose 'question' or 'context' is empty, were left out." in questions.notes
    )
    with pytest.raises(ValueError, match="max_seq_length 60 is too small for 'q q q"):
        questions.encode(tokenizer, replace(args, max_seq_length=60))


def test_the_json_of_squad(tmp_path):
    asked = {"id": "x", "question": "q", "answers": [{"text": "c", "answer_start": 4}], "is_impossible": False}
    refused = {"id": "y", "question": "r", "answers": [], "plausible_answers": [], "is_impossible": True}
    articles = [{"title": "t", "paragraphs": [{"context": "a b c d", "qas": [asked, refused]}] * 5}]
    (tmp_path / "train.json").write_text(json.dumps({"version": "v2.0", "data": articles}, indent=1))
    args = AnsweringOptions(train_file=str(tmp_path / "train.json"), version_2_with_negative=True, seed=0)
    splits = load_questions(args).splits
    rows = {each["id"]: each for part in splits.values() for each in part}
    assert sum(map(len, splits.values())) == 10 and rows["y"]["answers"] == {"text": [], "answer_start": []}
    answers = {"text": ["c"], "answer_start": [4]}
    assert rows["x"] == {"id": "x", "question": "q", "context": "a b c d", "answers": answers}
