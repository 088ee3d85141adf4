"""Every way to name a data set, and every way to get it wrong."""

import pandas
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from transformers import PreTrainedConfig

from tfm_zoo import built_in_data
from tfm_zoo.row_files import rows_of_files
from tfm_zoo.training.data import in_order
from tfm_zoo.training.models import label_fields
from tfm_zoo.training.tasks import classification as text_data
from tfm_zoo.training.tasks.classification import ClassificationOptions, load_texts
from tfm_zoo.training.tokenizers import word_piece_tokenizer

WRITERS = {
    "csv": lambda data, path: data.to_csv(path),
    "tsv": lambda data, path: data.to_csv(path, sep="\t"),
    "json": lambda data, path: data.to_json(path, lines=False),
    "jsonl": lambda data, path: data.to_json(path),
    "parquet": lambda data, path: data.to_parquet(path),
}


def load(seed: int = 0, **options):
    return load_texts(ClassificationOptions(seed=seed, **options))


def texts(n: int, labels=("bad", "good"), **columns) -> Dataset:
    return Dataset.from_dict(
        {"text": [f"text {i}" for i in range(n)], "label": [labels[i % len(labels)] for i in range(n)]} | columns
    )


def saved(folder, **splits: Dataset) -> str:
    DatasetDict(splits).save_to_disk(folder)
    return str(folder)


@pytest.mark.parametrize("kind", WRITERS)
def test_files(rows, tmp_path, kind):
    path = str(tmp_path / f"train.{kind}")
    WRITERS[kind](Dataset.from_list(rows), path)
    data = load(train_file=path, test_file=path, text_column_name=["review"], label_column_name="stars")
    assert data.label_names == ["bad", "good"]
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 81, "validation": 9, "test": 90}
    assert data.splits["test"].to_list() == [{"review": row["review"], "label": row["stars"]} for row in rows]


def test_folder_of_files(tmp_path):
    texts(8).to_parquet(tmp_path / "train.parquet")
    texts(4).to_parquet(tmp_path / "test.parquet")
    data = load(dataset_name=str(tmp_path), validation_split_percentage=25)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 6, "validation": 2, "test": 4}
    assert data.own_splits == ["train", "test"]


@pytest.mark.parametrize("name", ["validation_matched", "valid", "val", "dev"])
def test_names_of_the_validation_split(tmp_path, name):
    """Nothing else that begins likewise is taken."""
    others = dict.fromkeys(("devtest", "value", "device"), texts(2, labels=("other",)))
    data = load(dataset_name=saved(tmp_path / "data", **others, **{"train": texts(8), name: texts(4)}))
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 8, "validation": 4}
    assert data.own_splits == ["train", "validation"] and not data.notes


def test_the_full_name_of_the_validation_split_comes_first(tmp_path):
    data = load(dataset_name=saved(tmp_path / "data", train=texts(8), dev=texts(2), validation=texts(4)))
    assert len(data.splits["validation"]) == 4


def test_missing_splits_are_cut_by_the_seed_and_said(tmp_path):
    folder = saved(tmp_path / "data", test=texts(40))
    data = load(dataset_name=folder, validation_split_percentage=10, test_split_percentage=20)
    parts = {name: set(split["text"]) for name, split in data.splits.items()}
    assert {name: len(part) for name, part in parts.items()} == {"train": 28, "validation": 4, "test": 8}
    assert len(set.union(*parts.values())) == 40
    assert data.own_splits == []
    assert "only the split 'test'" in data.notes[0]
    again = load(dataset_name=folder, validation_split_percentage=10, test_split_percentage=20)
    assert again.splits["test"]["text"][:] == data.splits["test"]["text"][:]
    other = load(dataset_name=folder, validation_split_percentage=10, test_split_percentage=20, seed=1)
    assert other.splits["test"]["text"][:] != data.splits["test"]["text"][:]


def test_samples_are_shuffled_before_they_are_cut(tmp_path):
    sorted_by_label = Dataset.from_dict({"text": [str(i) for i in range(200)], "label": [0] * 100 + [1] * 100})
    folder = saved(tmp_path / "data", train=sorted_by_label, validation=sorted_by_label, test=sorted_by_label)
    data = load(dataset_name=folder, max_train_samples=50, max_eval_samples=40)
    for name, size in {"train": 50, "validation": 40, "test": 40}.items():
        assert len(data.splits[name]) == size
        assert 0.2 < data.splits[name]["label"][:].count("1") / size < 0.8


