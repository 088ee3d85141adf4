"""The folder that results are written to: Parquet parts, each whole or absent, and a file that says what they are."""

import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..proof.contents import read_json
from ..proof.proof_file import IN_FOLDER
from ..proof.vector_digests import DigestedFile
from ..utils.locking import atomic_file, hold, write_json
from .reader import CorpusReader

#: libraries that read folders of Parquet pass over names that begin with an underscore or a dot
ABOUT, LOCK = "_corpus.json", ".lock"
PART, NOTES = "part-{:06}.parquet", ".{}.notes"


class ResultsFolder:
    """A folder of results.

    Args:
        path: the folder, which may not exist yet.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While it is open, no other run may write here. What processes that were killed left unfinished is deleted: of
        an earlier run, and in the end of this one, whose parts others have then written."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = hold(self.path, self.path / LOCK)
        try:
            self.remove_unfinished()
            yield
            self.remove_unfinished()
        finally:
            if not self.is_described:  # the run was refused, and leaves nothing
                (self.path / LOCK).unlink(missing_ok=True)  # while it is held: else another run might hold it by now
                with suppress(OSError):  # if it holds files of somebody else
                    self.path.rmdir()
            lock.release()

    def remove_unfinished(self) -> None:
        for leftover in self.path.glob(".*.unfinished"):  # (earlier versions left files)
            shutil.rmtree(leftover, ignore_errors=True) if leftover.is_dir() else leftover.unlink(missing_ok=True)

    @property
    def is_described(self) -> bool:
        """Whether `describe` has written what the results are."""
        return (self.path / ABOUT).is_file()

    def about(self) -> dict[str, Any]:
        """What `describe` has written."""
        try:
            return json.loads((self.path / ABOUT).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            where = f"output_dir {str(self.path)!r}"
            raise ValueError(f"{where} is not seen by all processes: give a folder that all machines share") from error

    @property
    def source(self) -> str:
        """The model that has made the results: its folder or Hub id."""
        name, proof = self.about()["source"], self.path / IN_FOLDER
        if Path(name).is_dir() or not proof.is_file():
            return name
        return read_json(proof)["source"]  # earlier versions wrote the whole path there alone

    def check_model(self, reader: CorpusReader) -> str | None:
        """The digest of a reader's model, as the folder has it.

        Raises:
            ValueError: if the folder has that of another model. The message says how to find out what differs.
        """
        known = self.about()["model"] if self.is_described else reader.digests[0]
        if known not in reader.digests:
            others = "other weights, another tokenizer or other settings"
            command = shlex.join(["tfm-zoo", "verify", str(self.path), "--model", str(reader.source)])
            named = f": `{command}` names what differs" if (self.path / IN_FOLDER).is_file() else ""
            raise ValueError(
                f"{reader.source} has {others} than the model of {self.path}{named}; give that model, or another folder"
            )
        return known

    def check(self, identity: dict[str, Any]) -> None:
        """Refuses a folder with anything else than the results of this run.

        Args:
            identity: what has to be the same if a run goes on, by names for the message.
        """
        if not self.is_described:
            if others := [path.name for path in self.path.iterdir() if not path.name.startswith(".")]:
                raise FileExistsError(f"output_dir {str(self.path)!r} holds {others[0]}: give an empty folder")
            return
        before = self.about()
        for name, value in identity.items():
            if before.get(name) != value:
                holds = f"output_dir {str(self.path)!r} holds results with {name} {before.get(name)!r}"
                raise ValueError(f"{holds}, and this run has {value!r}: give another folder")

    def describe(self, identity: dict[str, Any], notes: dict[str, Any]) -> None:
        """Checks the folder or, if it is new, writes what the results are: beside the identity, `notes`, which may
        differ when the run goes on."""
        self.check(identity)
        if self.is_described:
            return
        write_json(self.path / ABOUT, identity | notes, ensure_ascii=False)

    def parts(self) -> set[int]:
        """The numbers of the parts that are there."""
        return {int(path.stem.removeprefix("part-")) for path in self.path.glob("part-*.parquet")}

    def tokens(self, part: int) -> int:
        """The tokens of the texts of a part."""
        return int(pq.read_metadata(self.path / PART.format(part)).metadata[b"tokens"])

    @contextmanager
    def part(
        self, number: int, schema: pa.Schema, about: Callable[[DigestedFile], dict[str, Any]] | None = None
    ) -> Iterator[pq.ParquetWriter]:
        """A part to write to, which is there if this ends without an error, and else is not. `about`: gives its notes
        for the proof, which lie beside it until the proof is written."""
        path = self.path / PART.format(number)
        with atomic_file(path) as unfinished:
            with DigestedFile(unfinished) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
                yield writer
            if about:
                with atomic_file(self.path / NOTES.format(path.name)) as notes:
                    notes.write_text(json.dumps(about(file)), encoding="utf-8")

    def notes(self) -> dict[str, dict[str, Any]]:
        """What was noted of parts while they were written, by the names of the parts."""
        found = {}
        for number in self.parts():
            name = PART.format(number)
            with suppress(FileNotFoundError):
                found[name] = json.loads((self.path / NOTES.format(name)).read_text(encoding="utf-8"))
        return found

    def remove_notes(self) -> None:
        for path in self.path.glob(NOTES.format("*")):
            path.unlink(missing_ok=True)
