"""Writes the proof of vectors: which model made them, from which rows, and how near what it makes now is to them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .encoder import Encoder
from .encoder_manifest import manifest_of
from .fit import INT4, NEAR, ROUNDED, Fit, bound_of, fit_of
from .manifest import written_by
from .poolings import POOLINGS
from .proof_file import CANARIES, canary_rows, packed, place_of, read_proof, write_proof
from .reading import Reading, made_otherwise, named
from .stores import Store, unfinished
from .trials import nearest
from .vector_digests import Pieces, Rows, digest_of_text, digest_of_tokens

#: rows that are looked through for texts and vectors in another order, and texts whose vectors are looked for
MOST, TRIED = 100_000, 12
SLIGHT = 1e-6  # a difference of cosines that is rounding
#: reads the texts of some rows from where a proof says they are: see `tfm_zoo.corpus.source.texts_again`
ReadTexts = Callable[[dict[str, Any], Sequence[int]], dict[int, str]]

#: the digest of all texts of such a place, or `None` to leave them out: see `tfm_zoo.corpus.source.digest_of_texts`
DigestTexts = Callable[[dict[str, Any]], str | None]


class Recorded(NamedTuple):
    """A proof that was written."""

    path: Path
    rows: int  # those that were embedded again
    total: int
    found: str  # what was found by trying, and is not as the model's files say
    fit: Fit  # how near the model comes
    bound: float  # the difference up to which vectors of this type are the same
    warning: str | None  # that the files say something else

    def __str__(self) -> str:
        tried = "the row" if self.total == 1 else f"{self.rows:,} of {self.total:,} rows"
        tried += f" embedded again ({self.fit})"
        by = f" with {self.found}" if self.found else ""
        warning = f" (warning: {self.warning})" if self.warning else ""
        if self.fit.difference <= self.bound:
            return f"the model writes these vectors{by}: {tried}{warning}"
        if same := self.rows - len(self.fit.worse(self.bound)):  # (packed weights change all rows)
            tried += f"; {same:,} of these are the same, so that the others may have been made otherwise"
        return (
            f"the model writes vectors near these{by}: {tried}; {self.bound:g} would be rounding. They may come from "
            "packed weights, another type, or a model that was changed a little: verify will allow this difference"
            f"{warning}"
        )


def record_vectors(
    model: str,
    vectors: str | Path,
    *,
    vector_column: str | None = None,
    text_column: str | None = None,
    texts: dict[str, Any] | None = None,
    read_texts: ReadTexts | None = None,
    prompt: str | None = None,
    max_length: int | None = None,
    keep_texts: bool = False,
    rows: int = CANARIES,
    output: str | Path | None = None,
    revision: str | None = None,
    token: str | None = None,
    trust_remote_code: bool = False,
) -> Recorded:
    """Writes the proof of vectors that any program has made, with which [`verify_vectors`] tells later whether the
    model still writes them.

    It embeds some rows again, and says whether this model makes these vectors. Where its files do not say how (pooling,
    length 1, size, prompt, truncation, lower case), that is found by trying.

    Args:
        model: a folder or a Hub id.
        vectors: a `.parquet` file, a folder of such, or a `.npy` file.
        vector_column: of Parquet; by default `embedding`.
        text_column: of Parquet; by default `text`.
        texts: where the texts are, if they are not in the file; `read_texts` reads them from there.
        prompt: a text that was put before each, if the model's files do not name it.
        max_length: tokens to which texts were cut, if the model's files say another number.
        keep_texts: whether the proof keeps the texts of its rows, for a file that does not hold them. By default they
            are read again from where `texts` says.
        rows: how many rows are kept in the proof.
        output: the file to write; by default `_proof.json` in the folder, or `FILE.proof.json` beside the file.
        revision, token: of a model on the Hub.
        trust_remote_code: run the model's own code.

    Raises:
        FileNotFoundError: if there is no such model or file.
        ValueError: for a column that is not there, for rows without a text or a vector, and for vectors that this model
            does not write. The message names the value.
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1, not {rows}")
    if said := unfinished(Path(vectors)):
        raise ValueError(f"{said}.")
    store = Store(vectors, vector_column, None if texts else text_column)
    if not texts and store.text_column is None:
        where = "an array holds numbers alone" if store.is_array else f"the columns are {', '.join(store.columns)}"
        advice = "name their column (text_column_name), or give the file that holds them (texts)"
        raise ValueError(f"{vectors} has no texts ({where}): {advice}.")
    encoder = Encoder.load(model, revision, token, trust_remote_code=trust_remote_code)
    parts = {part.name: described_part(store, part, with_texts=not texts) for part in store.parts}
    total = sum(part["rows"] for part in parts.values())
    if total == 0:
        raise ValueError(f"{vectors} has no row.")
    first = next(iter(store.vectors([0]).values()))
    chosen = canary_rows(total, len(first), rows)
    stored = np.stack([*store.vectors(chosen).values()])
    read = read_texts(texts, [*chosen, total]) if texts else store.texts(chosen)
    if total in read or not all(row in read for row in chosen):
        found = counted(all_texts(read_texts, texts))
        raise ValueError(f"{vectors} has {total:,} vectors, and there are {found} texts: give one for each vector.")
    check_texts(read, chosen)
    canaries = [read[row] for row in chosen]
    says = said_by_files(encoder, prompt, max_length)
    try:
        reading, fit = reading_of(encoder, says, chosen, canaries, stored)
    except ValueError as error:
        raise (in_another_order(encoder, says, store, chosen, canaries, stored) or error) from None
    proof = {
        "texts": ({"kept": "texts"} if keep_texts else texts) if texts else {"column": store.text_column},
        "vector_column": None if store.is_array else store.vector_column,
        "parts": parts,
        **about_canaries(encoder, chosen, canaries, stored, reading, fit, keep_texts),
    }
    path = Path(output) if output else place_of(store.path)
    computed = {"dtype": "float32", "pack": packing_in(path)}
    proof = described_proof(encoder, model, revision, reading, computed) | proof
    write_proof(proof, path)
    bound = bound_of(str(stored.dtype), encoder.dtype)
    return Recorded(path, len(chosen), total, named(says, reading), fit, bound, made_otherwise(proof))


