"""Labels in the columns of rows: read by their names, checked and counted."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import isfinite
from typing import Any

from datasets import ClassLabel, Dataset, Value

from tfm_zoo.data.splits import FoundSplit, pluralize

logger = logging.getLogger(__name__)
# transformers' names of the problems, as `config.problem_type` has them
ONE_LABEL, ANY_LABELS, NUMBERS = "single_label_classification", "multi_label_classification", "regression"


def class_names(feature: Any) -> list[str] | None:
    """The names of the labels in a column, or in its lists, if the data set has a list of them."""
    feature = getattr(feature, "feature", feature)
    return feature.names if isinstance(feature, ClassLabel) else None


def labels_in(rows: Dataset, column: str) -> list[Any]:
    """The labels in a column, or the lists of them. An id of a class whose name the data set has becomes that name. A
    missing label becomes None: an id below 0, or an empty cell among numbers, which is NaN."""
    names = class_names(rows.features[column])

    def named(label: Any) -> Any:
        if isinstance(label, list):
            return [*map(named, label)]
        if names and label is not None:
            return names[label] if label >= 0 else None
        return None if label != label else label  # (NaN is not equal to itself)

    return [*map(named, rows[column])]


def natural_sort(names: Iterable[str]) -> list[str]:
    """Names in order: whole numbers by value, and after them all others by the alphabet."""
    read_whole = re.compile(r"(-?\d+)(\.0+)?").fullmatch
    return sorted(names, key=lambda name: (0, int(number[1]), name) if (number := read_whole(name)) else (1, 0, name))


def each_label(labels: Iterable[str | list[str]]) -> list[str]:
    """The labels of all rows, each of which has one or a list of them."""
    return list(chain.from_iterable(label if isinstance(label, list) else [label] for label in labels))


def known_labels(rows: Mapping[str, Dataset], column: str, names: list[str] | None) -> list[str]:
    """`names`, or without them the labels of the train split, in order. Refuses a split with any other label."""
    names = names or natural_sort(set(each_label(rows["train"][column])))
    for name, split in rows.items():
        if unknown := sorted(set(each_label(split[column])) - set(names)):
            raise ValueError(f"split {name!r} has labels that train lacks: {unknown}; train has {names}")
    return names


def names_by_id(label2id: Mapping[str, int]) -> list[str]:
    """The names of the labels in the order that a model's head has."""
    return sorted(label2id, key=label2id.get)


def log_label_counts(labels: Sequence[str], number: int, names: Sequence[str], thing: str = "row") -> None:
    """Log how often each label occurs among the `number` rows (or words) to train on; warn where they are too many."""
    counts, of = Counter(labels), f"{pluralize(len(names), 'label')} in {pluralize(number, thing)} to train on"
    logger.info(f"{of}: {', '.join(f'{name} {counts[name]:,}' for name in names[:12])}{', ...' * (len(names) > 12)}")
    if 2 * len(names) > number:
        logger.warning(f"{of}: is label_column_name the right column?")


def labelled_rows(
    text_columns: Sequence[str], label_columns: Sequence[str], problem: str, table: FoundSplit
) -> Dataset | None:
    """The columns of texts of a split, and its labels in the column "label"; None if it has no labels."""
    for column in text_columns:
        table.texts(column)  # refuses what is not text
    for column in label_columns:
        table.check(column)
    labels = read_labels(table, label_columns, problem)
    missing = labels.count(None)
    if 0 < missing < len(labels):
        what = f"{pluralize(missing, 'row')} without a label, this is the first"
        raise table.error(labels.index(None), what, label_columns[0])
    return None if missing else table.rows.select_columns([*text_columns]).add_column("label", labels)


def read_labels(table: FoundSplit, columns: Sequence[str], problem: str) -> list[Any]:
    """Each row's label by its name, the names in its list or of columns with a 1, or its numbers; None: missing."""
    labels_of_columns = [labels_in(table.rows, column) for column in columns]
    if problem == ONE_LABEL:
        return single_labels(table, columns[0], labels_of_columns[0])
    if problem == ANY_LABELS and len(columns) == 1:
        return named_lists(table, columns[0], labels_of_columns[0])
    labels, wanted = [], "a label is 1 or 0" if problem == ANY_LABELS else "problem_type 'regression' needs a number"
    for row, cells in enumerate(zip(*labels_of_columns, strict=True)):
        for column, cell in zip(columns, cells, strict=True):
            if cell is not None and not (is_number(cell) and (problem == NUMBERS or float(cell) in (0, 1))):
                raise table.error(row, f"{wanted}, not {cell!r}", column)
        numbers = None if None in cells else [*map(float, cells)]
        if numbers and problem == ANY_LABELS:
            labels.append([column for column, number in zip(columns, numbers, strict=True) if number])
        else:
            labels.append(numbers)
    return labels


def named_lists(table: FoundSplit, column: str, lists: Sequence[list[Any] | None]) -> list[list[str] | None]:
    """The names in each row's list of labels. Refuses a list with a label that is missing."""
    for row, labels in enumerate(lists):
        if None in (labels or ()):
            raise table.error(row, f"label_column_name needs lists of labels, and one of {labels} is missing", column)
    return [labels and [*map(str, labels)] for labels in lists]


def single_labels(table: FoundSplit, column: str, labels: Sequence[Any]) -> list[str | None]:
    """The name of each row's label: a text, or a whole number."""
    feature, present = table.rows.features[column], [label for label in labels if label is not None]
    if isinstance(feature, ClassLabel):
        return labels  # `labels_in` has made names of the ids
    if not isinstance(feature, Value):
        raise ValueError(f"label_column_name {column!r} holds {feature}; expected text, whole numbers or booleans")
    are_numbers = feature.dtype.startswith("float") or all(map(is_number, present))  # perhaps in writing, as in CSV
    if are_numbers and (real := next((label for label in present if not float(label).is_integer()), None)):
        what = f"holds numbers (float64), such as {real}"
        raise ValueError(f"label_column_name {column!r} {what}: to learn numbers, give problem_type 'regression'")
    names = [label if label is None else str(int(label) if isinstance(label, float) else label) for label in labels]
    return [name and name.strip() for name in names] if are_numbers else names


def is_number(value: Any) -> bool:
    """Whether it is a number; or one in writing, as all are in a column that also holds other text."""
    try:
        return isfinite(float(value))
    except (TypeError, ValueError):
        return False