def test_class_labels_keep_their_names_and_order(tmp_path):
    features = Features({"text": Value("string"), "label": ClassLabel(names=["zebra", "ant", "bee"])})
    train = Dataset.from_dict({"text": ["a", "b", "c"] * 4, "label": [0, 1, 0] * 4}, features=features)
    unlabelled = Dataset.from_dict({"text": ["d"], "label": [-1]}, features=features)
    data = load(dataset_name=saved(tmp_path / "data", train=train, test=unlabelled))
    assert data.label_names == ["zebra", "ant", "bee"]
    assert "test" not in data.splits
    assert "'test' is not labelled" in data.notes[0]


def test_whole_numbers_are_ordered_by_value(tmp_path):
    data = load(dataset_name=saved(tmp_path / "data", train=texts(40, labels=(10, 9, 2))))
    assert data.label_names == ["2", "9", "10"]
    assert in_order(["m²", "--1", "²", "10", "-2"]) == ["-2", "10", "--1", "m²", "²"]


def test_pairs_and_label_ids(tmp_path):
    pairs = texts(10).rename_column("text", "premise").add_column("hypothesis", ["so"] * 10)
    data = load(dataset_name=saved(tmp_path / "data", train=pairs, validation=pairs))
    assert data.text_columns == ["premise", "hypothesis"]
    tokenizer, config = word_piece_tokenizer(["text so 0 1 2"]), PreTrainedConfig(**label_fields(["good", "bad"]))
    encoded = data.encode(tokenizer, ClassificationOptions(max_seq_length=8), config)["validation"]
    assert tokenizer.decode(encoded[0]["input_ids"]) == "[CLS] text 0 [SEP] so [SEP]"
    assert encoded[0]["token_type_ids"] == [0, 0, 0, 0, 1, 1]
    assert encoded["labels"][:] == [1, 0] * 5


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"train_file": "nowhere.csv"}, FileNotFoundError, "train_file 'nowhere.csv': no such file"),
        ({"train_file": __file__}, ValueError, "expected one of .csv, .tsv, .json, .jsonl, .parquet, not '.py'"),
        ({"text_column_name": ["body"]}, ValueError, "text_column_name 'body': no such column.*'text', 'label'"),
        ({"label_column_name": "stars"}, ValueError, "label_column_name 'stars': no such column"),
        ({"text_column_name": ["label"]}, ValueError, "'label' cannot be both"),
        ({"text_column_name": ["number"]}, ValueError, "text_column_name 'number' holds .*int64.*, not text"),
        ({"label_column_name": "share"}, ValueError, "'share' holds .*float64"),
        ({"label_column_name": "share"}, ValueError, "such as 0.5; .* write them as names, such as 'low'"),
        ({"label_column_name": "emptied"}, ValueError, r"first is row 2 of column 'emptied' \(rows are counted from 0"),
        ({"text_column_name": ["holes"]}, ValueError, "split 'train' has no text in row 3 of column 'holes'"),
        ({"label_column_name": "holes"}, ValueError, "split 'train' has 1 row without a label, the first is row 3"),
        ({"label_column_name": "same"}, ValueError, r"two labels or more; 'same' holds only \['one'\]"),
        ({"validation_split_percentage": 0}, ValueError, "no validation split"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused(tmp_path, options, error, message):
    holes = ["a", "b", "a", None] + ["b"] * 6
    columns = {"number": [1] * 10, "share": [0.5] * 10, "holes": holes, "same": ["one"] * 10}
    columns["emptied"] = [1.0, 0.0, None] + [1.0] * 7  # as `datasets` reads an empty cell among whole numbers
    if "train_file" not in options:
        options = {"dataset_name": saved(tmp_path / "data", train=texts(10, **columns)), **options}
    with pytest.raises(error, match=message):
        load(**options)


def test_labels_that_train_has_not_are_refused(tmp_path):
    folder = saved(tmp_path / "data", train=texts(8), validation=texts(6, labels=("bad", "ugly", "good")))
    with pytest.raises(ValueError, match=r"split 'validation' has labels that train lacks: \['ugly'\]"):
        load(dataset_name=folder)


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


def test_a_column_may_hold_text_after_thousands_of_numbers(tmp_path):
    """`datasets` looks at 10,000 rows at a time."""
    score = [*range(10_000), "NA"]
    rows = pandas.DataFrame({"text": "a text", "score": score, "label": [*range(2)] * 5000 + ["n/a"]})
    rows.to_csv(tmp_path / "train.csv", index=False)
    for source in ({"train_file": str(tmp_path / "train.csv")}, {"dataset_name": str(tmp_path)}):
        assert load(**source).label_names == ["0", "1", "n/a"]


def test_runs_of_earlier_versions_know_their_labels(tmp_path):
    """They read whole numbers and truth values in CSV."""
    written = {"1": ["01", "007"], "2": ["1.0", "0.0"], "3": ["true", "false"], "4": ["1", "01"], "5": ["1", "0"]}
    for name, labels in written.items():
        texts(8, labels=labels).to_csv(tmp_path / f"{name}.csv")
    found = {name: load(train_file=str(tmp_path / f"{name}.csv")) for name in written}
    assert [data.label_names for data in found.values()][:4] == [
        ["01", "007"],
        ["0.0", "1.0"],
        ["false", "true"],
        ["01", "1"],
    ]
    assert found["2"].facts == found["5"].facts and found["2"].splits["train"]["label"][0] in ("1.0", "0.0")
    assert [*found["1"].earlier_names.values(), *found["3"].earlier_names.values()] == ["1", "7", "False", "True"]
    options = ClassificationOptions(train_file=str(tmp_path / "1.csv"))
    assert text_data.labelled_file(options, {"1": 0, "7": 1})[1] == [0, 1] * 4


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,label\n", r"train_file '.*a.csv' gives no row; does it hold only a header\?"),
        ("a.csv", b"text;label\na;1\n", r"usual names \(text, sentence, .*; is the file separated by semicolons\?"),
        ("a.csv", b"text,label\na, b,1\n", "a.csv: its first row has 3 cells, and its header 2; is a text"),
        ("a.csv", b"text,label\na,1\nb,c,1\n", "train_file '.*a.csv' cannot be read: .* in line 3, saw 3"),
        ("a.csv", b"text,label\na,\nb,\n", "split 'train' has no labels: all of them are missing"),
        (
            "a.csv",
            b"text,label\na,0.5\nb,1\n",
            "holds numbers .float64., such as 0.5; .* 'regression'",
        ),
        ("a.tsv", b"text\tlabel\n\na\t1\nb\n", "a.tsv, line 4: expected 2 cells, .* found 1"),
        ("a.tsv", b'text\tlabel\n"a\tb"\t1\n', "a.tsv, line 2: expected 2 cells, .* found 3"),
        ("a.csv", "text,label\na,1\n".encode("utf-16"), "a.csv is UTF-16, or no text: save it as UTF-8"),
        ("a.jsonl", '{"text": "a"}'.encode("utf-16-le"), "a.jsonl is UTF-16, or no text: save it as UTF-8"),
        *((name, POINTER, f"{name} is a Git LFS pointer, not the file itself") for name in ("a.csv", "a.parquet")),
    ],
)
def test_files_that_hold_no_rows_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load(train_file=str(tmp_path / name))


