"""The texts that vectors were made of: those of the proof's rows, and all of them."""

from collections.abc import Sequence
from typing import Any

from ..utils.folder_kinds import CORPUS
from .contents import read_json
from .stores import Store
from .vector_digests import digest_of_text
from .vector_recording import DigestTexts, ReadTexts, all_texts, check_texts, counted
from .verdict import Verdict


def place_of_texts(saved: dict[str, Any], store: Store) -> dict[str, Any]:
    """Where the texts are, as a proof says. Proofs of earlier versions that keep texts do not name the column of
    the store's texts: `_corpus.json` does, if `predict.py` wrote the store; else it is the usual one."""
    if "kept" not in saved["texts"] or not are_in_parts(saved):
        return saved["texts"]
    about = store.path / CORPUS
    column = read_json(about)["text_column"] if about.is_file() else store.text_column
    return {"column": column} if column else saved["texts"]


def are_in_parts(saved: dict[str, Any]) -> bool:
    """Whether the parts hold the texts, too, so that their digests are compared."""
    return all("texts" in part for part in saved["parts"].values())


def texts_again(
    saved: dict[str, Any], store: Store, tried: Sequence[int], read_texts: ReadTexts | None, verdict: Verdict
) -> dict[int, str]:
    """The texts of the proof's rows that are as they were, by their places in the proof: of the store, or those that it
    keeps, or read again from where they came. Notes those that are others. `tried`: the places."""
    canaries, place, count = saved["canaries"], saved["texts"], sum(part["rows"] for part in saved["parts"].values())
    was = {canaries["rows"][each]: canaries["texts"][each] for each in tried}
    numbers = [*was]
    found = texts_at([*numbers, count] if numbers[-1] == count - 1 else numbers, saved, store, read_texts)
    others = [number for number in numbers if number in found and digest_of_text(found[number]) != was[number]]
    gone = [number for number in numbers if number not in found]
    every = all_texts(read_texts, place) if "corpus" in place and (count in found or gone or others) else []
    if count in found or (gone and every):
        said = f"{count:,} texts were recorded, and there are {counted(every)} now"
        (verdict.differences if gone or others else verdict.warnings).append(said)
    elif gone:
        verdict.differences.append(f"rows are gone: {row_numbers(gone)}")
    rows = {digest_of_text(text): row for row, text in enumerate(every) if isinstance(text, str)} if others else {}
    if others and len(every) == count and all(was[number] in rows for number in others):
        moved = f"the text of row {others[0]:,} is in row {rows[was[others[0]]]:,} now"
        verdict.differences.append(f"the texts are the same, in another order: {moved}")
    elif others:
        verdict.differences.append(f"the text is not the one that was embedded in {row_numbers(others)}")
    places = zip(tried, numbers, strict=True)
    return {each: found[number] for each, number in places if number in found and number not in others}


def texts_at(rows: Sequence[int], saved: dict[str, Any], store: Store, read_texts: ReadTexts | None) -> dict[int, str]:
    """The texts of these rows, which are sorted, by row: of the store if it holds them, or those that the proof keeps,
    or read again. Rows that are gone are left out, and those whose texts the proof does not keep."""
    canaries, place = saved["canaries"], saved["texts"]
    if "column" in place:
        found = store.texts(rows)
    elif "kept" in place:
        kept = dict(zip(canaries["rows"], canaries["kept"], strict=True))
        return {row: kept[row] for row in rows if row in kept}
    elif read_texts is None:
        raise ValueError(f"the texts of {store.path} are neither in it nor in its proof: they are in {place}.")
    else:
        found = read_texts(place, rows)
    check_texts(found, rows)
    return found


def compare_all_texts(
    saved: dict[str, Any], store: Store, tried: int, digest_texts: DigestTexts | None, whole: bool, verdict: Verdict
) -> str:
    """Compares all texts with their digest if they are not in the store, and `digest_texts` reads them. Returns what is
    said of them where nothing differs. `tried`: how many rows were compared one by one."""
    place, count = saved["texts"], sum(part["rows"] for part in saved["parts"].values())
    if are_in_parts(saved) or tried == count:
        return ""
    about = store.path / CORPUS
    was = read_json(about).get("texts") if "shards" in place and about.is_file() else place.get("digest")
    now = digest_texts(place) if was and digest_texts else None
    if now is None:
        return f"; the texts of other rows were not compared{'' if whole or not was else ' (--whole compares them)'}"
    if now != was:
        others = f"{count - tried:,} other rows" if count > tried + 1 else "the other row"
        verdict.differences.append(f"among the texts of {others} are some that were not embedded")
        return ""
    return f", all {count:,} texts as recorded"


def row_numbers(rows: Sequence[int]) -> str:
    shown = ", ".join(f"{row:,}" for row in rows[:5])
    return f"row{'s' * (len(rows) > 1)} {shown}" + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")
