"""Texts with labels, pairs, questions and tagged words are what stands in a file, a folder or a data set, whatever its
kind and its names; missing splits are cut from train."""

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import ByT5Tokenizer, MBart50Tokenizer, MBartTokenizer, PreTrainedConfig

from tfm_zoo import TfmEncoderDecoderForConditionalGeneration
from tfm_zoo.data import built_in_data
from tfm_zoo.data.row_files import rows_of_files
from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.models import label_fields
from tfm_zoo.training.tasks import language_modeling, question_answering
from tfm_zoo.training.tasks.classification import ClassificationOptions
from tfm_zoo.training.tasks.question_answering import AnsweringOptions, AnsweringTask, load_questions
from tfm_zoo.training.tasks.tagging import TaggingOptions, load_tagged_texts, reads_words
from tfm_zoo.training.tasks.translation import TranslationOptions, set_languages
from tfm_zoo.training.tokenizers import byte_level_bpe, joint_bpe, word_piece_tokenizer

from ..tiny import tiny_model
from .conftest import WRITERS, lines_of, load, read, saved, sizes


def texts(n: int, labels=("bad", "good")) -> Dataset:
    return Dataset.from_dict({"text": [f"text {i}" for i in range(n)], "label": (list(labels) * n)[:n]})


@pytest.mark.parametrize("kind", WRITERS)
def test_cells_are_what_stands_there(tmp_path, kind):
    cells = ["null", "None", "NA", "nan", "n/a", "<NA>", "01", "007", "1", "true", '"quoted', "it's"]
    rows = [{"null": f'"{cell}" {i}', "second": cell, "label": cell} for i in range(2) for cell in cells]
    if kind == "tsv":
        lines = ["\t".join(row) for row in (rows[0], *(row.values() for row in rows))]
        (tmp_path / "train.tsv").write_text("\n".join(lines))
    else:
        WRITERS[kind](Dataset.from_list(rows), tmp_path / f"train.{kind}")
    columns = {"text_column_name": ["null", "second"], "validation_split_percentage": 5}
    for source in ({"train_file": str(tmp_path / f"train.{kind}")}, {"dataset_name": str(tmp_path)}):
        data = load("texts", **source, **columns)
        assert {*data.label_names} == {*cells} and data.label_names[:3] == ["01", "1", "007"]
        found = [str(row) for split in data.splits.values() for row in split]
        assert sizes(data) == {"train": 23, "validation": 1} and sorted(found) == sorted(map(str, rows))


@pytest.mark.parametrize("kind", ["csv", "tsv", "json", "jsonl", "txt"])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_byte_order_mark_is_no_text(tmp_path, kind, streaming):
    """Wherever a file begins: rows in memory, streams, and ranges of bytes."""
    cells, path = ["\u00e4", "null", "b"], tmp_path / f"a.{kind}"
    if kind == "txt":
        path.write_text("\n".join(cells))
    else:
        WRITERS[kind](Dataset.from_dict({"text": cells}), path)
    path.write_text(path.read_text("utf-8"), "utf-8-sig")
    for whole_up_to in (0, 1 << 20):
        assert [row["text"] for row in rows_of_files([path], "a file", streaming, "line", whole_up_to)] == cells


@pytest.mark.parametrize("name", ["validation_matched", "val", "dev"])
def test_names_of_the_validation_split(tmp_path, name):
    """Nothing else that begins likewise is taken."""
    splits = {"devtest": texts(2), "value": texts(2), "train": texts(8), name: texts(4)}
    assert sizes(load("texts", dataset_name=saved(tmp_path / "data", **splits))) == {"train": 8, "validation": 4}


