"""Texts with labels are what stands in a file, a folder or a data set, whatever its kind and its names."""

import json
import re
from argparse import Namespace

import pandas
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from transformers import PreTrainedConfig

from tfm_zoo.data import built_in_data
from tfm_zoo.data.row_files import rows_of_files
from tfm_zoo.training.data import natural_sort
from tfm_zoo.training.models import label_fields
from tfm_zoo.training.tasks.classification import ClassificationOptions, load_texts
from tfm_zoo.training.tasks.tagging import TaggingOptions, load_tagged_texts
from tfm_zoo.training.tokenizers import word_piece_tokenizer

from .conftest import WRITERS, saved, sizes


def load(seed: int = 0, **options):
    return load_texts(ClassificationOptions(seed=seed, **options))


def texts(n: int, labels=("bad", "good")) -> Dataset:
    return Dataset.from_dict({"text": [f"text {i}" for i in range(n)], "label": (list(labels) * n)[:n]})


@pytest.mark.parametrize("kind", WRITERS)
def test_files(rows, tmp_path, kind):
    path = str(tmp_path / f"train.{kind}")
    WRITERS[kind](Dataset.from_list(rows), path)
    data = load(train_file=path, test_file=path, text_column_name=["review"], label_column_name="stars")
    assert data.label_names == ["bad", "good"]
    assert sizes(data) == {"train": 81, "validation": 9, "test": 90}
    assert data.splits["test"].to_list() == [{"review": row["review"], "label": row["stars"]} for row in rows]


def test_a_folder_of_files(tmp_path):
    texts(8).to_parquet(tmp_path / "train.parquet")
    texts(4).to_parquet(tmp_path / "test.parquet")
    data = load(dataset_name=str(tmp_path), validation_split_percentage=25)
    assert sizes(data) == {"train": 6, "validation": 2, "test": 4} and data.own_splits == ["train", "test"]


@pytest.mark.parametrize("names", [["validation_matched"], ["valid"], ["val"], ["dev"], ["validation", "dev"]])
def test_names_of_the_validation_split(tmp_path, names):
    """The full name comes first. Nothing else that begins likewise is taken."""
    others = dict.fromkeys(("devtest", "value", "device"), texts(2, labels=("other",)))
    found = {name: texts(4 + place) for place, name in enumerate(names)}
    data = load(dataset_name=saved(tmp_path / "data", **others, train=texts(8), **found))
    assert sizes(data) == {"train": 8, "validation": 4}
    assert data.own_splits == ["train", "validation"] and not data.notes


def test_missing_splits_are_cut_by_the_seed_and_samples_shuffled(tmp_path):
    shares = {"validation_split_percentage": 10, "test_split_percentage": 20}
    folder = saved(tmp_path / "data", test=texts(40))
    data, again, other = (load(dataset_name=folder, seed=seed, **shares) for seed in (0, 0, 1))
    parts = {name: set(split["text"]) for name, split in data.splits.items()}
    assert {name: len(part) for name, part in parts.items()} == {"train": 28, "validation": 4, "test": 8}
    assert len(set.union(*parts.values())) == 40
    assert data.own_splits == [] and "only the split 'test'" in data.notes[0]
    picked = [each.splits["test"]["text"][:] for each in (data, again, other)]
    assert picked[0] == picked[1] != picked[2]
    assert sizes(load(dataset_name=folder, validation_split_percentage=1)) == {"train": 39, "validation": 1}

    by_label = Dataset.from_dict({"text": [str(i) for i in range(200)], "label": [0] * 100 + [1] * 100})
    folder = saved(tmp_path / "sorted", train=by_label, validation=by_label, test=by_label)
    data = load(dataset_name=folder, max_train_samples=50, max_eval_samples=40)
    assert sizes(data) == {"train": 50, "validation": 40, "test": 40}
    for split in data.splits.values():
        assert 0.2 < split["label"][:].count("1") / len(split) < 0.8


def test_labels_keep_their_names_and_numbers_their_order(tmp_path):
    features = Features({"text": Value("string"), "label": ClassLabel(names=["zebra", "ant", "bee"])})
    train = Dataset.from_dict({"text": ["a", "b", "c"] * 4, "label": [0, 1, 0] * 4}, features=features)
    unlabelled = Dataset.from_dict({"text": ["d"], "label": [-1]}, features=features)
    data = load(dataset_name=saved(tmp_path / "data", train=train, test=unlabelled))
    assert data.label_names == ["zebra", "ant", "bee"]
    assert "test" not in data.splits and "'test' is not labelled" in data.notes[0]
    assert load(dataset_name=saved(tmp_path / "10", train=texts(40, (10, 9, 2)))).label_names == ["2", "9", "10"]
    assert natural_sort(["m²", "--1", "²", "10", "-2"]) == ["-2", "10", "--1", "m²", "²"]


def test_pairs_and_label_ids(tmp_path):
    pairs = texts(10).rename_column("text", "premise").add_column("hypothesis", ["so"] * 10)
    data = load(dataset_name=saved(tmp_path / "data", train=pairs, validation=pairs))
    assert data.text_columns == ["premise", "hypothesis"]
    tokenizer, config = word_piece_tokenizer(["text so 0 1 2"]), PreTrainedConfig(**label_fields(["good", "bad"]))
    encoded = data.encode(ClassificationOptions(max_seq_length=8), Namespace(config=config), tokenizer)["validation"]
    assert tokenizer.decode(encoded[0]["input_ids"]) == "[CLS] text 0 [SEP] so [SEP]"
    assert encoded[0]["token_type_ids"] == [0, 0, 0, 0, 1, 1]
    assert encoded["labels"][:] == [1, 0] * 5


