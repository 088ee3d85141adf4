"""Whether vectors are still those that a model writes, and if not, what has changed."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from ..utils.folder_kinds import ARRAYS, CORPUS
from . import comparisons
from .contents import read_json, settings_in
from .encoder import Encoder
from .encoder_manifest import compare_model, first_part
from .fingerprints import places
from .fit import Fit, bound_of, fit_of, least_cosine
from .origin import listed, origin_of
from .proof_file import BESIDE_FILE, IN_FOLDER, chosen, proof_in, read_proof, store_of, unpacked
from .reading import Reading, made_otherwise, named, sentences
from .sentence_files import MODULES
from .store_parts import Suspect, compare_parts, find_parts
from .stored_texts import compare_all_texts, place_of_texts, row_numbers, texts_again, texts_at
from .stores import Store, unfinished
from .trials import nearest
from .vector_digests import digest_of_tokens
from .vector_recording import DigestTexts, ReadTexts
from .verdict import Verdict
from .verifying import check_files, find, loader_of

#: changed rows that are all embedded, so many of more; and rows that are embedded again to find out why vectors differ
TRIED, MANY, SOME = 512, 64, 12
#: how many times as far as the proof's rows other rows may be from what the model gives, where vectors are only near
OTHER_ROWS = 3


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
        digest_texts: gives the digest of all of them; without it, those of the proof's rows are compared.
        trust_remote_code: run the model's own code, if it is as it was recorded.
        run_changed: run it also if it has been changed since.
        whole: read all files to their end, however long it takes; by default, for ten seconds.

    Raises:
        FileNotFoundError: if there are no such vectors, or they have no proof, or there is no such model.
        ValueError: for a proof that cannot be read, and for what cannot be embedded.
    """
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be at least 1, not {rows}")
    path = Path(proof) if proof else proof_in(Path(source))
    if path is None:
        raise FileNotFoundError(without_proof(source))
    saved, place = read_proof(path), store_of(path) if proof is None else Path(source)
    verdict = Verdict(str(source if proof or path.name == IN_FOLDER else place))
    if Path(source).is_dir() and place.is_file():  # the only proven file in a folder
        unread = [each.name for each in sorted(Path(source).iterdir()) if each != place and holds_vectors(each)]
        unread = [name for name in unread if name != saved["texts"].get("beside")]
        verdict.warnings += [f"{source} also holds {listed(unread)}, not looked at: verify each"] if unread else []
    if not (parts := find_parts(place, saved, verdict)):
        return verdict
    store = Store(place, saved.get("vector_column"), saved["texts"].get("column"))
    saved["texts"] = place_of_texts(saved, store)
    store.text_column = saved["texts"].get("column", store.text_column)
    suspects, lost = compare_parts(saved, store, parts, verdict, whole)
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
    try_rows(saved, store, suspects, encoder, read_texts, verdict)
    tried = [place for place in chosen(saved["canaries"], rows) if not any(canaries[place] in rows for rows in lost)]
    known = [*verdict.differences, *verdict.warnings]
    texts = texts_again(saved, store, tried, read_texts, verdict) if tried else {}
    if not texts:
        return verdict
    are_alike = known == [*verdict.differences, *verdict.warnings] and not any(lost)
    digest_texts, whole = (digest_texts, whole) if are_alike else (None, True)  # more texts have another digest
    said = compare_all_texts(saved, store, len(texts), digest_texts, whole, verdict)
    if fits := Trial(saved, encoder, texts, verdict).compare(other):
        if verdict.ok:
            verdict.figures["match"] = f"store and model still fit: {fits}{said}"
        else:
            verdict.differences[-1] += f". All else is as it was recorded: {fits}{said}"
    return verdict


def holds_vectors(path: Path) -> bool:
    """Whether a file may hold vectors, or a folder has the proof of some."""
    return path.suffix in ARRAYS or (path / IN_FOLDER).is_file()


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
    if said := unfinished(path):
        return said
    start = f"{source} has no proof ({IN_FOLDER} in a folder, or .proof.json beside a file)"
    left = [each for each in path.parent.glob(f"*{BESIDE_FILE}") if path.is_file() and not store_of(each).exists()]
    renamed = f" If it was renamed, its proof may be {left[0]}: give that by --manifest." if left else ""
    return f"{start}: `tfm-zoo record MODEL --vectors {source}` writes it.{renamed}"


