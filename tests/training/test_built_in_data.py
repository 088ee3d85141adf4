"""Data that are generated are the same each time, mean what they say, and test what was not trained on."""

from itertools import pairwise

import pytest

from tfm_zoo.data import built_in_data

FEW = {"train": 400, "validation": 100, "test": 200}
HELD_BACK = {*["fresh", "tender", "dazzling", "sincere", "hollow", "noisy", "grating", "confusing"]}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    for name in ("SENTENCES", "SEQUENCES", "PASSAGES"):
        monkeypatch.setattr(built_in_data, name, FEW)


@pytest.mark.parametrize("name", ["generated_reviews", "tagged_sentences", "reversed_sequences", "summarised_passages"])
def test_what_is_generated(name):
    data, again = (getattr(built_in_data, name)() for _ in range(2))
    assert data["test"].to_list() == again["test"].to_list()
    sizes = {split: len(rows) for split, rows in data.items()}
    assert sizes == (built_in_data.SIZES if name == "generated_reviews" else FEW)
    if name == "generated_reviews":
        seen, tested = ({*data[split]["text"]} for split in ("train", "test"))
        words, tested_words = ({word for text in texts for word in text.split()} for texts in (seen, tested))
        assert data["train"]["label"][:].count(1) == 1000 and seen.isdisjoint(tested)
        assert tested_words - words >= HELD_BACK
    elif name == "reversed_sequences":
        assert all(row["target"].split() == row["source"].split()[::-1] for row in data["train"])
        assert {*data["train"]["source"]}.isdisjoint({*data["test"]["source"]})
    elif name == "summarised_passages":
        for row in data["train"]:
            sentences = [each.split() for each in row["text"].split(" .") if " the " in each and " in the " in each]
            assert row["summary"] == " and ".join(" ".join(words[2:7]) for words in sentences)
    else:
        names = data["train"].features["ner_tags"].feature.names
        pairs = [pair for row in data["train"] for pair in zip(*row.values(), strict=True)]
        assert {names[tag] for word, tag in pairs if word == "jordan"} == {"B-person", "B-place"}
        for row in data["validation"]["ner_tags"]:
            tags = ["O", *(names[tag] for tag in row)]
            assert all(before[1:] == tag[1:] for before, tag in pairwise(tags) if tag.startswith("I-"))