def test_missing_splits_are_cut_by_the_seed_and_samples_shuffled(tmp_path):
    shares = {"validation_split_percentage": 10, "test_split_percentage": 20}
    folder = saved(tmp_path / "data", test=texts(40))
    data, again, other = (load("texts", dataset_name=folder, seed=seed, **shares) for seed in (0, 0, 1))
    assert sizes(data) == {"train": 28, "validation": 4, "test": 8}
    assert len({text for split in data.splits.values() for text in split["text"]}) == 40
    assert "only the split 'test'" in data.notes[0]
    picked = [each.splits["test"]["text"][:] for each in (data, again, other)]
    assert picked[0] == picked[1] != picked[2]

    by_label = Dataset.from_dict({"text": [str(i) for i in range(200)], "label": [0] * 100 + [1] * 100})
    folder = saved(tmp_path / "sorted", train=by_label, validation=by_label, test=by_label)
    data = load("texts", dataset_name=folder, max_train_samples=50, max_eval_samples=40)
    assert sizes(data) == {"train": 50, "validation": 40, "test": 40}
    for split in data.splits.values():
        assert 0.2 < split["label"][:].count("1") / len(split) < 0.8


def test_labels_keep_their_names_and_numbers_their_order(tmp_path):
    features = Features({"text": Value("string"), "label": ClassLabel(names=["zebra", "ant", "bee"])})
    train = Dataset.from_dict({"text": ["a", "b", "c"] * 4, "label": [0, 1, 0] * 4}, features=features)
    unlabelled = Dataset.from_dict({"text": ["d"], "label": [-1]}, features=features)
    data = load("texts", dataset_name=saved(tmp_path / "data", train=train, test=unlabelled))
    assert data.label_names == ["zebra", "ant", "bee"] and "test" not in data.splits
    written = saved(tmp_path / "10", train=texts(40, ("10", "9", "2", "m²", "--1", "²", "-2")))
    assert load("texts", dataset_name=written).label_names == ["-2", "2", "9", "10", "--1", "m²", "²"]


def test_pairs_of_texts_and_the_ids_of_their_labels(tmp_path):
    pairs = texts(10).rename_column("text", "premise").add_column("hypothesis", ["so"] * 10)
    data = load("texts", dataset_name=saved(tmp_path / "data", train=pairs, validation=pairs))
    assert data.text_columns == ["premise", "hypothesis"]
    tokenizer, config = word_piece_tokenizer(["text so 0 1 2"]), PreTrainedConfig(**label_fields(["good", "bad"]))
    encoded = data.encode(ClassificationOptions(max_seq_length=8), Namespace(config=config), tokenizer)["validation"]
    assert tokenizer.decode(encoded[0]["input_ids"]) == "[CLS] text 0 [SEP] so [SEP]"
    assert encoded[0]["token_type_ids"] == [0, 0, 0, 0, 1, 1] and encoded["labels"][:] == [1, 0] * 5


ANSWERED = {"id": "x", "question": "q", "context": "a b c d", "answers": {"text": ["c"], "answer_start": [4]}}
QUESTIONS = [ANSWERED, ANSWERED | {"id": "y", "question": "r", "answers": {"text": [], "answer_start": []}}]
DOG, CSV = [{"source": "dog", "target": "Hund"}], {"a.csv": "id,en,de\n1,dog,Hund\n"}
TWO_FILES = {"0.txt": "a one\na two\n\n\nb one\n", "1.txt": "c one\n"}
TWO, FIRST_10 = "a one a two\n\n\nb one", "the first 10 characters (1 document) were taken"
EMPTY = [{"text": "dog", "summary": "Hund"}, {"text": "dog", "summary": " "}]
BODIES = {"a.jsonl": lines_of(*({"id": 1, "body": text} for text in ("0123456789", "ab", "", "cd")))}
ONE, HALF = {"validation_file": None}, {"validation_file": None, "validation_split_percentage": 50}


