"""The fixtures of the recipes' tests, loops on tensors, and the texts of a stream."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest
from datasets import Dataset, DatasetDict

from tfm_zoo.training.loop import Loop
from tfm_zoo.training.streaming.streams import Stream
from tfm_zoo.training.streaming.texts import TextSource

from ..recipes.conftest import checkpoint, frozen, one_thread_and_own_cache, own, quick_runs, rows
from .tensors import loop_on_tensors

__all__ = ["checkpoint", "frozen", "one_thread_and_own_cache", "own", "quick_runs", "rows"]

TEXTS = [f"text {i} " + "word " * (i % 7) for i in range(100)]
#: what writes a data set into a file, by the file's kind
WRITERS = {
    "csv": lambda data, path: data.to_csv(path),
    "tsv": lambda data, path: data.to_csv(path, sep="\t"),
    "json": lambda data, path: data.to_json(path, lines=False),
    "jsonl": lambda data, path: data.to_json(path),
    "parquet": lambda data, path: data.to_parquet(path),
}


def read(source: TextSource) -> list[str]:
    """The texts of a pass, in order of the alphabet; a first line break is a blank, as shards of lines have one."""
    stream = Stream(source, lambda texts, rng: texts, seed=0)
    return sorted(text.replace("\n", " ", 1) for text in stream.first_pass())


def saved(folder: Path, **splits: Dataset) -> str:
    """A data set on disk: its name."""
    DatasetDict(splits).save_to_disk(folder)
    return str(folder)


def sizes(data) -> dict[str, int]:
    return {name: len(split) for name, split in data.splits.items()}


@pytest.fixture
def config(tmp_path):
    """Writes options as YAML; returns the argument that names the file."""

    def write(text: str) -> str:
        (tmp_path / "config.yaml").write_text(text)
        return f"--config={tmp_path / 'config.yaml'}"

    return write


@pytest.fixture
def loop(tmp_path) -> Callable[..., Loop]:
    """Makes a loop on tensors with any options, by default in a folder of its own."""
    return lambda *model, **options: loop_on_tensors(*model, **{"output_dir": mkdtemp(dir=tmp_path)} | options)


@pytest.fixture
def trained(loop) -> Callable[..., Loop]:
    """Makes a loop on tensors and trains it, in tenths of a second; figures, card and picture come of `train(loop)`."""

    def trained(*model, **options) -> Loop:
        made = loop(*model, **options)
        made.train()
        return made

    return trained


@pytest.fixture(scope="session")
def shards(tmp_path_factory) -> Path:
    """The texts in three files of each kind: two lines a document in text files, with an empty line behind each."""
    folder = tmp_path_factory.mktemp("shards")
    for shard, texts in enumerate([TEXTS[:50], TEXTS[50:85], TEXTS[85:]]):
        (folder / f"{shard}.txt").write_text("".join(text.replace(" ", "\n", 1) + "\n\n" for text in texts))
        (folder / f"{shard}.jsonl").write_text("".join(json.dumps({"n": 1, "text": text}) + "\n" for text in texts))
        Dataset.from_dict({"text": texts}).to_parquet(folder / f"{shard}.parquet")
    return folder
