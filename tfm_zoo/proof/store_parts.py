"""Which files of a store were changed, swapped, lost or exchanged, by the digests that its proof has of them."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..utils.errors import in_one_line
from .origin import listed
from .proof_file import unpacked
from .stores import Store, numbered
from .vector_digests import PIECE, differing, digest_of_piece
from .vector_recording import described_rows
from .verdict import Verdict

#: seconds for which files are read, unless all are to be
SECONDS = 10
SEARCHED = 100_000  # rows of a part that are searched for vectors in another order
#: what is said of a store with other rows than were recorded
ANEW = "`tfm-zoo record MODEL --vectors ...` proves the store as it is now"


def find_parts(place: Path, saved: dict[str, Any], verdict: Verdict) -> dict[str, Path]:
    """The files of the recorded parts, by name; notes parts that are gone, that have another name, and that were not
    recorded."""
    recorded = saved["parts"]
    if place.is_file() and len(recorded) == 1:  # it may have another name now
        return dict.fromkeys(recorded, place)
    there = {path.name: path for path in ([place] if place.is_file() else sorted(place.glob("*.parquet")))}
    parts, added, renamed = {}, there.keys() - recorded.keys(), []
    for name, about in recorded.items():
        now = name if name in there else next((one for one in sorted(added) if is_copy(there[one], about)), None)
        if now:
            parts[name] = there[now]
            added -= {now}
        renamed += [f"{name} is {now}"] if now not in (name, None) else []
    if added:
        verdict.differences.append(f"parts that were not recorded: {listed(added)}; {ANEW}")
    if missing := recorded.keys() - parts.keys():
        verdict.differences.append(f"parts missing: {listed(missing)}")
    if renamed:
        is_moved = sorted(parts) != sorted(parts, key=lambda name: parts[name].name)
        said = "parts have other names now" + ", and with them another order" * is_moved
        (verdict.differences if is_moved else verdict.warnings).append(f"{said}: {', '.join(renamed)}")
    return parts


def is_copy(path: Path, about: dict[str, Any]) -> bool:
    """Whether a file is the part that is recorded, by its size and its first piece."""
    return path.stat().st_size == about["bytes"] and [digest_of_piece(path, 0)] == about["pieces"][:1]


class Suspect(NamedTuple):
    """A part with changed rows: its name, and the numbers of the rows in each block that was changed."""

    part: str
    blocks: list[range]


def compare_parts(
    saved: dict[str, Any], store: Store, parts: dict[str, Path], verdict: Verdict, whole: bool
) -> tuple[list[Suspect], list[range]]:
    """Compares files with the digests of their pieces, for some seconds; notes those that were changed. `parts` are
    those that [`find_parts`] found. The rows of the store get the numbers that were recorded.

    Returns:
        The parts with some changed rows; and the rows that are not compared: those of parts that are missing, exchanged
        or swapped, and those behind the first change in a part that has lost rows.
    """
    recorded = saved["parts"]
    numbers = numbered({name: recorded[name]["rows"] for name in sorted(recorded)})
    store.numbers = {parts[name]: numbers[name] for name in sorted(parts)}
    sizes = {name: part.stat().st_size for name, part in parts.items()}
    changed = {name for name in parts if sizes[name] != recorded[name]["bytes"]}
    pieces = [(name, index) for name, about in recorded.items() for index in range(len(about["pieces"]))]
    pieces = [each for each in pieces if each[0] in parts]
    order = np.random.default_rng(0).permutation(len(pieces)) if pieces else []
    end, read = time.monotonic() + SECONDS, 0
    for place in order:
        name, index = pieces[place]
        if name not in changed and digest_of_piece(parts[name], index) != recorded[name]["pieces"][index]:
            changed.add(name)
        read += 1
        if not whole and time.monotonic() > end:
            break
    verdict.figures["parts"] = {"parts": len(parts), "pieces": len(pieces), "read": read}
    if read < len(pieces):
        seconds = f"{read:,} of {len(pieces):,} pieces of {PIECE >> 20} MB were read in {SECONDS} s (--whole reads all)"
        verdict.warnings.append(seconds)
    now = {name: digests_now(store, parts[name], recorded[name]) for name in sorted(changed)}
    suspects, lost, others = [], [numbers[name] for name in recorded.keys() - parts.keys()], 0
    for name in now:
        known, first = len(verdict.differences), numbers[name].start
        typed = "" if "error" in now[name] else another_type(saved, store, parts[name])
        blocks, kept = compare_part(name, recorded, now, first, typed, verdict)
        others += len(verdict.differences) > known
        is_short = now[name].get("rows", 0) < recorded[name]["rows"]
        if is_short and "kept" in saved["texts"]:  # these texts have the numbers of earlier rows
            blocks = []
        are_all = sum(map(len, blocks)) == now[name].get("rows") and not is_short and not typed
        if blocks and are_all and is_exchanged(saved, store, blocks, first):
            verdict.differences[-1:] = [what_was_exchanged(saved, store, parts[name], first)]
            kept = 0
        lost.append(numbers[name][kept:])
        suspects += [Suspect(name, [numbers[name][rows.start : rows.stop] for rows in blocks])] if blocks else []
    verdict.figures["parts"]["as_recorded"] = len(parts) - others
    return suspects, lost


def digests_now(store: Store, part: Path, before: dict[str, Any]) -> dict[str, Any]:
    """The rows of a part and the digests of their blocks, as [`described_part`] has them; those of its first rows alone
    (`first_rows`), if it has more than `before`; an error, where it cannot be read."""
    with_texts = "texts" in before
    try:
        found = described_rows(store, part, with_texts)
        if found["rows"] > before["rows"]:
            found["first_rows"] = described_rows(store, part, with_texts, most=before["rows"])
        return found
    except (ValueError, OSError) as error:
        return {"error": in_one_line(error)}


def compare_part(
    name: str, recorded: dict[str, Any], now: dict[str, Any], first: int, typed: str, verdict: Verdict
) -> tuple[list[range], int]:
    """Says what has become of a part that was changed. Returns the blocks of rows that are others, counted in the part;
    and how many of its first rows have the numbers that were recorded. `first`: the number of its first row; `typed`:
    what is said of vectors of another type, in place of their blocks.
    """
    before, found = recorded[name], now[name]
    if "error" in found:
        verdict.differences.append(f"part {name} cannot be read: {found['error']}")
        return [], 0
    others = {other: about for other, about in recorded.items() if other != name}
    if other := next((other for other, about in others.items() if is_same(about, found)), None):
        is_swap = other in now and is_same(before, now[other])
        if not (is_swap and other < name):  # else it was said of the other
            said = f"parts {name} and {other} are swapped" if is_swap else f"part {name} holds what {other} held"
            verdict.differences.append(said)
        return [], 0
    has_grown, said = "first_rows" in found, f"part {name} had {before['rows']:,} rows and has {found['rows']:,}"
    found = found.get("first_rows", found)
    kinds = ("vectors", *(["texts"] if "texts" in before else []))
    blocks = {kind: [*differing(before[kind], found[kind], found["rows"])] for kind in kinds}
    are_as_recorded = not any(blocks.values())
    types = [typed] if typed and sum(map(len, blocks["vectors"])) == found["rows"] else []
    intact = min((rows.start for ranges in blocks.values() for rows in ranges), default=found["rows"])
    said += f", the first {intact:,} as recorded" if intact else ""
    if found["rows"] < before["rows"]:
        verdict.differences += [f"rows are gone: {said}; {ANEW}", *types]
        return [range(intact, found["rows"])], intact
    if has_grown:
        verdict.differences.append(f"{said}; {ANEW}")
    elif are_as_recorded:
        verdict.warnings.append(f"part {name} was written anew, with the same rows")
    if are_as_recorded:
        return [], before["rows"]
    verdict.differences += types
    changes = []
    for kind, ranges in blocks.items() if not types else [("texts", blocks.get("texts", []))]:
        spans = [f"{first + rows.start:,} to {first + rows.stop - 1:,}" for rows in ranges]
        more = f" and {len(spans) - 3} more places" if len(spans) > 3 else ""
        changes += [f"{kind} among rows {', '.join(spans[:3])}{more}"] if spans else []
    verdict.differences += [f"part {name} was changed: {' and '.join(changes)}"] if changes else []
    return sorted({*blocks["vectors"], *blocks.get("texts", ())}, key=lambda rows: rows.start), before["rows"]


def is_exchanged(saved: dict[str, Any], store: Store, blocks: Sequence[range], first: int) -> bool:
    """Whether a part whose blocks have all changed holds other vectors throughout: the proof's rows in it do."""
    canaries, inside = saved["canaries"], range(first, first + blocks[-1].stop)
    places = [place for place, row in enumerate(canaries["rows"]) if row in inside]
    now, kept = store.vectors([canaries["rows"][place] for place in places]), unpacked(canaries)
    pairs = [(now[canaries["rows"][place]], kept[place]) for place in places]
    return len(pairs) > 1 and not any(np.array_equal(one, other) for one, other in pairs)


