"""In which order the texts of a stream are read, which reader gets each, and from where a reader goes on.

The shards of a source are divided into parts, in an order that is drawn anew for each pass. A part is read from its
beginning to its end, pass after pass, by one reader or by several, which take its texts in turn. The state of
`datasets` finds the rows of a shard again; a [`Position`] also knows the document, the reader and the pass.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, tee
from operator import attrgetter
from typing import Any

from tfm_zoo.training.streaming.texts import CHARACTERS, TextSource

#: the state of a shard is taken after every so many texts; a reader that starts in between reads some of them again
TEXTS_PER_STATE = 100


@dataclass(frozen=True)
class Position:
    """Where a text stands in its part. That of a reader's chunk is that of its first text."""

    epoch: int = 0  # how many passes come before it
    chunk: int = 0  # how many chunks of the reader come before it in this pass
    shard: int = 0  # how many shards of the part come before it in this pass
    state: dict[str, Any] | None = None  # of the shard, as last taken; None: at the first row
    pieces: int = 0  # how many pieces of texts lie between that state and this position
    text: int = 0  # how many texts of the part come before it in this pass
    examples: int = 0  # how many examples the reader gave before the chunk, in all passes


Found = tuple[Position, str]  # a text, and where it was found
order_in_part = attrgetter("epoch", "text")


def read_part(source: TextSource, seed: int, start: Position, part: int = 0, parts: int = 1) -> Iterator[Found]:
    """The texts of a part from a position on, pass after pass. Blank texts are left out."""
    passes_without_text = 0
    while passes_without_text < 100:  # a part may have no text in a pass, but not for ever
        passes_without_text += 1
        for found in read_pass(source, seed, start, part, parts):
            passes_without_text = 0
            yield found
        start = Position(start.epoch + 1)
    raise ValueError("there is no text to train on")


def read_pass(source: TextSource, seed: int, start: Position, part: int, parts: int) -> Iterator[Found]:
    """The rest of a pass over a part. A text that is as long as two chunks or more is read in pieces that fill one."""
    state, skipped, number = start.state, start.pieces, start.text
    for index, shard in enumerate(source.shards([seed, start.epoch], start.shard, part, parts), start.shard):
        if state is not None:
            shard.load_state_dict(state)
        pieces = 0
        # In batches of one: read row by row in a worker of a `DataLoader`, a data set skips rows for other workers.
        rows = ({name: values[0] for name, values in batch.items()} for batch in shard.iter(batch_size=1))
        for text in source.texts(rows):
            begins = range(0, max(1, len(text) - CHARACTERS + 1), CHARACTERS)
            for begin, end in pairwise([*begins, len(text)]):
                piece = text[begin:end]
                if pieces >= skipped and piece.strip():
                    yield Position(start.epoch, 0, index, state, pieces, number), piece
                    number += 1
                pieces += 1
            if pieces >= TEXTS_PER_STATE:
                state, pieces, skipped = shard.state_dict(), 0, 0
        state, skipped = None, 0


def share_part(
    source: TextSource, seed: int, starts: Mapping[int, Position], part: int, parts: int, readers: int
) -> dict[int, Iterator[Found]]:
    """The texts of readers of one part, for each from its start on. `readers` are all, and reader `i` reads part `i`
    modulo `parts`.

    The part is read once for all of them: what one of them has read and another has not is kept in memory.
    """

    def owner(position: Position) -> int:
        return (position.text + position.epoch) % (readers // parts) * parts + part

    def texts_of(reader: int, found: Iterator[Found]) -> Iterator[Found]:
        begin = order_in_part(starts[reader])
        return (each for each in found if owner(each[0]) == reader and order_in_part(each[0]) >= begin)

    first = min(starts.values(), key=order_in_part)
    found = (each for each in read_part(source, seed, first, part, parts) if owner(each[0]) in starts)
    return {reader: texts_of(reader, copy) for reader, copy in zip(starts, tee(found, len(starts)), strict=True)}
