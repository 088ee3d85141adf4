"""Whether vectors are still those that a model writes, and if not, what has changed."""

import time
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

from . import comparisons
from .comparisons import Verdict
from .contents import read_json, settings_in
from .digests import PIECE, differing, digest_of_piece, digest_of_text, digest_of_tokens
from .encoder import Encoder
from .fit import Fit, bound_of, fit_of
from .kinds import CORPUS
from .model_manifest import compare_model, first_part
from .origin import listed, origin_of
from .proof_file import BESIDE_FILE, IN_FOLDER, chosen, proof_in, read_proof, store_of, unpacked
from .reading import Reading, named, sentences
from .recording import DigestTexts, ReadTexts, all_texts, check_texts, counted, described_rows
from .sentence_files import MODULES
from .stores import Store
from .trials import nearest
from .verifying import check_files, find, loader_of

#: seconds for which files are read, unless all are to be; rows that are embedded to find one that was changed, and that
#: are embedded again to find out why vectors differ
SECONDS, TRIED, SOME = 10, 512, 12
GROWN = "`tfm-zoo record MODEL --vectors ...` proves a store that has grown"
SEARCHED = 100_000  # rows of a part that are searched for vectors in another order


def verify_vectors(
    source: str | Path,
    *,
    model: str | None = None,
    rows: int | None = None,
    proof: str | Path | None = None,
    revision: str | None = None,
    token: str | None = None,
    read_texts: ReadTexts | None = None,
    digest_texts: DigestTexts | None = None,
    trust_remote_code: bool = False,
    run_changed: bool = False,
    whole: bool = False,
) -> Verdict:
    """Compares vectors with their proof, and with what a model makes of the same texts now.

    It compares the digests of the files, embeds the proof's rows again, and says whether store and model still fit. If
    they do not, it says what differs: a part, a row, the tokenizer, a setting, a tensor, or the first layer whose
    states are others.

    Args:
        source: a folder of vectors, a `.parquet` or `.npy` file, or its proof.
        model: the folder or Hub id of the model that should write them; by default the one that has.
        rows: how many of the proof's rows are embedded; by default all.
        proof: the proof, if it is elsewhere.
        revision, token: of a model on the Hub; by default the revision that was recorded.
        read_texts: reads texts that are neither in the store nor in the proof.
        digest_texts: gives the digest of all of them, for `whole`; without it, those of the proof's rows are compared.
        trust_remote_code: run the model's own code, if it is as it was recorded.
        run_changed: run it also if it has been changed since.
        whole: read all files to their end, however long it takes, and all texts that lie elsewhere; by default, files
            for ten seconds, and the texts of the proof's rows.

    Raises:
        FileNotFoundError: if there are no such vectors, or they have no proof, or there is no such model.
        ValueError: for a proof that cannot be read, and for what cannot be embedded.
    """
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be at least 1, not {rows}")
    path = Path(proof) if proof else proof_in(Path(source))
    if path is None:
        raise FileNotFoundError(without_proof(source))
    saved, verdict = read_proof(path), Verdict(str(source))
    place = store_of(path) if proof is None else Path(source)
    check_parts_are_there(place, saved, verdict)
    if not verdict.ok:
        return verdict
    store = Store(place, saved.get("vector_column"), saved["texts"].get("column"))
    suspects, lost = compare_parts(saved, store, verdict, whole)
    name = model or saved["source"]
    revision = revision or (None if model else saved.get("revision"))
    folder = found_model(name, revision, token, source, asked=bool(model))
    if other := comparisons.another_class(saved["model"], settings_in(folder), name):
        (verdict.warnings if model else verdict.differences).append(other)
    else:
        comparisons.compare_code(saved["model"], folder, verdict)
    origin = origin_of(folder)
    by = f", computed by {model}" if model and model != saved["source"] else ""
    verdict.code = f"vectors of {saved['source']}{by}; {origin}"
    try:
        loader_of(origin, trust_remote_code, (bool(other) or not verdict.ok) and not run_changed)
    except ValueError as error:
        verdict.differences.append(str(error))
        return verdict
    encoder = Encoder.load(name, revision, token, saved["computed"].get("dtype", "float32"), trust_remote_code)
    canaries = saved["canaries"]["rows"]
    if (rows or 0) > len(canaries):
        verdict.warnings.append(f"the proof holds {len(canaries)} rows, fewer than the {rows:,} that were asked for")
    tried = [place for place in chosen(saved["canaries"], rows) if not any(canaries[place] in rows for rows in lost)]
    if not tried:
        return verdict
    numbers = [canaries[place] for place in tried]
    stored = unpacked(saved["canaries"])[[*tried]]
    known = [*verdict.differences, *verdict.warnings]
    texts = texts_again(saved, store, tried, numbers, read_texts, verdict)
    if texts is None:
        return verdict
    are_alike = known == [*verdict.differences, *verdict.warnings]
    said = compare_all_texts(saved, store, len(numbers), digest_texts if are_alike else None, whole, verdict)
    trial = Trial(saved, encoder, numbers, stored, texts, verdict)
    match = trial.compare([saved["canaries"]["tokens"][each] for each in tried], other)
    name_rows(saved, store, suspects, encoder, verdict)
    if verdict.ok:
        verdict.figures["match"] = match + said
    return verdict


