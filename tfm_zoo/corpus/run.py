"""A corpus on its way into a folder: which parts are left, who computes them, how far it is."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import transformers
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from datasets import Features
from tqdm.auto import tqdm

from .. import __version__
from ..data.splits import digest
from ..proof.proof_file import canary_rows
from .folder import ResultsFolder
from .proof import VECTORS, OtherVectorsError, PartNotes, seal
from .reader import CorpusReader
from .source import Corpus, Cursor, Shard

logger = logging.getLogger(__name__)

#: processes wait for each other while one reads the corpus for the first time, or is slower
PATIENCE = timedelta(days=30)


@dataclass
class CorpusRun:
    """The results of a corpus, written to a folder part by part.

    A part holds the results of so many rows of the corpus, whoever computes it: one process or many, today or after a
    crash. So all that a run has to know is which parts are there.

    Args:
        corpus: what is read.
        reader: reads it.
        output_dir: the folder.
        rows_per_part: rows of a part. What a process computes in vain if it is killed is less than one.
        keep_texts: whether the proof of vectors keeps the texts of its rows. `verify` takes them from the folder if it
            holds them, else from the proof, else from the corpus.
    """

    corpus: Corpus
    reader: CorpusReader
    output_dir: str | Path
    rows_per_part: int = 8192
    keep_texts: bool = False

    def __post_init__(self) -> None:
        if self.rows_per_part < 1:
            raise ValueError(f"rows_per_part must be at least 1, not {self.rows_per_part}")
        self.folder = ResultsFolder(self.output_dir)
        columns = {"id": pa.int64(), **self.reader.results.columns()}
        if taken := [name for name in self.corpus.keep if name in columns]:
            raise ValueError(f"keep_columns {taken[0]!r}: the results have a column of this name; rename it first")

    def __call__(self) -> None:
        """Computes what is not there yet. Under a launcher all processes call it, and share the work."""
        state = PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)
        with self.started(state) as left:
            progress = Progress(self, left, disable=not state.is_main_process)
            with state.split_between_processes(left) as mine, progress:
                for part in mine:
                    self.write(part)
                    progress.show()
                progress.wait()

    @contextmanager
    def started(self, state: PartialState) -> Iterator[list[int]]:
        """While it is open, this run alone may write to the folder: the numbers of the parts that are left.

        The corpus is read once before, for its size and digest, and every text is checked. All processes call it.

        Raises:
            ValueError: for a row that is not text; for a folder that holds the results of other texts, options or of
                another model. The message names it.
            FileExistsError: for a folder that another run writes to, or that holds something else.
        """
        with self.folder.locked() if state.is_main_process else nullcontext():
            settings = {**self.reader.settings, "rows_per_part": self.rows_per_part}
            settings |= {"text_column": self.corpus.column, "keep_columns": [*self.corpus.keep]}
            if state.is_main_process:
                settings |= {"model": self.folder.check_model(self.reader)}
                self.folder.check(settings)
            with state.split_between_processes([*range(len(self.corpus.shards))]) as shards:
                found = gather_object([self.corpus.survey(shard) for shard in shards])
            self.check_texts(found)
            if state.is_main_process:
                self.folder.describe(settings | self.data(found), self.notes(found))
            state.wait_for_everyone()
            yield broadcast_object_list([sorted({*range(len(self.ranges))} - self.folder.parts())])[0]
            if state.is_main_process and self.is_proven and len(self.folder.parts()) == len(self.ranges):
                self.seal()

    @property
    def is_proven(self) -> bool:
        """Whether the results are vectors of a model that can be loaded again."""
        return self.reader.results.task == "embeddings" and self.reader.source is not None

    def seal(self) -> None:
        """Writes the proof of the vectors. They are worth keeping without one, too."""

        def read(rows: range) -> list[str]:
            return self.cursor.read(rows)[self.corpus.column].to_pylist()

        try:
            seal(self.folder, self.about, self.reader, self.corpus.source, self.keep_texts, read)
        except OtherVectorsError:
            raise
        except Exception as error:
            logger.warning(f"{self.output_dir} has no proof, with which `tfm-zoo verify` could check it: {error!r}")

    def check_texts(self, shards: Sequence[Shard]) -> None:
        """Refuses a corpus without rows, or with a row that is not text."""
        before = 0
        for shard in shards:
            if shard.bad:
                row, value = shard.bad
                where = f"row {before + row:,} (counted from 0) of column {self.corpus.column!r}"
                raise ValueError(f"{where} is not text: {value}")
            before += shard.rows
        if not before:
            raise ValueError("the corpus has no row")

    def data(self, shards: Sequence[Shard]) -> dict[str, Any]:
        """By what the corpus is recognised."""
        return {"rows": sum(shard.rows for shard in shards), "texts": digest(shard.digest for shard in shards)}

    def notes(self, shards: Sequence[Shard]) -> dict[str, Any]:
        """What a process has to know to compute a part, and what a reader of the results wants to know."""
        kept = pa.unify_schemas([shard.schema for shard in shards if shard.rows], promote_options="permissive")
        columns = {"id": pa.int64(), **{name: kept.field(name).type for name in self.corpus.keep}}
        schema = pa.schema(columns | self.reader.results.columns())
        return {
            "source": self.reader.source,
            "versions": {"tfm_zoo": __version__, "torch": torch.__version__, "transformers": transformers.__version__},
            "columns": Features.from_arrow_schema(schema).to_dict(),
            "shards": [shard.rows for shard in shards],
        }

    @cached_property
    def about(self) -> dict[str, Any]:
        return self.folder.about()

    @cached_property
    def ranges(self) -> list[range]:
        """The rows of each part."""
        rows = range(self.about["rows"])
        return [rows[start : start + self.rows_per_part] for start in range(0, len(rows), self.rows_per_part)]

    @cached_property
    def cursor(self) -> Cursor:
        return Cursor(self.corpus, self.about["shards"])

    def write(self, part: int) -> None:
        """Computes a part and writes it, whole or not at all."""
        rows, schema = self.ranges[part], Features.from_dict(self.about["columns"]).arrow_schema
        with_texts = self.corpus.column in self.corpus.keep
        notes = PartNotes(canary_rows(self.about["rows"], self.about["size"]), with_texts) if self.is_proven else None
        with self.folder.part(part, schema, notes and notes.about) as writer:
            before, size = self.reader.tokens, self.reader.window
            for window in (rows[start : start + size] for start in range(0, len(rows), size)):
                table = self.cursor.read(window)
                texts = table[self.corpus.column].to_pylist()
                results = list(self.reader(texts))
                if notes:
                    notes.add(range(window.start, window.stop), texts, np.stack([each[VECTORS] for each in results]))
                columns = {"id": [*window], **{name: table[name] for name in self.corpus.keep}}
                columns |= {name: [each[name] for each in results] for name in self.reader.results.columns()}
                writer.write_table(pa.table(columns, schema=schema))
            writer.add_key_value_metadata({"tokens": str(self.reader.tokens - before)})


class Progress(tqdm):
    """A bar of the rows that are done by all processes, with tokens a second and an estimate of what is left.

    Args:
        run: has started.
        left: the parts that it has to compute.
    """

    def __init__(self, run: CorpusRun, left: Sequence[int], disable: bool):
        self.run, self.left, self.tokens = run, set(left), 0
        total, todo = run.about["rows"], sum(len(run.ranges[part]) for part in left)
        super().__init__(total=total, initial=total - todo, unit=" rows", disable=disable, smoothing=0)

    def show(self) -> None:
        """Looks which parts are done."""
        if self.disable:
            return
        done = self.left & self.run.folder.parts()
        self.left -= done
        self.tokens += sum(map(self.run.folder.tokens, done))
        self.set_postfix_str(f"{self.tokens / max(self.format_dict['elapsed'], 1e-9):,.0f} tokens/s", refresh=False)
        self.update(sum(len(self.run.ranges[part]) for part in done))

    def wait(self) -> None:
        """Shows the progress of other processes until all parts are there."""
        while self.left and not self.disable:
            self.show()
            time.sleep(0.5)