@pytest.mark.parametrize(
    ("task", "files", "options", "wanted"),
    [
        ("corpus", {"a.txt": "one\n\ntwo \u00e9\n"}, {}, ["one\n\ntwo \u00e9\n"]),
        ("corpus", {"a.csv": "id,body\n1,a b\n2,c\n"}, {"text_column_name": "body"}, ["a b", "c"]),
        # Of running text the end validates; of a stream the beginning, in whole documents.
        ("corpus", {"a.txt": "01234567"}, HALF, (["0123"], ["4567"], "the last 50 % of the training text were taken")),
        ("streamed corpus", BODIES, ONE | {"text_column_name": "body"}, (["ab", "cd"], ["0123456789"], FIRST_10)),
        ("streamed corpus", TWO_FILES, {}, ([TWO, "c one"], ["a one a two"], "the validation split the first 11 ch")),
        ("documents", TWO_FILES, {}, ["a one a two", "b one", "c one"]),
        ("pairs", CSV, {}, DOG),
        ("pairs", CSV, {"source_lang": "en_XX", "target_lang": "de_DE"}, DOG),  # codes of a tokenizer
        ("pairs", {"a.en": "a\u2028b\n", "a.de": "c"}, {}, [{"source": "a\u2028b", "target": "c"}]),
        ("pairs", {"a.jsonl": lines_of({"id": 1, "translation": {"en": "dog", "de": "Hund"}})}, {}, DOG),
        ("summaries", {"a.json": '[{"article": "dog", "highlights": "Hund"}]'}, {}, DOG),
        ("summaries", {"a.jsonl": lines_of(*EMPTY)}, {}, (DOG, DOG, "1 of the 2 rows of the train split")),
        ("summaries", CSV, {"text_column": "en", "summary_column": "de"}, DOG),
        ("questions", {"a.json": json.dumps(QUESTIONS)}, {"version_2_with_negative": True}, QUESTIONS),
    ],
)
def test_what_is_read(tmp_path, monkeypatch, task, files, options, wanted):
    """In the file of each split, of any kind and with any columns. Of a stream 10 characters are enough."""
    monkeypatch.setattr(language_modeling, "HELD_OUT", 10)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    pattern = "*.txt" if files is TWO_FILES else "a" if "a.en" in files else next(iter(files))
    data = load(task, **dict.fromkeys(("train_file", "validation_file"), str(tmp_path / pattern)) | options)
    if "documents" in task:
        splits = [read(data.train), read(data.validation)]
    elif task == "streamed corpus":
        splits = [read(data.stream), [text.replace("\n", " ", 1) for text in data.splits["validation"]["text"]]]
    else:
        splits = [[row["text"] if task == "corpus" else row for row in each] for each in data.splits.values()]
    *wanted, note = wanted if isinstance(wanted, tuple) else (wanted, wanted, "")
    assert [sorted(each, key=str) for each in splits] == [sorted(each, key=str) for each in wanted]
    assert note in " ".join(data.notes)


ROWS = [{"en": f"the dog number {i}", "de": f"der Hund Nummer {i}"} for i in range(20)]
NAMES = {"source_lang": "en", "target_lang": "de"}


def test_pairs_are_encoded_and_truncated_where_they_are_long(tmp_path):
    rows = [*ROWS[1:], {"en": "the dog " * 20, "de": "der Hund"}]
    split, short = Dataset.from_list(rows), Dataset.from_list(ROWS[:4])
    data = load("pairs", dataset_name=saved(tmp_path / "data", train=split, validation=short))
    tokenizer = joint_bpe([text for row in ROWS for text in row.values()], 300)
    args = TranslationOptions(**NAMES, max_source_length=12, max_target_length=30)
    encoded = data.encode(args, None, tokenizer, tokenizer)
    longest = max(encoded["train"]["input_ids"], key=len)
    assert len(longest) == 12 and longest[-1] == tokenizer.eos_token_id
    for pair, text in zip(encoded["validation"], ROWS[:4], strict=True):
        for ids, language in ((pair["input_ids"], "en"), (pair["labels"], "de")):
            assert ids[-1] == tokenizer.eos_token_id
            assert tokenizer.decode(ids, skip_special_tokens=True) == text[language]


@pytest.mark.parametrize(("tokenizer_class", "place"), [(MBartTokenizer, 0), (MBart50Tokenizer, 1)])
def test_the_model_is_told_which_language_it_writes(tokenizer_class, place):
    tokenizer = tokenizer_class()
    model = tiny_model(TfmEncoderDecoderForConditionalGeneration, vocab_size=len(tokenizer), start_with_last_token=True)
    set_languages(model, tokenizer, "en_XX", "de_DE")
    english, german = tokenizer.convert_tokens_to_ids(["en_XX", "de_DE"])
    assert english in tokenizer("a")["input_ids"] and german in tokenizer(text_target="a")["input_ids"]
    assert model.generate(**tokenizer("a", return_tensors="pt"), max_new_tokens=2)[0].tolist().index(german) == place
    with pytest.raises(ValueError, match=r"target_lang 'de': .* knows ar_AR, cs_CZ, de_DE"):
        set_languages(model, tokenizer, "en_XX", "de")


