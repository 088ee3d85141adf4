"""Pairs of texts: from any source, by any name, to token ids; and their tokenizer."""

import json

import pytest
from datasets import Dataset, DatasetDict, Features, Translation, Value
from transformers import AutoTokenizer

from tfm_zoo import built_in_data
from tfm_zoo.training.options import fitted
from tfm_zoo.training.tasks.translation import TranslationOptions, load_parallel_texts
from tfm_zoo.training.tokenizers import joint_bpe

from .test_text_data import WRITERS

ROWS = [{"en": f"the dog number {i}", "de": f"der Hund Nummer {i}"} for i in range(20)]
NAMES = {"source_lang": "en", "target_lang": "de"}


def load(**options):
    return load_parallel_texts(TranslationOptions(**NAMES | {"seed": 0} | options))


def saved(folder, **splits: Dataset) -> str:
    DatasetDict(splits).save_to_disk(folder)
    return str(folder)


@pytest.mark.parametrize("kind", WRITERS)
def test_files(tmp_path, kind):
    path = str(tmp_path / f"pairs.{kind}")
    WRITERS[kind](Dataset.from_list([{"id": i, **row} for i, row in enumerate(ROWS)]), path)
    data = load(train_file=path, validation_file=path, test_file=path)
    expected = [{"source": row["en"], "target": row["de"]} for row in ROWS]
    assert data.splits["test"].to_list() == expected
    assert {name: len(split) for name, split in data.splits.items()} == dict.fromkeys(data.own_splits, 20)
    back = load(train_file=path, validation_file=path, source_lang="de", target_lang="en")
    assert back.splits["validation"][0] == {"source": ROWS[0]["de"], "target": ROWS[0]["en"]}
    assert back.languages == ("de", "en")


def test_text_files_of_a_sentence_a_line(tmp_path):
    for split in ("train", "dev"):
        for language in ("en", "de"):
            lines = "".join(f"{row[language]}\n" for row in ROWS)
            (tmp_path / f"{split}.{language}").write_text(lines, encoding="utf-8")
    data = load(train_file=str(tmp_path / "train"), validation_file=str(tmp_path / "dev"))
    assert data.splits["validation"].to_list() == [{"source": row["en"], "target": row["de"]} for row in ROWS]
    for language, text in (("en", "one\u2028line\ntwo"), ("de", "eine Zeile\nzwei")):
        (tmp_path / f"dev.{language}").write_text(text, encoding="utf-8")
    data = load(train_file=str(tmp_path / "train"), validation_file=str(tmp_path / "dev"))
    assert [row["source"] for row in data.splits["validation"]] == ["one\u2028line", "two"]
    (tmp_path / "dev.en").write_text("".join(f"{row['en']}\n" for row in ROWS), encoding="utf-8")
    (tmp_path / "dev.de").write_text("eine Zeile\n")
    with pytest.raises(ValueError, match=r"validation_file .*as many lines .*dev.en has 20 and .*dev.de has 1"):
        load(train_file=str(tmp_path / "train"), validation_file=str(tmp_path / "dev"))


@pytest.mark.parametrize("kind", ["mapping", "Translation"])
def test_a_column_of_mappings(tmp_path, kind):
    rows = [{"id": str(i), "translation": row} for i, row in enumerate(ROWS)]
    if kind == "mapping":
        (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        data = load(train_file=str(tmp_path / "train.jsonl"))
    else:
        features = Features({"id": Value("string"), "translation": Translation(languages=["en", "de"])})
        data = load(dataset_name=saved(tmp_path / "data", train=Dataset.from_list(rows, features=features)))
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 18, "validation": 2}
    assert sorted(data.splits["train"]["source"][:] + data.splits["validation"]["source"][:]) == sorted(
        row["en"] for row in ROWS
    )


def test_a_language_may_be_called_translation(tmp_path):
    rows = [{"english": row["en"], "translation": row["de"]} for row in ROWS]
    data = load(
        dataset_name=saved(tmp_path / "data", train=Dataset.from_list(rows)),
        source_lang="english",
        target_lang="translation",
    )
    assert set(data.splits["train"]["target"]) < {row["de"] for row in ROWS}


def test_missing_splits_are_cut_and_samples_limited(tmp_path):
    folder = saved(tmp_path / "data", train=Dataset.from_list(ROWS))
    data = load(dataset_name=folder, validation_split_percentage=10, test_split_percentage=25)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 13, "validation": 2, "test": 5}
    assert data.own_splits == ["train"]
    assert ["no validation split" in data.notes[0], "no test split" in data.notes[1]] == [True, True]
    data = load(dataset_name=folder, test_split_percentage=25, max_train_samples=3, max_eval_samples=1)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 3, "validation": 1, "test": 1}


def test_built_in_sequences(monkeypatch):
    monkeypatch.setattr(built_in_data, "SEQUENCES", {"train": 3000, "validation": 100, "test": 200})
    data = load(dataset_name=built_in_data.NAME, source_lang=None, target_lang=None)
    assert data.languages == ("source", "target")
    assert "The data set is generated" in data.notes[0]
    texts = [row for split in data.splits.values() for row in split.to_list()]
    assert len(texts) == sum(built_in_data.SEQUENCES.values()) == len({row["source"] for row in texts})  # none is known
    assert all(row["target"].split() == row["source"].split()[::-1] for row in texts[::100])
    assert built_in_data.reversed_sequences()["test"].to_list() == data.splits["test"].to_list()


@pytest.fixture(scope="module")
def tokenizer():
    return joint_bpe([text for row in ROWS for text in row.values()], 300)


