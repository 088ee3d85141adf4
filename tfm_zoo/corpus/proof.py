"""The proof of a folder of vectors: noted while its parts are written, and put together once all are there."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..proof.encoder import Encoder
from ..proof.fit import fit_of, least_cosine
from ..proof.proof_file import canary_rows, place_of, read_proof, write_proof
from ..proof.reading import Reading
from ..proof.stores import Store
from ..proof.vector_digests import DigestedFile, Rows
from ..proof.vector_recording import about_canaries, described_part, described_proof
from .folder import ResultsFolder
from .reader import CorpusReader

VECTORS = "embedding"


class OtherVectorsError(ValueError):
    """Some vectors of a folder are not those that its model gives."""


class PartNotes:
    """What a proof says of a part, noted as the part is written.

    Args:
        canaries: the rows of the whole folder whose vectors the proof keeps.
        with_texts: whether the part holds the texts, too.
    """

    def __init__(self, canaries: Sequence[int], with_texts: bool):
        self.waiting, self.kept, self.rows = {*canaries}, {}, Rows(with_texts)

    def add(self, rows: range, texts: Sequence[str], vectors: np.ndarray) -> None:
        """Notes rows that are about to be written."""
        self.rows.add(texts, vectors)
        for row in self.waiting & {*rows}:
            place = row - rows.start
            self.kept[row] = texts[place], vectors[place].tolist()

    def about(self, file: DigestedFile) -> dict[str, Any]:
        """All of it, once the part has been written to a file."""
        return file.pieces.about() | self.rows.about() | {"canaries": self.kept}


def seal(
    folder: ResultsFolder,
    about: dict[str, Any],
    reader: CorpusReader,
    source: dict[str, Any],
    keep_texts: bool,
    read: Callable[[range], list[str]],
) -> None:
    """Writes the proof of a folder whose parts are all there, and deletes their notes. It embeds some rows again, by
    the model's own class, and notes how near these come. Raises [`OtherVectorsError`] if they do not.

    Args:
        about: what `_corpus.json` says.
        reader: the `CorpusReader` that has made the vectors.
        source: the arguments of `Corpus.open`.
        keep_texts: whether the proof keeps the texts of its rows.
        read: gives the texts of a range of rows; it is asked for parts without notes, which earlier versions wrote.
    """
    path, notes = place_of(folder.path), folder.notes()
    if path.is_file() and not notes:
        return
    store = Store(folder.path, VECTORS)
    with_texts = about["text_column"] in about["keep_columns"]
    before = read_proof(path)["parts"] if path.is_file() else {}
    store.text_column = about["text_column"] if with_texts else None
    size, parts, kept = about["size"], {}, {}
    first, canaries = 0, canary_rows(about["rows"], size)
    for part in store.parts:
        noted = notes.get(part.name)
        rows = range(first, first + (noted["rows"] if noted else store.rows_of(part)))
        chosen = [row for row in canaries if row in rows]
        if noted:
            kept |= {int(row): tuple(values) for row, values in noted.pop("canaries").items()}
        else:
            noted = before.get(part.name) or described_part(store, part, with_texts)
            vectors = store.vectors(chosen)
            kept |= {row: (read(range(row, row + 1))[0], vectors[row].tolist()) for row in chosen}
        parts[part.name], first = noted, rows.stop
    computed = {name: reader.loaded.get(name) for name in ("dtype", "pack", "compile", "device")}
    encoder = Encoder.load(reader.source, dtype=computed["dtype"], **reader.loading)
    reading = Reading.of(about).cut(encoder.longest)
    texts = [kept[row][0] for row in canaries]
    stored = np.array([kept[row][1] for row in canaries], dtype=about["embedding_dtype"])
    fit = fit_of(stored, encoder.vectors(texts, reading))
    if others := [row for row, cosine in zip(canaries, fit.cosines, strict=True) if cosine < least_cosine(computed)]:
        raise OtherVectorsError(
            f"{folder.path} has vectors that {reader.source} does not give: {len(others)} of {len(canaries)} rows that "
            f"were embedded again, row {others[0]:,} is the first ({fit}). Was its tokenizer changed meanwhile? Give "
            "another folder."
        )
    place = {"column": about["text_column"]}
    if not with_texts:
        place = {"kept": "here"} if keep_texts else {"corpus": with_whole_paths(source), "shards": about["shards"]}
    proof = described_proof(encoder, reader.source, reader.loading.get("revision"), reading, computed)
    proof |= {"texts": place, "vector_column": VECTORS, "parts": parts}
    write_proof(proof | about_canaries(encoder, canaries, texts, stored, reading, fit, keep_texts), path)
    folder.remove_notes()


def with_whole_paths(source: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `Corpus.open`, by which files and folders are found from anywhere."""
    name, files = source.get("dataset_name"), source.get("data_files")
    whole = {"data_files": [*map(os.path.abspath, files)]} if files else {}
    return source | whole | ({"dataset_name": os.path.abspath(name)} if name and os.path.isdir(name) else {})