def without_proof(source: str | Path) -> str:
    """The error for vectors that are not there, that have no proof, or several; or for a folder of `predict.py` that
    holds something else."""
    path = Path(source)
    if not path.exists():
        near = get_close_matches(path.name, [each.name for each in path.parent.glob("*")], n=1)
        return f"There is no {str(source)!r}" + (f"; did you mean {str(path.with_name(near[0]))!r}?" if near else ".")
    if proofs := sorted(each.name for each in path.glob(f"*{BESIDE_FILE}")):
        return f"{source} holds several proofs ({', '.join(proofs)}): name one of their files."
    if (about := Path(source) / CORPUS).is_file() and (kind := read_json(about).get("results")) != "embeddings":
        return f"{source} holds {kind} of texts: only vectors have a proof."
    start = f"{source} has no proof ({IN_FOLDER} in a folder, or .proof.json beside a file)"
    return f"{start}: `tfm-zoo record MODEL --vectors {source}` writes it."


def found_model(name: str, revision: str | None, token: str | None, source: str | Path, asked: bool) -> Path:
    try:
        folder = find(name, revision, token, needed=None).resolve()
    except FileNotFoundError as error:
        if asked:
            raise
        advice = f"give the model that should write {source} with --model"
        raise FileNotFoundError(f"{str(error).rstrip('.')}: {advice}.") from error
    check_files(folder)
    return folder


def check_parts_are_there(place: Path, saved: dict[str, Any], verdict: Verdict) -> None:
    """Notes parts that are gone; those that were not recorded are noted too."""
    if place.is_file():
        return
    there = {path.name for path in place.glob("*.parquet")} if place.is_dir() else set()
    verdict.add("parts missing", saved["parts"].keys() - there)
    if place.is_dir() and place.joinpath(IN_FOLDER).is_file() and (added := there - saved["parts"].keys()):
        verdict.differences.append(f"parts that were not recorded: {listed(added)}; {GROWN}")


class Suspect(NamedTuple):
    """A part with changed rows: its file, the number of its first row, and the blocks of rows that were changed."""

    part: Path
    first: int
    rows: list[range]


def compare_parts(
    saved: dict[str, Any], store: Store, verdict: Verdict, whole: bool
) -> tuple[list[Suspect], list[range]]:
    """Compares files with the digests of their pieces, for some seconds; notes those that were changed.

    Returns:
        The parts with some changed rows; and the rows of parts that were exchanged, swapped or shortened.
    """
    recorded = saved["parts"]
    parts = {store.name_of(part): part for part in store.parts}
    if len(parts) == len(recorded) == 1 and parts.keys() != recorded.keys():  # a file that has another name now
        parts = dict(zip(recorded, parts.values(), strict=True))
    sizes = {name: part.stat().st_size for name, part in parts.items()}
    changed = {name for name in parts if sizes[name] != recorded[name]["bytes"]}
    pieces = [(name, index) for name, about in recorded.items() for index in range(len(about["pieces"]))]
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
    firsts, first = {}, 0
    for name in sorted(parts):
        firsts[name], first = first, first + recorded[name]["rows"]
    now = {name: digests_now(store, parts[name], "texts" in recorded[name]) for name in sorted(changed)}
    suspects, lost = [], []
    for name in now:
        blocks = compare_part(name, recorded, now, firsts[name], verdict)
        if blocks and sum(map(len, blocks)) == now[name]["rows"] and is_exchanged(saved, store, blocks, firsts[name]):
            verdict.differences[-1:] = [what_was_exchanged(saved, store, parts[name], firsts[name])]
            blocks = None
        if blocks is None:
            lost.append(range(firsts[name], firsts[name] + recorded[name]["rows"]))
        suspects += [Suspect(parts[name], firsts[name], blocks)] if blocks else []
    return suspects, lost