def found_model(name: str, revision: str | None, token: str | None, source: str | Path, asked: bool) -> Path:
    try:
        folder = find(name, revision, token, needed=None).resolve()
    except FileNotFoundError as error:
        if asked:
            raise
        gone = f"There is no {name} any more" if Path(name).is_absolute() else str(error).rstrip(".")
        raise FileNotFoundError(f"{gone}: give the model that should write {source} with --model.") from error
    check_files(folder)
    return folder


def try_rows(
    saved: dict[str, Any],
    store: Store,
    suspects: Sequence[Suspect],
    encoder: Encoder,
    read_texts: ReadTexts | None,
    verdict: Verdict,
) -> None:
    """Says whether the texts and the vectors in changed blocks of rows fit, and names rows that do not. Of many rows,
    some are tried; if only the proof has texts, those that it keeps."""
    reading, are_kept = Reading.of(saved["reading"]), "kept" in saved["texts"]
    for suspect in suspects:
        every = [row for rows in suspect.blocks for row in rows]
        all_are_tried = are_kept or len(every) <= TRIED
        tried = every if all_are_tried else [every[place] for place in places(len(every), MANY)]
        texts = texts_at(tried, saved, store, read_texts)
        vectors = store.vectors([row for row in tried if row in texts])
        rows = sorted(vectors)
        if not rows:
            known = f"the proof keeps no text of the {len(every):,} changed rows of {suspect.part}: they were not tried"
            verdict.differences += [known] if are_kept else []
            continue
        stored, made = np.stack([vectors[row] for row in rows]), encoder.vectors([texts[row] for row in rows], reading)
        fit, bound = fit_of(stored, made), bound_of(str(stored.dtype), encoder.dtype, saved["agreement"], OTHER_ROWS)
        of = f" of {len(rows)} that were tried" if len(rows) < len(every) else ""
        if wrong := fit.worse(bound):
            distances = [f"cosine {fit.cosines[place]:.3f}, difference {fit.differences[place]:.1e}" for place in wrong]
            shown = [f"{rows[place]:,} ({one})" for place, one in zip(wrong[:5], distances, strict=False)]
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            one = "row" if len(wrong) == 1 else "rows"
            verdict.differences.append(f"the text and the vector do not fit in {one} {', '.join(shown)}{more}{of}")
        elif are_kept and of:
            fitting = f"text and vector fit in {len(rows)} of the {len(every):,} changed rows of {suspect.part}"
            known = f"{fitting}, whose texts the proof keeps ({fit}); the others were not tried"
            verdict.differences.append(known)
        else:
            tried_rows = f"{len(rows)} of its changed rows"
            verdict.differences.append(f"text and vector fit in {suspect.part}: {tried_rows} embedded again ({fit})")