@pytest.mark.parametrize("text_column", ["text", "null"])
@pytest.mark.parametrize("kind", WRITERS)
def test_cells_are_what_stands_there(tmp_path, kind, text_column):
    cells = ["null", "None", "NA", "nan", "n/a", "<NA>", "01", "007", "1", "true", '"quoted', "it's"]
    rows = [{text_column: f'"{cell}" {i}', "second": cell, "label": cell} for i in range(2) for cell in cells]
    if kind == "tsv":
        lines = ["\t".join(row) for row in (rows[0], *(row.values() for row in rows))]
        (tmp_path / "train.tsv").write_text("\n".join(lines))
    else:
        WRITERS[kind](Dataset.from_list(rows), tmp_path / f"train.{kind}")
    columns = {"text_column_name": [text_column, "second"], "validation_split_percentage": 5}
    for source in ({"train_file": str(tmp_path / f"train.{kind}")}, {"dataset_name": str(tmp_path)}):
        data = load(**source, **columns)
        assert {*data.label_names} == {*cells} and data.label_names[:3] == ["01", "1", "007"]
        found = [row for split in data.splits.values() for row in split.to_list()]
        assert sorted(map(str, found)) == sorted(map(str, rows))


def test_a_column_may_hold_text_and_numbers_thousands_of_rows_apart(tmp_path):
    """`datasets` looks at 10,000 rows at a time."""
    score, written = [*range(10_000), "NA"], ["a text"] * 10_000 + ["007"]
    rows = pandas.DataFrame({"text": written, "score": score, "label": [*range(2)] * 5000 + ["n/a"]})
    for column in ("score", "label"):
        rows.drop(columns="score" if column == "label" else []).to_csv(tmp_path / "train.csv", index=False)
        for source in ({"train_file": str(tmp_path / "train.csv")}, {"dataset_name": str(tmp_path)}):
            found = load(**source)
            assert found.label_names == ["0", "1", "n/a"]
            assert {text for split in found.splits.values() for text in split["text"]} == {"a text", "007"}


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
        rows = rows_of_files([path], "a file", streaming, "line", whole_up_to)
        assert [row["text"] for row in rows] == cells


def test_without_data_the_built_in_set_is_taken_and_nothing_else_is_ever_replaced():
    assert ClassificationOptions().with_defaults().dataset_name == built_in_data.NAME
    assert ClassificationOptions(dataset_name="user/data").with_defaults().dataset_name == "user/data"
    with pytest.raises(ValueError, match="dataset_name 'user/data': no such folder, and the Hub cannot be reached"):
        load(dataset_name="user/data")


MANY = "40 labels for 40 rows: is label_column_name the right column?"
RARE = "labels with one {} or none to train on, which can hardly be learnt: '{}' (1)"
TAGS = [{"tokens": ["anna", "sang", "."], "tags": ["B-PER", "O", "O"]}] * 3
NUMBERS = {"problem_type": "regression"}


@pytest.mark.parametrize(
    ("labels", "options", "line", "warnings"),
    [
        (["good"] * 3 + ["bad"] * 2, {}, "2 labels in 5 rows to train on: bad 2, good 3", []),
        ([["a"], ["a", "b"], [], ["b"]], {}, "2 labels in 4 rows to train on: a 2, b 2", []),
        ([1.5, 2.5], NUMBERS, None, []),
        ([*range(20)] * 3, {}, r"20 labels in 60 rows to train on: 0 3, 1 3, .* 11 3 and 8 more", []),
        (["good"] * 5 + ["bad"] * 5 + ["odd"], {}, "3 labels in 11 rows .*", [RARE.format("row", "odd")]),
        ([f"name {number}" for number in range(40)], {}, "40 labels in 40 rows .*", [MANY]),
        (TAGS, {}, "2 labels in 9 words to train on: B-PER 3, O 6", []),
        ([*TAGS, {"tokens": ["oslo"], "tags": ["B-LOC"]}], {}, "3 labels .*", [RARE.format("word", "B-LOC")]),
    ],
    ids=["names", "lists", "numbers", "many", "rare", "not labels", "tags", "rare tags"],
)
def test_labels_are_counted_and_those_that_cannot_be_meant_warned_of(tmp_path, caplog, labels, options, line, warnings):
    column, of_words = "labels" if labels[0] == ["a"] else "label", isinstance(labels[0], dict)
    rows = labels if of_words else [{"text": f"text {n}", column: label} for n, label in enumerate(labels)]
    (tmp_path / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = dict.fromkeys(("train_file", "validation_file"), str(tmp_path / "rows.json"))
    with caplog.at_level("INFO", "tfm_zoo"):
        load_tagged_texts(TaggingOptions(**files)) if of_words else load(**files, **options)
    found = [record for record in caplog.records if record.name.startswith("tfm_zoo")]
    assert [record.getMessage() for record in found if record.levelname == "WARNING"] == warnings
    lines = [record.getMessage() for record in found if record.levelname == "INFO"]
    assert len(lines) == (line is not None) and all(re.fullmatch(line, each) for each in lines)