def digests_now(store: Store, part: Path, with_texts: bool) -> dict[str, Any]:
    """The rows of a part and the digests of their blocks, as [`described_part`] has them; an error, where it cannot be
    read."""
    try:
        return described_rows(store, part, with_texts)
    except (ValueError, OSError) as error:
        return {"error": " ".join(str(error).split())}


def compare_part(
    name: str, recorded: dict[str, Any], now: dict[str, Any], first: int, verdict: Verdict
) -> list[range] | None:
    """Says what has become of a part that was changed. Returns the blocks of rows that are others, counted in the part;
    `None` if it is another as a whole. `first`: the number of its first row."""
    before, found = recorded[name], now[name]
    if "error" in found:
        verdict.differences.append(f"part {name} cannot be read: {found['error']}")
        return None
    others = {other: about for other, about in recorded.items() if other != name}
    if other := next((other for other, about in others.items() if is_same(about, found)), None):
        is_swap = other in now and is_same(before, now[other])
        if not (is_swap and other < name):  # else it was said of the other
            said = f"parts {name} and {other} are swapped" if is_swap else f"part {name} holds what {other} held"
            verdict.differences.append(said)
        return None
    if found["rows"] != before["rows"]:
        said = f"part {name} had {before['rows']:,} rows and has {found['rows']:,}"
        is_longer = found["rows"] > before["rows"]
        verdict.differences.append(f"{said}; {GROWN}" if is_longer else f"rows are gone: {said}")
        return None
    kinds = ("vectors", *(["texts"] if "texts" in before else []))
    blocks = {kind: [*differing(before[kind], found[kind], found["rows"])] for kind in kinds}
    if not any(blocks.values()):
        verdict.warnings.append(f"part {name} was written anew, with the same rows")
        return []
    changes = []
    for kind, ranges in blocks.items():
        spans = [f"{first + rows.start:,} to {first + rows.stop - 1:,}" for rows in ranges]
        more = f" and {len(spans) - 3} more places" if len(spans) > 3 else ""
        changes += [f"{kind} among rows {', '.join(spans[:3])}{more}"] if spans else []
    verdict.differences.append(f"part {name} was changed: {' and '.join(changes)}")
    return sorted({*blocks["vectors"], *blocks.get("texts", ())}, key=lambda rows: rows.start)


def is_exchanged(saved: dict[str, Any], store: Store, blocks: Sequence[range], first: int) -> bool:
    """Whether a part whose blocks have all changed holds other vectors throughout, or another type: the proof's rows in
    it do."""
    canaries, inside = saved["canaries"], range(first, first + blocks[-1].stop)
    places = [place for place, row in enumerate(canaries["rows"]) if row in inside]
    now, kept = store.vectors([canaries["rows"][place] for place in places]), unpacked(canaries)
    pairs = [(now[canaries["rows"][place]], kept[place]) for place in places]
    return len(pairs) > 1 and not any(one.dtype == other.dtype and np.array_equal(one, other) for one, other in pairs)


def what_was_exchanged(saved: dict[str, Any], store: Store, part: Path, first: int) -> str:
    """What is said of a part whose vectors are all others: that their type is another one, that their order is, or just
    that. `first`: the number of its first row."""
    kept, found, count = unpacked(saved["canaries"]), {}, 0
    for _, vectors in store.tables(part):
        if vectors.dtype != kept.dtype:
            return f"part {part.name} holds {vectors.dtype} now, and held {kept.dtype}"
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


