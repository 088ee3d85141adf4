"""Pairs of texts are read from any source, by any name, in either direction, and become token ids."""

import json

import pytest
from datasets import Dataset, Features, Translation, Value
from transformers import GenerationConfig, MBart50Tokenizer, MBartTokenizer

from tfm_zoo import TfmEncoderDecoderForConditionalGeneration
from tfm_zoo.data import built_in_data
from tfm_zoo.training.options import cap_lengths
from tfm_zoo.training.tasks.summarization import SummarizationOptions, load_summaries
from tfm_zoo.training.tasks.translation import TranslationOptions, load_parallel_texts, set_languages
from tfm_zoo.training.tokenizers import joint_bpe

from ..tiny import tiny_model
from .conftest import WRITERS, saved, sizes

ROWS = [{"en": f"the dog number {i}", "de": f"der Hund Nummer {i}"} for i in range(20)]
PAIRS = [{"source": row["en"], "target": row["de"]} for row in ROWS]
NAMES = {"source_lang": "en", "target_lang": "de"}


def load(**options):
    return load_parallel_texts(TranslationOptions(**NAMES | {"seed": 0} | options))


@pytest.mark.parametrize("kind", WRITERS)
def test_files(tmp_path, kind):
    path = str(tmp_path / f"pairs.{kind}")
    WRITERS[kind](Dataset.from_list([{"id": i, **row} for i, row in enumerate(ROWS)]), path)
    data = load(train_file=path, validation_file=path, test_file=path)
    assert data.splits["test"].to_list() == PAIRS
    assert sizes(data) == dict.fromkeys(data.own_splits, 20)
    back = load(train_file=path, validation_file=path, source_lang="de", target_lang="en")
    assert back.splits["validation"][0] == {"source": ROWS[0]["de"], "target": ROWS[0]["en"]}
    # A code of a tokenizer names the column that it begins with.
    coded = load(train_file=path, validation_file=path, source_lang="en_XX", target_lang="de_DE")
    assert (coded.splits["validation"].to_list(), coded.languages) == (PAIRS, ("en_XX", "de_DE"))


def test_text_files_of_a_sentence_a_line(tmp_path):
    def write(split: str, **texts: str) -> None:
        for language, text in texts.items():
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")

    for split in ("train", "dev"):
        write(split, **{language: "".join(f"{row[language]}\n" for row in ROWS) for language in ("en", "de")})
    files = {"train_file": str(tmp_path / "train"), "validation_file": str(tmp_path / "dev")}
    assert load(**files).splits["validation"].to_list() == PAIRS
    write("dev", en="one\u2028line\ntwo", de="eine Zeile\nzwei")
    assert load(**files).splits["validation"]["source"][:] == ["one\u2028line", "two"]