@pytest.mark.parametrize("count", [3, 60])
@pytest.mark.parametrize("threshold", [-99.0, 99.0, None])
def test_answers_are_the_best_spans_of_all_windows(count, threshold):
    """With the probability of each. No answer comes first if it is better by more than the threshold, or else last;
    it is left out if all questions have one, and there is a span."""
    places = [[None, [0, 1], [2, 3], [4, 5], [6, 7]], [None, [4, 5], [6, 7], [8, 9]], [None, [0, 3]], [None, None]]
    windows = [{"row": max(0, n - 1), "no_answer": 0, "places": each} for n, each in enumerate(places)]
    contexts, (start, end) = ["a b c d e", "all", " "], torch.randn(2, 4, 6)  # padded to 6 tokens
    has_none = {"version_2_with_negative": True, "null_score_diff_threshold": threshold} if threshold else {}
    args, task = AnsweringOptions(max_answer_length=3, n_best_size=count, **has_none), object.__new__(AnsweringTask)
    task.run, task.windows = Namespace(args=args), {"test": windows}
    task.data = Namespace(splits={"test": {"context": contexts}})
    answers = task.best_answers({"start": start, "end": end}, "test")
    scores = (start[:, :, None] + end[:, None]).tolist()
    for row, (context, found) in enumerate(zip(contexts, answers, strict=True)):
        spans, nothing = {}, min(scores[n][0][0] for n, window in enumerate(windows) if window["row"] == row)
        for n, window in enumerate(windows):
            known = [place for place, span in enumerate(window["places"]) if span and window["row"] == row]
            for first, last in [(i, j) for i in known for j in known if i <= j < i + 3]:
                span = context[window["places"][first][0] : window["places"][last][1]]
                spans[span] = max(scores[n][first][last], spans.get(span, -torch.inf))
        wanted = sorted(spans.items(), key=lambda item: -item[1])[:count]
        if threshold or not spans:
            wanted.insert(0 if threshold == -99 else len(wanted), ("", nothing))
        assert [each["text"] for each in found] == [text for text, _ in wanted]
        assert [each["score"] for each in found] == pytest.approx([score for _, score in wanted])
        chances = torch.tensor([score for _, score in wanted]).softmax(0).tolist()
        assert [each["probability"] for each in found] == pytest.approx(chances)


def questions_of(path: Path, *rows: dict, **options):
    (path / "train.json").write_text(lines_of(*rows))
    args = AnsweringOptions(train_file=str(path / "train.json"), seed=0, **options)
    return load_questions(args), args


def question(text: str, start: int) -> dict:
    return {"question": "q", "context": "a b c d e f", "answers": {"text": [text], "answer_start": [start]}}


