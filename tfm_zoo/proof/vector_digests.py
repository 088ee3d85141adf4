"""Digests of vectors on a disk: of pieces of a file, and of blocks of rows, by which a changed row is found."""

import base64
import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: bytes of a piece of a file, rows of a block, and bytes that are kept of the digest of a block
PIECE, BLOCK, KEPT = 1 << 26, 64, 4


class Pieces:
    """The SHA-256 of each piece of what is written, as it is written."""

    def __init__(self) -> None:
        self.size, self.done, self.piece = 0, [], hashlib.sha256()

    def update(self, data: bytes | memoryview) -> None:
        data = memoryview(data).cast("B")
        while len(data):
            part = data[: PIECE - self.size % PIECE]
            self.piece.update(part)
            self.size, data = self.size + len(part), data[len(part) :]
            if self.size % PIECE == 0:
                self.done.append(self.piece.hexdigest())
                self.piece = hashlib.sha256()

    def digests(self) -> list[str]:
        return [*self.done, *([self.piece.hexdigest()] if self.size % PIECE else [])]

    def about(self) -> dict[str, Any]:
        """What a proof says of the file."""
        return {"bytes": self.size, "pieces": self.digests()}


class DigestedFile(io.BufferedIOBase):
    """A file to write to, whose pieces are digested meanwhile: it is never read for that. (It is not an
    `io.BufferedWriter`, past whose `write` numpy would write.)"""

    def __init__(self, path: Path):
        self.file, self.pieces = path.open("wb"), Pieces()

    def write(self, data: bytes | memoryview) -> int:
        self.pieces.update(data)
        return self.file.write(data)

    def tell(self) -> int:
        return self.file.tell()

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        self.file.close()
        super().close()


def digest_of_piece(path: Path, index: int) -> str:
    """The SHA-256 of a piece of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(index * PIECE)
        left = PIECE
        while left and (data := file.read(min(left, 1 << 20))):
            digest.update(data)
            left -= len(data)
    return digest.hexdigest()


class Blocks:
    """The digests of blocks of rows, which come in any portions."""

    def __init__(self) -> None:
        self.digests, self.block, self.filled = bytearray(), hashlib.sha256(), 0

    def add(self, rows: int, data: Callable[[int, int], bytes]) -> None:
        """Adds so many rows; `data` gives the bytes of those from one place to another."""
        place = 0
        while place < rows:
            stop = min(rows, place + BLOCK - self.filled)
            self.block.update(data(place, stop))
            self.filled, place = self.filled + stop - place, stop
            if self.filled == BLOCK:
                self.flush()

    def flush(self) -> None:
        if self.filled:
            self.digests += self.block.digest()[:KEPT]
            self.block, self.filled = hashlib.sha256(), 0

    def text(self) -> str:
        """All digests as a text."""
        self.flush()
        return base64.b64encode(self.digests).decode()


class Rows:
    """What a proof says of the rows of a part, noted as they come: how many there are, and the digests of their blocks.
    `with_texts`: whether the part holds texts beside the vectors."""

    def __init__(self, with_texts: bool):
        self.count, self.vectors, self.texts = 0, Blocks(), Blocks() if with_texts else None

    def add(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        self.count += len(vectors)
        self.vectors.add(len(vectors), lambda start, stop: np.ascontiguousarray(vectors[start:stop]).tobytes())
        if self.texts:
            self.texts.add(
                len(texts), lambda start, stop: b"".join(text.encode() + b"\0" for text in texts[start:stop])
            )

    def about(self) -> dict[str, Any]:
        about = {"rows": self.count, "vectors": self.vectors.text()}
        return about | ({"texts": self.texts.text()} if self.texts else {})


def differing(before: str, now: str, rows: int) -> Iterator[range]:
    """The rows of each block that the digests of two times differ in; `rows`: how many there are now."""
    old, new = base64.b64decode(before), base64.b64decode(now)
    for index in range(-(-min(len(old), len(new)) // KEPT)):
        place = slice(index * KEPT, (index + 1) * KEPT)
        if old[place] != new[place]:
            yield range(index * BLOCK, min((index + 1) * BLOCK, rows))


def digest_of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_tokens(ids: Sequence[int]) -> str:
    """What tells the ids of a text from others."""
    return hashlib.sha256(repr([*ids]).encode()).hexdigest()[:16]
