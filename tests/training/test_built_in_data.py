"""Data that are generated are the same each time, mean what they say, and test what was not trained on."""

from itertools import pairwise

import pytest
from datasets import DatasetDict

from tfm_zoo.data import built_in_data

FEW = {"train": 400, "validation": 100, "test": 200}


def values(data: DatasetDict, split: str, column: str) -> set[str]:
    """The words, or the texts, of a column."""
    return {word for cell in data[split][column] for word in (cell if isinstance(cell, list) else cell.split())}


@pytest.mark.parametrize(
    ("make", "sizes", "column", "held_back"),
    [
        ("generated_reviews", "SIZES", "text", "fresh tender dazzling sincere hollow noisy grating confusing"),
        ("tagged_sentences", "SENTENCES", "tokens", "stirling simon"),
        ("reversed_sequences", "SEQUENCES", "source", ""),
        ("summarised_passages", "PASSAGES", "text", ""),
    ],
)
def test_what_is_generated(monkeypatch, make, sizes, column, held_back):
    wanted = built_in_data.SIZES if sizes == "SIZES" else FEW
    monkeypatch.setattr(built_in_data, sizes, wanted)
    data, again = (getattr(built_in_data, make)() for _ in range(2))
    assert data["test"].to_list() == again["test"].to_list()
    assert {name: len(split) for name, split in data.items()} == wanted
    assert {*held_back.split()} <= values(data, "test", column) - values(data, "train", column)
    if make in ("generated_reviews", "reversed_sequences"):
        seen, tested = ({str(cell) for cell in data[split][column]} for split in ("train", "test"))
        assert seen.isdisjoint(tested)
    if make == "generated_reviews":
        assert data["train"]["label"][:].count(1) == 1000
    elif make == "reversed_sequences":
        assert all(row["target"].split() == row["source"].split()[::-1] for row in data["train"])
    elif make == "summarised_passages":
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
