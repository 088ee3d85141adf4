"""A run counts its labels before it trains, and warns of those that cannot be meant."""

import json
import re

import pytest

from tfm_zoo.training.tasks.classification import ClassificationOptions, load_texts
from tfm_zoo.training.tasks.tagging import TaggingOptions, load_tagged_texts


@pytest.fixture
def told(tmp_path, caplog):
    """Reads rows as texts, or as tagged texts; returns what was logged of their labels, and the warnings."""

    def told(rows: list[dict], options_class: type = ClassificationOptions, **options) -> tuple[list[str], list[str]]:
        (tmp_path / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        file = {"train_file": str(tmp_path / "rows.json")}
        load = load_texts if options_class is ClassificationOptions else load_tagged_texts
        with caplog.at_level("INFO", "tfm_zoo"):
            caplog.clear()
            load(options_class(**{**file, "validation_file": file["train_file"]} | options))
        records = [record for record in caplog.records if record.name.startswith("tfm_zoo")]
        levels = {"INFO": [], "WARNING": []}
        for record in records:
            levels[record.levelname].append(record.getMessage())
        return levels["INFO"], levels["WARNING"]

    return told


def texts(*labels: object, column: str = "label") -> list[dict]:
    return [{"text": f"text {number}", column: label} for number, label in enumerate(labels)]


MANY = "40 labels for 40 rows: is label_column_name the right column?"
RARE = "labels with one row or none to train on, which can hardly be learnt: 'odd' (1)"
EACH_ITS_OWN = [f"name {number}" for number in range(40)]


@pytest.mark.parametrize(
    ("rows", "options", "line", "warnings"),
    [
        (texts(*["good"] * 3, *["bad"] * 2), {}, "2 labels in 5 rows to train on: bad 2, good 3", []),
        (texts(["a"], ["a", "b"], [], ["b"], column="labels"), {}, "2 labels in 4 rows to train on: a 2, b 2", []),
        (texts(1.5, 2.5), {"problem_type": "regression"}, None, []),
        (texts(*[*range(20)] * 3), {}, r"20 labels in 60 rows to train on: 0 3, 1 3, .* 11 3 and 8 more", []),
        (texts(*["good"] * 5, *["bad"] * 5, "odd"), {}, "3 labels in 11 rows .*", [RARE]),
        (texts(*EACH_ITS_OWN), {}, "40 labels in 40 rows .*", [MANY]),
    ],
    ids=["names", "lists", "numbers", "many", "rare", "not labels"],
)
def test_labels_are_counted(told, rows, options, line, warnings):
    lines, warned = told(rows, **options)
    assert warned == warnings
    assert len(lines) == (line is not None) and all(re.fullmatch(line, each) for each in lines)


def test_tags_are_counted(told):
    rows = [{"tokens": ["anna", "sang", "."], "tags": ["B-PER", "O", "O"]}] * 3
    lines, warnings = told(rows, TaggingOptions)
    assert lines == ["2 labels in 9 words to train on: B-PER 3, O 6"] and warnings == []
    rows += [{"tokens": ["oslo"], "tags": ["B-LOC"]}]
    assert told(rows, TaggingOptions)[1] == [
        "labels with one word or none to train on, which can hardly be learnt: 'B-LOC' (1)"
    ]