class Trial:
    """The proof's rows beside what a model makes of their texts now.

    Args:
        saved: the proof.
        encoder: the model.
        texts: of these rows, by their places in the proof.
        verdict: takes what is found.
    """

    def __init__(self, saved: dict[str, Any], encoder: Encoder, texts: dict[int, str], verdict: Verdict):
        canaries, places = saved["canaries"], [*texts]
        self.saved, self.encoder, self.verdict, self.texts = saved, encoder, verdict, [*texts.values()]
        self.numbers = [canaries["rows"][place] for place in places]
        self.tokens = [canaries["tokens"][place] for place in places]
        self.stored, self.reading = unpacked(canaries)[places], Reading.of(saved["reading"])
        self.bound = bound_of(str(self.stored.dtype), encoder.dtype, saved["agreement"])

    def compare(self, other_class: str | None) -> str:
        """Compares model, settings, tokens and vectors, and where these differ, finds out why. Returns what is said if
        nothing differs, and else nothing. `other_class`: what was said of a model of another class."""
        verdict, known = self.verdict, len(self.verdict.differences)
        manifest, encoder = self.saved["model"], self.encoder
        changed = None if other_class else compare_model(manifest, encoder, verdict)
        files, made = Verdict(verdict.source), encoder.fixed_text()
        if not other_class:
            alike = comparisons.alike_in(manifest, made, encoder.folder)
            comparisons.note_files(comparisons.other_files(manifest, encoder.folder, files), files, alike)
        today = self.compare_settings()
        self.compare_tokens(made, with_rules=not files.ok)
        self.note_how_they_were_made()
        fit = self.fit(today)
        verdict.figures |= {"rows": len(self.texts), "cosine": fit.cosine, "difference": fit.difference}
        verdict.figures |= {"bound": self.bound, "bit_for_bit": fit.difference == 0}
        if wrong := fit.worse(self.bound):
            rows = row_numbers([self.numbers[place] for place in wrong])
            verdict.differences.append(f"{len(wrong)} of {len(self.texts)} vectors are others now ({fit}; {rows})")
            is_named = bool(other_class) or len(verdict.differences) > known + 1
            self.explain(today, changed, wrong[:SOME], is_named)
        is_other = other_class in verdict.differences or len(verdict.differences) > known
        (verdict.differences if is_other else verdict.warnings).extend(files.differences)
        verdict.warnings += files.warnings
        if is_other:
            here = f"computed in {encoder.dtype} and padded at the right"
            same = f"yet the vectors of these {len(self.texts)} rows, {here}, are the same ({fit})"
            verdict.differences += [] if wrong else [same]
            return ""
        said = "bit for bit" if fit.difference == 0 else str(fit)
        parts = verdict.figures["parts"]["as_recorded"]
        files_said = f", {parts} part{'s' * (parts > 1)} as recorded" if parts else ""
        return f"{len(self.texts)} rows embedded again ({said}){files_said}"

    def note_how_they_were_made(self) -> None:
        """Warns of vectors that were not made as the model's files say, and of those that were only near. Those that
        were not even near (earlier versions recorded such) differ."""
        if otherwise := made_otherwise(self.saved):
            self.verdict.warnings.append(otherwise)
        cosine = self.saved["agreement"].get("cosine", 1)
        if cosine < least_cosine(self.saved["computed"]):
            said = f"they did not fit when they were recorded: the least cosine was {cosine:.6f}"
            self.verdict.differences.append(said)
            return
        then, rounding = self.saved["agreement"]["difference"], bound_of(str(self.stored.dtype), self.encoder.dtype)
        if then > rounding and not self.saved["computed"].get("pack"):
            said = f"they were only near when they were recorded: {then:.1e} off ({rounding:g} is rounding)"
            self.verdict.warnings.append(said)

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
        comparisons.compare_searches(self.saved["model"], self.encoder.folder, self.verdict)
        return replace(self.reading, **{name: value for name, _, value in was.changes(says)})

    def compare_tokens(self, made: dict[str, Any], with_rules: bool) -> None:
        """Notes a tokenizer that makes something else of texts, of the proof's rows or of a fixed one (`made`); or,
        `with_rules`, one that could, since its vocabulary or its rules are others. (With the same files, only the
        library writes these otherwise.)"""
        saved = self.saved["model"].get("tokenizer") or {}
        now = map(digest_of_tokens, self.encoder.tokens(self.texts, self.reading)["input_ids"])
        pairs = zip(self.numbers, now, self.tokens, strict=True)
        if others := [number for number, digest, was in pairs if digest != was]:
            self.verdict.differences.append(f"the tokenizer makes something else of the texts in {row_numbers(others)}")
            self.verdict.differences += comparisons.changed_sides(saved, made)
        elif saved:
            comparisons.compare_tokenizers(saved, made, self.verdict, with_rules)

    def explain(self, today: Reading, changed: set[str] | None, wrong: Sequence[int], is_named: bool) -> None:
        """Finds out why vectors differ: by the settings that were recorded, by the layers, and by other settings.
        `changed`: the tensors that have changed; `None`: those of another class have other names. `wrong`: the places
        of some vectors that differ; `is_named`: whether a change of files has been named."""
        verdict = self.verdict
        if today != self.reading and self.fit(self.reading, wrong).difference <= self.bound:
            verdict.differences.append("with the settings that were recorded the vectors are the same")
            return
        is_explained = changed is None or (not changed and verdict.names_setting)
        if part := None if is_explained else first_part(self.saved["model"], self.encoder, changed):
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