@pytest.mark.parametrize("kind", ["csv", "tsv", "json", "jsonl", "txt"])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_byte_order_mark_is_no_text(tmp_path, monkeypatch, kind, streaming):
    """Wherever a file begins: rows in memory, streams, and ranges of bytes."""
    cells = ["\u00e4", "null", "b"]
    if kind == "txt":
        (tmp_path / "a.txt").write_text("\n".join(cells), "utf-8-sig")
    else:
        WRITERS[kind](Dataset.from_dict({"text": cells}), tmp_path / f"a.{kind}")
        (tmp_path / f"a.{kind}").write_text((tmp_path / f"a.{kind}").read_text("utf-8"), "utf-8-sig")
    for whole_up_to in (0, 1 << 20):
        rows = rows_of_files([tmp_path / f"a.{kind}"], "a file", streaming, "line", whole_up_to)
        assert [row["text"] for row in rows] == cells


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_file_without_labels_is_refused(tmp_path, split):
    texts(8).to_csv(tmp_path / "train.csv")
    texts(4, labels=("", "")).to_csv(tmp_path / "other.csv")
    files = {"train_file": str(tmp_path / "train.csv"), f"{split}_file": str(tmp_path / "other.csv")}
    with pytest.raises(ValueError, match=f"split '{split}' has no labels: all of them are missing"):
        load(**files)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.csv", 'text,label\n"two\nlines",1\n\nno label,\n', 5),
        ("a.tsv", "text\tlabel\nfine\t1\nno label\t\n", 3),
        ("a.jsonl", '{"text": "fine", "label": 1}\n{"text": "no label", "label": null}\n', 2),
        ("a.json", '[{"text": "fine", "label": 1},\n{"text": "no label", "label": null}]\n', None),
    ],
)
def test_a_row_is_named_by_its_line(tmp_path, name, text, line):
    (tmp_path / name).write_text(text)
    place = f"line {line} of {name}, column 'label'$" if line else r"row 1 of column 'label' \(rows are counted from 0"
    with pytest.raises(ValueError, match=f"has 1 row without a label, the first is {place}"):
        load(train_file=str(tmp_path / name))