def test_windows_and_their_answers(tmp_path, monkeypatch):
    tokenizer, ten = word_piece_tokenizer(["q a b c d e f"]), [question("c d", 4)] * 10
    questions, args = questions_of(tmp_path, *ten, max_seq_length=8, doc_stride=2, validation_split_percentage=10)
    windows = questions.encode(args, None, tokenizer)["train"].select(range(2)).to_list()
    # [CLS] q [SEP] a b c d [SEP] and [CLS] q [SEP] c d e f [SEP]
    assert [(window["start_positions"], window["end_positions"]) for window in windows] == [(5, 6), (3, 4)]
    places = [[begin, begin + 1] for begin in range(0, 12, 2)]
    assert [window["places"][3:-1] for window in windows] == [places[:4], places[2:]]
    assert [window["row"] for window in windows] == [0, 0] and windows[0]["places"][:3] == [None] * 3
    questions, args = questions_of(tmp_path, *[question("b", 2)] * 10, max_seq_length=8, doc_stride=1)
    outside = questions.encode(args, None, tokenizer)["train"][1]
    assert (outside["start_positions"], outside["end_positions"]) == (0, 0)  # the CLS token stands for no answer
    # A question is not cut. It comes first, and padding last, whatever the tokenizer's side was.
    tokenizer.padding_side, tokenizer.pad_token, tokenizer.eos_token = "left", None, "[SEP]"
    monkeypatch.setattr(question_answering, "model_with_labels", lambda *_: (None, tokenizer))
    questions, args = questions_of(tmp_path, *[question("b", 2) | {"question": "q " * 70}] * 20, max_seq_length=80)
    window = questions.encode(args, *question_answering.build_answerer(args, questions))["train"][0]
    assert tokenizer.pad_token == "[SEP]" and window["start_positions"] == 1 + 70 + 1 + 1
    with pytest.raises(ValueError, match="max_seq_len=60 leaves no room for the context"):
        questions.encode(replace(args, max_seq_length=60), None, tokenizer)


def test_tokens_learn_the_tags_of_their_words_and_words_that_are_cut_are_told(tmp_path):
    features = Features({"tokens": List(Value("string")), "ner_tags": List(ClassLabel(names=["O", "B-x"]))})
    columns = {"tokens": [["ab", "c", "d"]] * 10 + [[]], "ner_tags": [[1, 0, 0]] * 10 + [[]]}
    name = saved(tmp_path / "data", train=Dataset.from_dict(columns, features=features))
    args = TaggingOptions(dataset_name=name, max_seq_length=5, label_all_tokens=True, seed=0)
    data = load_tagged_texts(args)
    assert data.notes[0].startswith("1 of the 11 rows of the train split, whose 'words' is empty")
    assert data.label_names == ["O", "B-x"] and next(iter(data.texts())) == "ab c d"
    tokenizer, config = word_piece_tokenizer(["a b c d"]), PreTrainedConfig(**label_fields(["O", "B-x"]))
    model = Namespace(config=config)
    encoded = data.encode(args, model, tokenizer)
    assert encoded["train"][0]["labels"] == [IGNORED, 1, 1, 0, IGNORED]
    assert encoded["validation"][0]["labels"] == [IGNORED, 1, IGNORED, 0, IGNORED]  # figures are those of words
    first = data.encode(replace(args, label_all_tokens=False), model, tokenizer)["train"][0]
    assert first["labels"] == [IGNORED, 1, IGNORED, 0, IGNORED]
    with pytest.raises(ValueError, match="max_seq_length 2: no word of the train split has a token"):
        data.encode(replace(args, max_seq_length=2), model, tokenizer)


def test_a_tokenizer_of_bytes_keeps_words_apart_and_a_slow_one_is_refused():
    made, in_parts = (byte_level_bpe(["one two"], 300) for _ in range(2))
    in_parts.backend_tokenizer.pre_tokenizer = Sequence([Digits(), ByteLevel(add_prefix_space=False)])
    for tokenizer in map(reads_words, (made, in_parts)):  # the second as those of Llama 3 and Qwen2
        tokens = tokenizer([["one", "two"]], is_split_into_words=True)["input_ids"][0]
        assert tokenizer.decode(tokens) == " one two" and tokenizer.pad_token == "<|endoftext|>"
    with pytest.raises(ValueError, match="'some/model' is slow, and does not tell which word"):
        reads_words(ByT5Tokenizer(name_or_path="some/model"))


def test_generated_data_are_the_same_each_time_and_test_what_was_not_trained_on():
    for make, column in ((built_in_data.generated_reviews, "text"), (built_in_data.reversed_sequences, "source")):
        data, again = make(), make()
        assert data["test"].to_list() == again["test"].to_list()
        assert {*data["train"][column]}.isdisjoint({*data["test"][column]})
    unnamed = load("pairs", dataset_name="generated", **dict.fromkeys(NAMES))
    assert unnamed.languages == ("source", "target") and {*unnamed.splits["train"][0]} == {"source", "target"}
