"""Precision, recall and F1 of the entities that tags of words mark, as seqeval counts them; accuracy of the words."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

MARKS = ("B", "I", "O", "E", "S")


class Scores(NamedTuple):
    """How well entities were found."""

    precision: float
    recall: float
    f1: float
    number: int  # of entities in the right tags


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """The entities that the tags of a text mark, as seqeval and, before it, conlleval count them: the kind of each, and
    the numbers of its first and its last word.

    Tags are `O`, for a word outside of all entities, and `B-...` and `I-...` (also `S-...` and `E-...`), with a kind.
    An entity begins at a `B` or an `S`, ends at an `E` or an `S`, and also ends where the kind changes: it need not
    begin with a `B`. Any other tag is a kind of its own; words in a row with that tag are one entity.
    """
    found: list[tuple[str, int, int]] = []
    mark_before, kind_before = "O", ""
    for place, tag in enumerate(tags):
        mark, _, kind = tag.partition("-")
        if mark not in MARKS:
            mark, kind = "I", tag
        if mark not in ("B", "S", "O") and mark_before not in ("E", "S", "O") and kind == kind_before:
            found[-1] = (kind, found[-1][1], place)
        elif mark != "O":
            found.append((kind, place, place))
        mark_before, kind_before = mark, kind
    return set(found)


def seqeval(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Precision, recall and F1 of all entities together (the micro average), the share of words whose tag is right, and
    `by_kind`, the scores of each kind of entity.

    A predicted entity is right if its kind, its first and its last word are. Precision is 0 if no entity is predicted,
    and recall is 0 if there are no entities.
    """
    found, expected, common = Counter(), Counter(), Counter()
    for tags, right_tags in zip(predictions, references, strict=True):
        found_here, expected_here = entities(tags), entities(right_tags)
        for counter, group in ((found, found_here), (expected, expected_here), (common, found_here & expected_here)):
            counter.update(kind for kind, *_ in group)
    precision, recall, f1, _ = scores(common.total(), found.total(), expected.total())
    words = [pair for tags in zip(predictions, references, strict=True) for pair in zip(*tags, strict=True)]
    accuracy = sum(tag == right_tag for tag, right_tag in words) / max(len(words), 1)
    by_kind = {kind: scores(common[kind], found[kind], expected[kind]) for kind in sorted(found | expected)}
    return {"precision": precision, "recall": recall, "f1": f1, "accuracy": accuracy, "by_kind": by_kind}


def scores(common: int, found: int, expected: int) -> Scores:
    """Precision, recall and F1 of `found` entities; `common` are among the `expected` ones."""
    return Scores(common / max(found, 1), common / max(expected, 1), 2 * common / max(found + expected, 1), expected)