def name_rows(
    saved: dict[str, Any], store: Store, suspects: Sequence[Suspect], encoder: Encoder, verdict: Verdict
) -> None:
    """Names the rows of changed blocks whose vectors are not those of their texts, if the texts are in the store."""
    if store.text_column is None or "column" not in saved["texts"]:
        return
    reading = Reading.of(saved["reading"])
    bound = bound_of(saved["canaries"]["dtype"], encoder.dtype, saved["agreement"])
    for suspect in suspects:
        rows = [suspect.first + row for rows in suspect.rows for row in rows][:TRIED]
        texts, vectors = store.texts(rows), store.vectors(rows)
        made = encoder.vectors([*texts.values()], reading)
        fit = fit_of(np.stack([*vectors.values()]), made)
        if wrong := fit.worse(bound):
            distances = [f"cosine {fit.cosines[place]:.3f}, difference {fit.differences[place]:.1e}" for place in wrong]
            shown = [f"{rows[place]:,} ({one})" for place, one in zip(wrong[:5], distances, strict=False)]
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            one = "row" if len(wrong) == 1 else "rows"
            verdict.differences.append(f"the text and the vector do not fit in {one} {', '.join(shown)}{more}")


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
    """Compares all texts with their digest if they are not in the store, and `whole` asks for it. Returns what is said
    of them where nothing differs. `tried`: how many rows were compared one by one."""
    place, count = saved["texts"], sum(part["rows"] for part in saved["parts"].values())
    if "column" in place or tried == count:
        return ""
    about = store.path / CORPUS
    was = read_json(about).get("texts") if "shards" in place and about.is_file() else place.get("digest")
    now = digest_texts(place) if was and digest_texts and whole else None
    if now is None:
        return f"; the texts of other rows were not compared{'' if whole or not was else ' (--whole compares them)'}"
    if now != was:
        verdict.differences.append(f"texts of other rows than these {tried} are not those that were embedded")
    return f", all {count:,} texts as recorded"


def said_of_vectors(saved: dict[str, Any]) -> Reading:
    """What the model's files said of vectors when these were recorded. What they do not say is as it was found."""
    says, found = Reading.of(saved["files_say"]), Reading.of(saved["reading"])
    says = replace(says, size=found.size)
    return says if says.pooling else replace(says, pooling=found.pooling, normalize=found.normalize)


def row_numbers(rows: Sequence[int]) -> str:
    shown = ", ".join(f"{row:,}" for row in rows[:5])
    return f"row{'s' * (len(rows) > 1)} {shown}" + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")


