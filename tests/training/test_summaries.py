"""Summaries: ROUGE, columns by their usual names, the built-in passages."""

import json

import pytest
from transformers import GenerationConfig

from tfm_zoo import built_in_data
from tfm_zoo.training.tasks.summarization import SummarizationOptions, load_summaries


@pytest.mark.parametrize("names", [("text", "summary"), ("article", "highlights"), ("body", "title")])
def test_columns(tmp_path, names):
    (tmp_path / "train.json").write_text(
        json.dumps([dict(zip(names, (f"text {i}", f"{i}" if i else " "), strict=True)) for i in range(10)])
    )
    asked = dict(zip(("text_column", "summary_column"), names, strict=True)) if names[0] == "body" else {}
    pairs = load_summaries(SummarizationOptions(train_file=str(tmp_path / "train.json"), **asked))
    assert pairs.notes[0].startswith("1 of the 10 rows of the train split, whose 'source' or 'target' is empty, were")
    assert all(row["source"] == f"text {row['target']}" for row in pairs.splits["train"])
    with pytest.raises(ValueError, match="text_column 'no': no such column"):
        load_summaries(SummarizationOptions(train_file=str(tmp_path / "train.json"), text_column="no"))


@pytest.mark.parametrize(
    ("own", "is_new", "length"), [({}, False, 9), ({"max_length": 5}, False, 5), ({"max_length": 5}, True, 9)]
)
def test_the_length_that_is_evaluated_is_saved(own, is_new, length):
    config = GenerationConfig(**own)
    SummarizationOptions(model_name_or_path=None if is_new else "checkpoint").set_generation(config, 9)
    assert config.max_length == length
    assert config.num_beams == 1  # of an unset width: what is evaluated, and not a pipeline's own


def test_a_built_in_summary_follows_from_its_passage(monkeypatch):
    monkeypatch.setattr(built_in_data, "PASSAGES", {"train": 200})
    for row in built_in_data.summarised_passages()["train"]:
        facts = [
            sentence.split() for sentence in row["text"].split(" .") if " the " in sentence and " in the " in sentence
        ]
        assert row["summary"] == " and ".join(" ".join(words[2:7]) for words in facts)