def another_type(saved: dict[str, Any], store: Store, part: Path) -> str:
    """What is said of a part whose vectors have another type, if they do."""
    held = unpacked(saved["canaries"]).dtype
    holds = next((vectors.dtype for _, vectors in store.tables(part)), held)
    return f"part {part.name} holds {holds} now, and held {held}" if holds != held else ""


def what_was_exchanged(saved: dict[str, Any], store: Store, part: Path, first: int) -> str:
    """What is said of a part whose vectors are all others: that their order is, or just that. `first`: the number of
    its first row."""
    kept, found, count = unpacked(saved["canaries"]), {}, 0
    for _, vectors in store.tables(part):
        found |= {vector.tobytes(): first + count + place for place, vector in enumerate(vectors)}
        count += len(vectors)
        if count >= SEARCHED:
            break
    rows = [(row, found.get(vector.tobytes())) for row, vector in zip(saved["canaries"]["rows"], kept, strict=True)]
    inside = [each for each in rows if each[0] in range(first, first + count)]
    if all(now is not None for _, now in inside):
        row, now = next(each for each in inside if each[0] != each[1])
        return f"part {part.name} holds its vectors in another order: that of row {row:,} is in row {now:,}"
    return f"part {part.name} was exchanged: all of its vectors are others"


def is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return (one["rows"], one["vectors"]) == (other["rows"], other["vectors"])