class Trial:
    """The proof's rows beside what a model makes of their texts now.

    Args:
        saved: the proof.
        encoder: the model.
        numbers: the rows.
        stored: their vectors, `(rows, size)`.
        texts: their texts.
        verdict: takes what is found.
    """

    def __init__(
        self,
        saved: dict[str, Any],
        encoder: Encoder,
        numbers: Sequence[int],
        stored: np.ndarray,
        texts: Sequence[str],
        verdict: Verdict,
    ):
        self.saved, self.encoder, self.numbers, self.stored, self.verdict = saved, encoder, numbers, stored, verdict
        self.texts, self.reading = texts, Reading.of(saved["reading"])
        self.bound = bound_of(str(stored.dtype), encoder.dtype, saved["agreement"])

    def compare(self, tokens: Sequence[str], other_class: str | None) -> str:
        """Compares model, settings, tokens and vectors, and where these differ, finds out why. Returns what is said if
        nothing differs. `tokens`: the digests of what the tokenizer made of the texts. `other_class`: what was said of
        a model of another class."""
        verdict, known = self.verdict, len(self.verdict.differences)
        manifest, encoder = self.saved["model"], self.encoder
        changed = set() if other_class else compare_model(manifest, encoder, verdict)
        files = Verdict(verdict.source)
        if not other_class:
            comparisons.note_files(comparisons.other_files(manifest, encoder.folder, files), files)
        today = self.compare_settings()
        self.compare_tokens(tokens, are_files_others=not files.ok)
        self.note_how_they_were_made()
        intact = self.same_texts()
        fit = self.fit(today)
        verdict.figures |= {"rows": len(self.texts), "cosine": fit.cosine, "difference": fit.difference}
        verdict.figures |= {"bound": self.bound, "bit_for_bit": fit.difference == 0}
        if wrong := [place for place in fit.worse(self.bound) if place in intact]:
            rows = row_numbers([self.numbers[place] for place in wrong])
            verdict.differences.append(f"{len(wrong)} of {len(self.texts)} vectors are others now ({fit}; {rows})")
            self.explain(today, changed, wrong[:SOME], is_named=len(verdict.differences) > known + 1)
        is_other = other_class in verdict.differences or len(verdict.differences) > known
        (verdict.differences if is_other else verdict.warnings).extend(files.differences)
        if is_other and not wrong and len(intact) == len(self.texts):
            verdict.differences.append(f"yet the vectors of these {len(intact)} rows are the same ({fit})")
        said = "bit for bit" if fit.difference == 0 else str(fit)
        parts = verdict.figures["parts"]["parts"]
        files_said = f"{parts} part{'s' * (parts > 1)}"
        return f"store and model still fit: {len(self.texts)} rows embedded again ({said}), {files_said} as recorded"

    def note_how_they_were_made(self) -> None:
        """Warns of vectors that were not made as the model's files say, and of those that were only near."""
        says = said_of_vectors(self.saved)
        if unlike := named(says, self.reading):
            # (A query may have a prompt of its own.)
            is_query_other = replace(says, prompt=self.reading.prompt) != self.reading
            queries = "; sentence-transformers embeds queries as its files say, which does not fit" * is_query_other
            self.verdict.warnings.append(f"the vectors were made with {unlike}{queries}")
        then, rounding = self.saved["agreement"]["difference"], bound_of(str(self.stored.dtype), self.encoder.dtype)
        if then > rounding and not self.saved["computed"].get("pack"):
            said = f"they were only near when they were recorded: {then:.1e} off ({rounding:g} is rounding)"
            self.verdict.warnings.append(said)

    def same_texts(self) -> set[int]:
        """The places of the rows whose texts are those that were embedded."""
        canaries = self.saved["canaries"]
        was = dict(zip(canaries["rows"], canaries["texts"], strict=True))
        return {place for place, n in enumerate(self.numbers) if was[n] == digest_of_text(self.texts[place])}

    def fit(self, reading: Reading, places: Sequence[int] | None = None) -> Fit:
        """How near the model comes by a reading, at some rows or at all."""
        chosen = [*range(len(self.texts))] if places is None else places
        return fit_of(self.stored[chosen], self.encoder.vectors([self.texts[place] for place in chosen], reading))

    def compare_settings(self) -> Reading:
        """Notes settings that the model's files have otherwise now. Returns how the model would read texts today."""
        was, (says, _) = Reading.of(self.saved["files_say"]), self.encoder.files_say()
        if was.pooling and not says.pooling:
            said = f"{MODULES} is missing, which says how a text becomes a vector (pooling {was.pooling!r})"
            self.verdict.differences.append(f"{said}: rows were embedded as they were then")
            return self.reading
        self.verdict.differences += sentences(was, says)
        return replace(self.reading, **{name: value for name, _, value in was.changes(says)})

    def compare_tokens(self, tokens: Sequence[str], are_files_others: bool) -> None:
        """Notes a tokenizer that makes something else of texts, of the proof's rows or of a fixed one; or that could,
        since its vocabulary or its rules are others. (With the same files, only the library writes them otherwise.)"""
        now = self.encoder.tokens(self.texts, self.reading)["input_ids"]
        intact = self.same_texts()
        others = [
            number
            for place, (number, ids, was) in enumerate(zip(self.numbers, now, tokens, strict=True))
            if digest_of_tokens(ids) != was and place in intact
        ]
        if others:
            self.verdict.differences.append(f"the tokenizer makes something else of the texts in {row_numbers(others)}")
        elif saved := self.saved["model"].get("tokenizer"):
            made, known = self.encoder.fixed_text(), len(self.verdict.differences)
            comparisons.compare_texts(saved, made, self.verdict)
            is_other = are_files_others and saved.get("digest", made["digest"]) != made["digest"]
            if is_other and len(self.verdict.differences) == known:
                self.verdict.differences.append("the tokenizer has another vocabulary or other rules than it had")

    def explain(self, today: Reading, changed: set[str], wrong: Sequence[int], is_named: bool) -> None:
        """Finds out why vectors differ: by the settings that were recorded, by the layers, and by other settings.
        `wrong`: the places of some that do; `is_named`: whether a change of files has been named."""
        verdict = self.verdict
        if today != self.reading and self.fit(self.reading, wrong).difference <= self.bound:
            verdict.differences.append("with the settings that were recorded the vectors are the same")
            return
        if part := first_part(self.saved["model"], self.encoder, changed):
            verdict.figures["first_change"] = part._asdict()
            verdict.differences.append(str(part))
        elif not is_named:  # no file has changed, no setting, and no layer
            found, _ = nearest(self.encoder, self.texts, self.stored, today, (), self.bound)
            if found != today and self.fit(found).difference <= self.bound:
                verdict.differences.append(f"they are the same with {named(today, found)}")
        versions = {"transformers": transformers.__version__, "torch": torch.__version__}
        moved = [
            f"{name} {self.saved[name]} then, {now} now" for name, now in versions.items() if self.saved[name] != now
        ]
        if moved:
            verdict.differences.append(f"the libraries: {', '.join(moved)}")
