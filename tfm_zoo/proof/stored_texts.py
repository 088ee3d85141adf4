"""The texts that vectors were made of: those of the proof's rows, and all of them."""

from collections.abc import Sequence
from typing import Any

from .comparisons import Verdict
from .contents import read_json
from .digests import digest_of_text
from .kinds import CORPUS
from .recording import DigestTexts, ReadTexts, all_texts, check_texts, counted
from .stores import Store


def texts_again(
    saved: dict[str, Any],
    store: Store,
    tried: Sequence[int],
    numbers: Sequence[int],
    read_texts: ReadTexts | None,
    verdict: Verdict,
) -> list[str] | None:
    """The texts of the proof's rows: those that it keeps, or of the store, or read again from where they came. Notes
    those that are not as they were; `None` if there is nothing to embed."""
    canaries, place, count = saved["canaries"], saved["texts"], sum(part["rows"] for part in saved["parts"].values())
    was = {number: canaries["texts"][each] for each, number in zip(tried, numbers, strict=True)}
    if "kept" in canaries:
        found = {number: canaries["kept"][each] for each, number in zip(tried, numbers, strict=True)}
    elif "column" in place:
        found = store.texts(numbers)
    elif read_texts is None:
        raise ValueError(f"the texts of {verdict.source} are neither in it nor in its proof: they are in {place}.")
    else:
        found = read_texts(place, [*numbers, count] if numbers[-1] == count - 1 else numbers)
    check_texts(found, numbers)
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
    return None if gone else [found[number] for number in numbers]


def compare_all_texts(
    saved: dict[str, Any], store: Store, tried: int, digest_texts: DigestTexts | None, whole: bool, verdict: Verdict
) -> str:
    """Compares all texts with their digest if they are not in the store, and `digest_texts` reads them. Returns what is
    said of them where nothing differs. `tried`: how many rows were compared one by one."""
    place, count = saved["texts"], sum(part["rows"] for part in saved["parts"].values())
    if "column" in place or tried == count:
        return ""
    about = store.path / CORPUS
    was = read_json(about).get("texts") if "shards" in place and about.is_file() else place.get("digest")
    now = digest_texts(place) if was and digest_texts else None
    if now is None:
        return f"; the texts of other rows were not compared{'' if whole or not was else ' (--whole compares them)'}"
    if now != was:
        verdict.differences.append(f"texts of other rows than these {tried} are not those that were embedded")
    return f", all {count:,} texts as recorded"


def row_numbers(rows: Sequence[int]) -> str:
    shown = ", ".join(f"{row:,}" for row in rows[:5])
    return f"row{'s' * (len(rows) > 1)} {shown}" + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")