def packing_in(path: Path) -> str | None:
    """The type of packed weights that made the vectors, by the proof that is replaced, if there is one."""
    with suppress(FileNotFoundError, ValueError):
        return read_proof(path)["computed"].get("pack")
    return None


def check_texts(read: Mapping[int, Any], rows: Sequence[int]) -> None:
    """Refuses rows that were read and are not texts."""
    if (bad := next((row for row in rows if row in read and not isinstance(read[row], str)), None)) is not None:
        raise ValueError(f"row {bad} (counted from 0) of the texts is not a text: {read[bad]!r}")


def all_texts(read_texts: ReadTexts, place: dict[str, Any]) -> list[str]:
    """The texts of a place, up to so many that this takes a moment."""
    return [*read_texts({**place, "shards": None}, range(MOST)).values()]


def counted(texts: Sequence[str]) -> str:
    return f"{len(texts):,}" if len(texts) < MOST else f"{MOST:,} or more"


def in_another_order(
    encoder: Encoder, says: Reading, store: Store, rows: Sequence[int], texts: Sequence[str], stored: np.ndarray
) -> ValueError | None:
    """The error for texts whose vectors stand in other rows of the store, among the first of these. `stored`: the
    vectors that stand in their own rows."""
    made = encoder.vectors(texts[:TRIED], replace(says, pooling=says.pooling or next(iter(POOLINGS))))
    best, places, first = np.full(len(made), -1.0), np.zeros(len(made), dtype=int), 0
    for _, vectors in (table for part in store.parts for table in store.tables(part)):
        if first >= MOST or vectors.shape[1] != made.shape[1]:
            break
        lengths = np.linalg.norm(made, axis=1)[:, None] * np.linalg.norm(vectors, axis=1)
        cosines = made @ vectors.T.astype(np.float32) / np.where(lengths == 0, 1, lengths)
        nearer = cosines.max(1) > best
        best, places = np.maximum(best, cosines.max(1)), np.where(nearer, first + cosines.argmax(1), places)
        first += len(vectors)
    is_away = fit_of(stored[: len(made)], made).cosines < ROUNDED
    moved = [(row, place) for row, place, away in zip(rows, places, is_away, strict=False) if away]
    if not moved or best.min() < ROUNDED:
        return None
    example = "the vector of the text in row {:,} is in row {:,}".format(*moved[0])
    said = f"{encoder.source} writes these vectors, and the texts are in another order: {example}"
    return ValueError(f"{said}. Give them in the order of the vectors.")


def said_by_files(encoder: Encoder, prompt: str | None, max_length: int | None) -> Reading:
    """What the model's files say, but for a prompt and a length that the user gives."""
    given = {"prompt": prompt, "max_length": max_length}
    return replace(encoder.files_say()[0], **{name: value for name, value in given.items() if value is not None})


