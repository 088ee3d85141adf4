"""Data that a task cannot learn from are refused before it trains, in one line that names them."""

from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from .conftest import lines_of, load, saved

ONE_TAG = {"tokens": ["a"], "tags": ["O"]}
QUESTION = {"question": "q", "context": "a b c d e f", "answers": {"text": ["c"], "answer_start": [4]}}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"


def second_of_ten(row: dict, **changed: object) -> str:
    """Ten lines of JSON, of which the second is another."""
    return lines_of(row, row | changed, *[row] * 8)


#: what stands in files
FILES = {
    **{"script.py": "", "empty.txt": "", "blank.txt": "\n", "small.txt": "a few words\n", "latin.txt": b"caf\xe9"},
    **{"utf16.jsonl": '{"text": "a"}'.encode("utf-16-le"), "broken.json": '[{"text": "a"', "two.csv": "a,b\nx,1\n"},
    **{"two.jsonl": '{"a": "x", "b": 1}\n', "several/a.txt": "a", "several/b.jsonl": '{"text": "a"}\n'},
    **{"header.csv": "text,label\n", "semicolons.CSV": "text;label\na;1\n", "tabs.csv": "text\tlabel; note\na\t1\n"},
    **{"commas.tsv": "text,label\na,1\n", "comma.csv": "text,label\na, b,1\n", "cell.tsv": "text\tlabel\n\na\t1\nb\n"},
    **{"pointer.csv": POINTER, "unlabelled.csv": "text,label\na,\nb,\n"},
    "gap.csv": 'text,label\n"two\nlines",1\n\nno label,\n',
    "gap.json": '[{"text": "fine", "label": 1},\n{"text": "no label", "label": null}]\n',
    "fine.csv": "text,label\n" + "good text,good\nbad text,bad\n" * 4,
    **{"ugly.csv": "text,label\na text,good\na text,bad\na text,ugly\n", "sentences.en": b"caf\xe9\n"},
    **{"sentences.de": b"caf\xe9\n", "longer.en": "one\ntwo\n", "longer.de": "eins\n"},
    "moved.json": second_of_ten(QUESTION, answers={"text": ["c"], "answer_start": [5]}),
    "unanswered.json": second_of_ten(QUESTION, answers={"text": [], "answer_start": []}),
    "plain.json": lines_of(*[QUESTION | {"answers": {"text": "c", "answer_start": 4}}] * 10),
    "squad.json": '{"version": "1.1", "data": [{"title": "t", "paragraphs": []}]}',
    **{"untagged.json": second_of_ten(ONE_TAG, tokens=["a", "b"]), "one_tag.json": second_of_ten(ONE_TAG)},
    "lists.json": second_of_ten({"text": "x", "labels": ["a"]}, labels=["a", None]),
    **{"no_tokens.json": second_of_ten(ONE_TAG, tokens=None), "no_tags.json": second_of_ten(ONE_TAG, tags=None)},
}
#: data sets of the Hub's kind, by name: their splits
TEN = {"text": [f"text {i}" for i in range(10)], "label": ["bad", "good"] * 5, "number": [1] * 10, "same": ["one"] * 10}
LISTS = {"text": ["x"] * 3, "labels": [[0], [0, -1], [1]]}
OF_IDS = Features({"text": Value("string"), "labels": List(ClassLabel(names=["a", "b"]))})
TEN |= {"holes": ["a", "b", "a", None] + ["b"] * 6, "blank": ["a", "b", " \t"] + ["c"] * 7, "parts": [{"a": 1}] * 10}
SETS = {"ten": {"train": Dataset.from_dict(TEN)}, "ids": {"train": Dataset.from_dict(LISTS, features=OF_IDS)}}
SETS["without_train"] = dict.fromkeys(("validation", "test"), Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}))
OF_TEXT, SIDES = {"source_lang": "text"}, ("source_lang", "target_lang")
TEXT_LABEL = {"text_column_name": ["label"], "label_column_name": ["same"]}
#: of a language model and of documents, in memory and streamed
RUNNING_TEXT = [
    ("nowhere.csv", {}, "train_file '.*nowhere.csv': no such file"),
    ("script.py", {}, "expected one of .txt, .csv, .tsv, .json, .jsonl, .parquet, not '.py'"),
    ("empty.txt", {}, "there is no text in the train split: train_file '.*empty.txt' is empty"),
    ("blank.txt", {}, "there is no text in the (train|validation) split"),
    ("two.csv", {}, r"give text_column_name: .* \['a', 'b'\]"),
    ("two.jsonl", {"text_column_name": "b"}, "text_column_name 'b'.* not text"),
]
STREAM = [
    ("small.txt", {"max_train_samples": 3}, "give either streaming or max_train_samples"),
    ("small.txt", {"max_train_steps": None}, "streaming needs max_train_steps"),
    ("small.txt", {"checkpointing_steps": "epoch"}, "checkpointing_steps 'epoch': a stream has no epochs"),
]
#: by task: the file or data set to train on, options beside it, and what is said
REFUSED = {
    "texts": [
        ("ten", {"dataset_name": "no/where"}, "no/where"),
        ("ten", {"text_column_name": ["body"]}, "text_column_name 'body': no such column.*'text', 'label'"),
        ("ten", {"text_column_name": ["label"]}, "'label' cannot be both"),
        ("ten", TEXT_LABEL, "text_column_name 'label': labels get a column of this name; rename that of"),
        ("lists.json", {}, r"line 2 .*, column 'labels': .* and one of \['a', None\] is missing"),
        ("ids", {}, r"row 1, .*, column 'labels': .* and one of \['a', None\] is missing"),
        ("ten", {"text_column_name": ["number"]}, "text_column_name 'number' holds .*int64.*, not text"),
        ("ten", {"text_column_name": ["holes"]}, "split 'train', row 3, .*, column 'holes': there is no text"),
        ("ten", {"label_column_name": ["same"]}, r"two labels or more; 'same' holds only \['one'\]"),
        ("ten", {"label_column_name": ["parts"]}, "'parts' holds .*; expected text, whole numbers or booleans"),
        ("ten", {"classifier_pooling": "mean", "config_overrides": "classifier_pooling=mean"}, "either by itself or"),
        ("ten", {"validation_split_percentage": 0}, "no validation split"),
        ("ten", {"validation_split_percentage": 100}, "train has 10 rows: too few to cut a validation split from it"),
        ("without_train", {}, r"no split to train on among \['validation', 'test'\]"),
        ("fine.csv", {"test_file": "two.csv"}, "split 'test' has no column 'text'"),
        ("header.csv", {}, r"train_file '.*header.csv' gives no row; does it hold only a header\?"),
        ("semicolons.CSV", {}, "semicolons.CSV has semicolons .'text;label'.: a .csv file needs commas"),
        *(("tabs.csv", {}, "tabs.csv has tabs"), ("commas.tsv", {}, "commas.tsv has commas .*, a .tsv file tabs")),
        ("comma.csv", {}, "comma.csv: its first row has 3 cells, and its header 2; is a text"),
        ("cell.tsv", {}, "cell.tsv, line 4: expected 2 cells, .* found 1"),
        ("pointer.csv", {}, "pointer.csv is a Git LFS pointer, not the file itself"),
        ("unlabelled.csv", {}, "split 'train' has no labels: all of them are missing"),
        ("gap.csv", {}, "line 5 of gap.csv, column 'label': 1 row without a label, this is the first$"),
        ("gap.json", {}, "row 1, counted from 0 .* of gap.json, column 'label': 1 row w"),
        ("fine.csv", {"validation_file": "ugly.csv"}, r"'validation' has labels that train lacks: \['ugly'\]"),
    ],
    "pairs": [
        ("sentences", {}, "sentences.en is not UTF-8: .*utf-8"),
        ("longer", {}, "train_file .*longer': its sides have 2 and 1 lines"),
        ("ten", dict.fromkeys(SIDES), r"give source_lang and target_lang: the columns are \['text', 'label', 'numb"),
        ("ten", OF_TEXT | {"target_lang": "blank"}, "split 'train', row 2, .*, column 'blank': the text is empty"),
    ],
    "questions": [
        ("moved.json", {}, "line 2 of moved.json: the answer 'c' does not stand at character 5 of its context"),
        ("unanswered.json", {}, "line 2 of unanswered.json: there is no answer: give version_2_with_negative"),
        ("squad.json", {}, r"split 'train' is SQuAD's own JSON: give rows"),
        ("plain.json", {}, "line 1 of plain.json: answer_column needs lists `text` and `answer_start`, not "),
    ],
    "tags": [
        ("no_tokens.json", {}, "line 2 .*: text_column_name 'tokens' needs a list of words, not None"),
        ("no_tags.json", {}, "line 2 .*: label_column_name 'tags' needs a list of tags, not None"),
        ("untagged.json", {}, "split 'train', line 2 of untagged.json: 2 words and 1 tag"),
        ("one_tag.json", {}, r"two tags or more are needed; 'tags' holds only \['O'\]"),
    ],
    "corpus": [
        *RUNNING_TEXT,
        ("latin.txt", {}, "train_file '.*latin.txt' cannot be read: .*utf-8"),
        ("broken.json", {}, "train_file '.*broken.json' cannot be read"),
        ("utf16.jsonl", {}, "utf16.jsonl is UTF-16 or binary: save it as UTF-8"),
        ("small.txt", {"validation_split_percentage": 0}, "there is no validation split"),
    ],
    "streamed corpus": [*RUNNING_TEXT, *STREAM],
    "documents": RUNNING_TEXT,
    "streamed documents": [
        *RUNNING_TEXT,
        ("two.csv", {"train_split_name": "other"}, r"train_split_name 'other': no such split among \['train'"),
        ("several/*", {}, r"fits files of several kinds: \.jsonl, \.txt"),
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """All that the cases name."""
    folder = tmp_path_factory.mktemp("refused")
    (folder / "several").mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for name, splits in SETS.items():
        saved(folder / name, **splits)
    return folder


@pytest.mark.parametrize(("task", "name", "options", "said"), [(key, *row) for key in REFUSED for row in REFUSED[key]])
def test_data(folder, task, name, options, said):
    train = {"dataset_name" if name in SETS else "train_file": str(folder / name)}
    files = {key: str(folder / value) for key, value in options.items() if key.endswith("_file")}
    with pytest.raises((ValueError, OSError), match=said):
        load(task, **train | options | files)