def test_encoded_pairs(tokenizer, tmp_path):
    data = load(dataset_name=saved(tmp_path / "data", train=Dataset.from_list(ROWS)))
    encoded = data.encode(tokenizer, TranslationOptions(**NAMES))
    assert encoded["train"].column_names == ["input_ids", "labels"] and not data.notes[1:]
    for pair, text in zip(encoded["validation"], data.splits["validation"], strict=True):
        assert pair["input_ids"][-1] == pair["labels"][-1] == tokenizer.eos_token_id
        for ids, side in ((pair["input_ids"], "source"), (pair["labels"], "target")):
            assert tokenizer.decode(ids, skip_special_tokens=True) == text[side]


def test_long_texts_are_truncated_and_it_is_said(tokenizer, tmp_path):
    rows = [*ROWS[1:], {"en": "the dog " * 20, "de": "der Hund"}]
    split = Dataset.from_list(rows)
    data = load(dataset_name=saved(tmp_path / "data", train=split, validation=split.select(range(4))))
    encoded = data.encode(tokenizer, TranslationOptions(**NAMES, max_source_length=12, max_target_length=30))
    assert data.notes == [
        "1 of the 20 pairs of the train split were truncated, to 12 tokens of the source and 30 of the target."
    ]
    longest = max(encoded["train"]["input_ids"], key=len)
    assert len(longest) == 12 and longest[-1] == tokenizer.eos_token_id


def test_options_that_are_more_than_the_model_takes_are_cut(caplog):
    args = TranslationOptions(max_source_length=50, max_target_length=20)
    args = fitted(args, 32, "max_source_length", "max_target_length")
    assert caplog.messages == ["max_source_length 50 is more than the model takes: using 32"]
    assert (args.max_source_length, args.max_target_length) == (32, 20)
    fitted(TranslationOptions(), 32, "max_target_length")
    assert caplog.messages[1] == "the default of max_target_length, 128, is more than the model takes: using 32"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"train_file": "nowhere.csv"}, FileNotFoundError, "train_file 'nowhere.csv': no such file"),
        ({"train_file": __file__}, ValueError, "expected one of .csv, .tsv, .json, .jsonl, .parquet, not '.py'"),
        ({"train_file": "latin"}, ValueError, "train_file '.*latin' cannot be read: .*utf-8"),
        ({"source_lang": None}, ValueError, r"give source_lang and target_lang: the columns are \['en', 'de', 'n', "),
        ({"source_lang": "fr"}, ValueError, r"source_lang 'fr': no such column; the columns are \['en', 'de', "),
        ({"target_lang": "fr"}, ValueError, "target_lang 'fr': no such column"),
        ({"target_lang": "en"}, ValueError, "source_lang and target_lang are both 'en'"),
        ({"target_lang": "n"}, ValueError, "column 'n' holds .*int64.*, not text"),
        ({"target_lang": "holes"}, ValueError, "split 'train' has no text in row 3 of column 'holes'"),
        ({"target_lang": "blank"}, ValueError, "split 'train' has an empty text in row 2 of column 'blank'"),
        ({"validation_split_percentage": 0}, ValueError, "there is no validation split"),
        ({"max_target_length": 0}, ValueError, "max_target_length must be at least 1, not 0"),
        ({"separate_vocabularies": True, "tokenizer_name": "some"}, ValueError, "for a new model: .* with 'some'"),
        ({"dataset_name": "no/where"}, (ValueError, FileNotFoundError), "no/where"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused(tmp_path, options, error, message):
    for language in ("en", "de"):
        (tmp_path / f"latin.{language}").write_bytes(b"caf\xe9\n")
    if options.get("train_file") == "latin":
        options = {"train_file": str(tmp_path / "latin")}
    columns = {
        "n": range(20),
        "holes": ["a"] * 3 + [None] + ["b"] * 16,
        "blank": ["a", "b", " \t"] + ["c"] * 17,
    }
    rows = Dataset.from_dict({key: [row[key] for row in ROWS] for key in ("en", "de")} | columns)
    if not {"train_file", "dataset_name"} & options.keys():
        options = {"dataset_name": saved(tmp_path / "data", train=rows)} | options
    with pytest.raises(error, match=message):
        load(**options)


def test_tokenizer_of_both_sides(tokenizer):
    names = [tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id]
    assert names == [0, 1, 2, 3]
    assert len(tokenizer) <= 300
    again = joint_bpe([text for row in ROWS for text in row.values()], 300)
    assert again.get_vocab() == tokenizer.get_vocab()
    first, middle = tokenizer("dog number")["input_ids"], tokenizer("the dog number")["input_ids"]
    assert middle[-len(first) :] == first  # a word is itself wherever it stands
    pair = tokenizer("dog", "Hund")["input_ids"]
    assert pair.count(tokenizer.eos_token_id) == 2


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Zwei Hunde, die spielen.", "Zwei Hunde, die spielen."),
        ("  two\t blanks \u00a0 ", "two blanks"),
        ("Stra\u00dfe \u2013 \U0001f600 \u6f22", "Stra\u00dfe \u2013 \U0001f600 \u6f22"),
        ("a\u0308", "\u00e4"),  # one form of what has two
    ],
)
def test_tokenizer_spells_any_text(tokenizer, text, read):
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == read


def test_tokenizer_is_saved_whole(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again("the dog")["input_ids"] == tokenizer("the dog")["input_ids"]
    assert again(["the dog number 12", "a"], padding=True)["attention_mask"][1][-1] == 0


def test_too_small_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"tokenizer_vocab_size must be at least 260 .*, not 259"):
        joint_bpe(["a"], 259)