@pytest.mark.parametrize("kind", ["mapping", "Translation"])
def test_a_column_of_mappings(tmp_path, kind):
    rows = [{"id": str(i), "translation": row} for i, row in enumerate(ROWS)]
    if kind == "mapping":
        (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        data = load(train_file=str(tmp_path / "train.jsonl"))
    else:
        features = Features({"id": Value("string"), "translation": Translation(languages=["en", "de"])})
        data = load(dataset_name=saved(tmp_path / "data", train=Dataset.from_list(rows, features=features)))
    assert sizes(data) == {"train": 18, "validation": 2}
    found = [row for split in data.splits.values() for row in split.to_list()]
    assert sorted(map(str, found)) == sorted(map(str, PAIRS))


def test_a_language_may_be_called_translation(tmp_path):
    rows = Dataset.from_list([{"english": row["en"], "translation": row["de"]} for row in ROWS])
    names = {"source_lang": "english", "target_lang": "translation"}
    data = load(dataset_name=saved(tmp_path / "data", train=rows, validation=rows), **names)
    assert data.splits["validation"].to_list() == PAIRS


def test_missing_splits_are_cut_and_samples_limited(tmp_path):
    options = {"dataset_name": saved(tmp_path / "data", train=Dataset.from_list(ROWS)), "test_split_percentage": 25}
    data = load(validation_split_percentage=10, **options)
    assert sizes(data) == {"train": 13, "validation": 2, "test": 5} and data.own_splits == ["train"]
    assert "no validation split" in data.notes[0] and "no test split" in data.notes[1]
    assert sizes(load(max_train_samples=3, max_eval_samples=1, **options)) == {"train": 3, "validation": 1, "test": 1}
    data = load(dataset_name=built_in_data.NAME, source_lang=None, target_lang=None, max_train_samples=3)
    assert data.languages == ("source", "target") and "The data set is generated" in data.notes[0]


def test_pairs_are_encoded_and_truncated_where_they_are_long(tmp_path):
    rows = [*ROWS[1:], {"en": "the dog " * 20, "de": "der Hund"}]
    split, short = Dataset.from_list(rows), Dataset.from_list(ROWS[:4])
    data = load(dataset_name=saved(tmp_path / "data", train=split, validation=short))
    tokenizer = joint_bpe([text for row in ROWS for text in row.values()], 300)
    encoded = data.encode(
        TranslationOptions(**NAMES, max_source_length=12, max_target_length=30), None, tokenizer, tokenizer
    )
    longest = max(encoded["train"]["input_ids"], key=len)
    assert len(longest) == 12 and longest[-1] == tokenizer.eos_token_id
    assert encoded["train"].column_names == ["input_ids", "labels"]
    for pair, text in zip(encoded["validation"], ROWS[:4], strict=True):
        for ids, language in ((pair["input_ids"], "en"), (pair["labels"], "de")):
            assert ids[-1] == tokenizer.eos_token_id
            assert tokenizer.decode(ids, skip_special_tokens=True) == text[language]


def test_options_that_are_more_than_the_model_takes_are_cut(caplog):
    names = ("max_source_length", "max_target_length")
    args = cap_lengths(TranslationOptions(max_source_length=50, max_target_length=20), 32, *names)
    assert (args.max_source_length, args.max_target_length) == (32, 20)
    cap_lengths(TranslationOptions(), 32, "max_target_length")
    assert caplog.messages == [
        "max_source_length 50 is more than the model takes: using 32",
        "max_target_length 128 is more than the model takes: using 32",
    ]


@pytest.mark.parametrize("tokenizer_class", [MBartTokenizer, MBart50Tokenizer])
def test_the_model_is_told_which_language_it_writes(tokenizer_class):
    tokenizer = tokenizer_class()
    model = tiny_model(TfmEncoderDecoderForConditionalGeneration, vocab_size=len(tokenizer), start_with_last_token=True)
    set_languages(model, tokenizer, "en_XX", "de_DE")
    english, german = tokenizer.convert_tokens_to_ids(["en_XX", "de_DE"])
    assert english in tokenizer("a")["input_ids"] and german in tokenizer(text_target="a")["input_ids"]
    generated = model.generate(**tokenizer("a", return_tensors="pt"), max_new_tokens=2)[0].tolist()
    assert generated.index(german) == (0 if tokenizer_class is MBartTokenizer else 1)
    with pytest.raises(ValueError, match=r"target_lang 'de': .* knows ar_AR, cs_CZ, de_DE"):
        set_languages(model, tokenizer, "en_XX", "de")


@pytest.mark.parametrize("names", [("text", "summary"), ("article", "highlights"), ("body", "title")])
def test_columns_of_texts_and_their_summaries(tmp_path, names):
    rows = [dict(zip(names, (f"text {i}", f"{i}" if i else " "), strict=True)) for i in range(10)]
    (tmp_path / "train.json").write_text(json.dumps(rows))
    asked = dict(zip(("text_column", "summary_column"), names, strict=True)) if names[0] == "body" else {}
    pairs = load_summaries(SummarizationOptions(train_file=str(tmp_path / "train.json"), **asked))
    assert pairs.notes[0].startswith("1 of the 10 rows of the train split, whose 'source' or 'target' is empty, were")
    assert all(row["source"] == f"text {row['target']}" for row in pairs.splits["train"])


def test_the_length_that_is_evaluated_is_saved():
    for own, is_new, length in (({}, False, 9), ({"max_length": 5}, False, 5), ({"max_length": 5}, True, 9)):
        config = GenerationConfig(**own)
        SummarizationOptions(model_name_or_path=None if is_new else "checkpoint").set_generation(config, 9)
        assert config.max_length == length
        assert config.num_beams == 1  # of an unset width: what is evaluated, and not a pipeline's own
