"""What tags of words are measured by: precision, recall and F1 of the entities that they mark."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MARKS = ("B", "I", "O", "E", "S")


class Entity(NamedTuple):
    """Words that one name or phrase consists of."""

    kind: str
    first: int  # the numbers of its first and its last word
    last: int


class Scores(NamedTuple):
    """How well entities were found."""

    precision: float
    recall: float
    f1: float
    number: int  # of those that are there


def entities(tags: Sequence[str]) -> set[Entity]:
    """The entities that the tags of a text mark, as seqeval and, before it, conlleval count them.

    Tags are `O`, for a word outside of all entities, and `B-...` and `I-...` (also `S-...` and `E-...`), with a kind.
    An entity begins at a `B` or an `S`, ends at an `E` or an `S`, and also ends where the kind changes: that there is
    no `B` at its beginning is forgiven. Any other tag is a kind by itself; words in a row that have it are an entity.
    """
    found: list[Entity] = []
    mark_before, kind_before = "O", ""
    for place, tag in enumerate(tags):
        mark, _, kind = tag.partition("-")
        if mark not in MARKS:
            mark, kind = "I", tag
        if mark not in ("B", "S", "O") and mark_before not in ("E", "S", "O") and kind == kind_before:
            found[-1] = found[-1]._replace(last=place)
        elif mark != "O":
            found.append(Entity(kind, place, place))
        mark_before, kind_before = mark, kind
    return set(found)


def entity_scores(
    predicted: Iterable[Sequence[str]], right: Iterable[Sequence[str]]
) -> tuple[Scores, dict[str, Scores]]:
    """Scores of all entities together (the micro average) and of each kind, from the tags of texts.

    An entity is found if its kind, its first and its last word are right. Where nothing was predicted, or nothing is
    there, precision or recall is 0.
    """
    found, there, both = Counter(), Counter(), Counter()
    for tags, right_tags in zip(predicted, right, strict=True):
        mine, expected = entities(tags), entities(right_tags)
        for counter, some in ((found, mine), (there, expected), (both, mine & expected)):
            counter.update(entity.kind for entity in some)
    by_kind = {kind: scores(both[kind], found[kind], there[kind]) for kind in sorted(found | there)}
    return scores(both.total(), found.total(), there.total()), by_kind


def scores(both: int, found: int, there: int) -> Scores:
    """Precision, recall and F1 from how many were found and there, found, and there."""
    return Scores(both / max(found, 1), both / max(there, 1), 2 * both / max(found + there, 1), there)