def test_splits_with_other_columns_are_refused(tmp_path):
    texts(8).to_csv(tmp_path / "train.csv")
    texts(8).rename_column("text", "body").to_csv(tmp_path / "test.csv")
    with pytest.raises(ValueError, match="split 'test' has no column 'text'"):
        load(train_file=str(tmp_path / "train.csv"), test_file=str(tmp_path / "test.csv"))


def test_nothing_to_train_on_is_refused(tmp_path):
    folder = saved(tmp_path / "data", validation=texts(8), test=texts(8))
    with pytest.raises(ValueError, match=r"no split to train on among \['validation', 'test'\]"):
        load(dataset_name=folder)


def test_no_network_and_no_data_means_the_built_in_set(monkeypatch):
    asked = []

    def unreachable(name, *args, **kwargs):
        asked.append(name)
        raise ConnectionError("no network")

    monkeypatch.setattr(text_data, "load_dataset", unreachable)
    assert ClassificationOptions().resolved().dataset_name == built_in_data.NAME
    assert asked == ["stanfordnlp/imdb"]
    # What was asked for by name is never replaced.
    assert ClassificationOptions(dataset_name="user/data").resolved().dataset_name == "user/data"
    with pytest.raises(ValueError, match="dataset_name 'user/data': no such folder, and the Hub cannot be reached"):
        load(dataset_name="user/data")
    monkeypatch.setattr(text_data, "load_dataset", lambda name: None)
    assert ClassificationOptions().resolved().dataset_name == "stanfordnlp/imdb"


def test_generated_reviews_are_the_same_each_time_and_hold_words_back():
    data = built_in_data.generated_reviews()
    assert data["test"].to_list() == built_in_data.generated_reviews()["test"].to_list()
    assert {name: len(split) for name, split in data.items()} == built_in_data.SIZES
    words = {name: set(" ".join(split["text"]).split()) for name, split in data.items()}
    held_back = "fresh tender dazzling sincere hollow noisy grating confusing"
    assert words["test"] - words["train"] == set(held_back.split())
    assert set(data["train"]["text"]).isdisjoint(data["test"]["text"])
    assert data["train"]["label"][:].count(1) == 1000


def test_tokenizer_is_made_of_the_texts_words():
    tokenizer = word_piece_tokenizer(["The cat sat", "the mat"])
    assert tokenizer.tokenize("The CAT mats!") == ["the", "cat", "mat", "##s", "!"]
    pair = tokenizer("cat", "mat")
    assert tokenizer.convert_ids_to_tokens(pair["input_ids"]) == ["[CLS]", "cat", "[SEP]", "mat", "[SEP]"]
    assert word_piece_tokenizer(["The cat sat", "the mat"]).get_vocab() == tokenizer.get_vocab()
    assert len(word_piece_tokenizer(["The cat sat"], vocab_size=50)) == 50