def reading_of(
    encoder: Encoder, says: Reading, rows: Sequence[int], texts: Sequence[str], stored: np.ndarray
) -> tuple[Reading, Fit]:
    """How the model gives the vectors of a store, `stored` in these rows: as its files say, or as is found by trying.

    Raises:
        ValueError: if it does not give them.
    """
    prompts = encoder.files_say()[1]
    bound = bound_of(str(stored.dtype), encoder.dtype)
    reading = replace(says, pooling=says.pooling or next(iter(POOLINGS)))
    fit = fit_of(stored, encoder.vectors(texts, reading))
    if fit.difference <= bound and says.pooling:
        return reading, fit
    nearer, _ = nearest(encoder, texts, stored, reading, [*prompts.values()], bound)
    better = fit_of(stored, encoder.vectors(texts, nearer))
    is_nearer = not fit.is_rounded or better.cosine > fit.cosine + SLIGHT
    if better.difference <= bound or (better.is_rounded and is_nearer):
        return nearer, better
    if fit.is_rounded:
        return reading, fit
    size = encoder.vectors(texts[:1], reading).shape[1]
    if size != stored.shape[1] and better.cosine <= ROUNDED:
        said = f"they have {stored.shape[1]} numbers, not {size}"
        said += ", and are not the first of these either" * (stored.shape[1] < size)
        raise ValueError(f"{encoder.source} does not write these vectors: {said}")
    if (alike := fit if fit.cosine > ROUNDED else better).cosine > ROUNDED:
        differ = np.ptp(alike.lengths) > 0.01 * alike.lengths.mean()
        said = "one points the same way, and is" if differ else "all point the same way, and are"
        said += f" {alike.lengths[alike.lengthened]:.3g} times as long"
        raise ValueError(f"{encoder.source} does not write these vectors: {said}")
    hint = named(says, nearer)
    is_near = better.cosines.mean() > max(NEAR, fit.cosines.mean() + 0.01)
    tried = f"; the nearest that was tried is {hint}: {better}" if hint and is_near else ""
    others = np.flatnonzero(fit.cosines < ROUNDED)
    if len(others) and (len(others) < len(rows) or fit.cosines.mean() > NEAR):
        first = f"{len(others)} of {len(rows)} rows have a cosine below {ROUNDED}, row {rows[others[0]]:,} is the first"
        tried += f"; {first}. Do their texts belong there, and were long texts cut to another length (max_length)?"
        is_none_same = len(fit.worse(bound)) == len(rows)
        tried += " Or was a prompt put before all texts (prompt)?" if is_none_same else ""
        tried += " Those of int4 weights are not taken: they come no nearer than this." * (
            is_none_same and fit.cosine > INT4
        )
    raise ValueError(f"{encoder.source} does not write these vectors: {fit}{tried}")


def described_part(store: Store, part: Path, with_texts: bool) -> dict[str, Any]:
    """The digests of a part that something else wrote, which is read for them once."""
    pieces = Pieces()
    with part.open("rb") as file:
        while data := file.read(1 << 20):
            pieces.update(data)
    return pieces.about() | described_rows(store, part, with_texts)


def described_rows(store: Store, part: Path, with_texts: bool, most: int | None = None) -> dict[str, Any]:
    """What a proof says of the rows of a part, of the first ones if it has more than `most`."""
    rows = Rows(with_texts)
    for texts, vectors in store.tables(part, texts=with_texts):
        left = None if most is None else most - rows.count
        texts, vectors = texts and texts[:left], vectors[:left]
        if (wrong := np.isnan(vectors).any(1)).any():
            raise ValueError(f"{part}, row {rows.count + int(wrong.argmax()):,} holds no numbers (NaN).")
        rows.add(texts, vectors)
    return rows.about()


def described_proof(
    encoder: Encoder, source: str, revision: str | None, reading: Reading, computed: dict[str, Any]
) -> dict[str, Any]:
    """What a proof says of the model, and of how it was run."""
    return {
        **written_by(),
        "source": str(Path(source).resolve() if Path(source).is_dir() else source),
        "revision": revision,
        "reading": asdict(reading),
        "files_say": asdict(encoder.files_say()[0]),
        "computed": computed,
        "model": manifest_of(encoder, reading.max_length),
    }


def about_canaries(
    encoder: Encoder,
    rows: Sequence[int],
    texts: Sequence[str],
    stored: np.ndarray,
    reading: Reading,
    fit: Fit,
    keep_texts: bool,
) -> dict[str, Any]:
    """The rows that are tried later, and how near the model comes to them now."""
    tokens = encoder.tokens(texts, reading)["input_ids"]
    canaries = {
        "rows": [*rows],
        "texts": [digest_of_text(text) for text in texts],
        "tokens": [digest_of_tokens(ids) for ids in tokens],
        **({"kept": [*texts]} if keep_texts else {}),
        **packed(stored),
    }
    agreement = {"cosine": fit.cosine, "difference": min(fit.difference, 1e9)}
    return {"canaries": canaries, "agreement": agreement}
