"""A tiny encoder in a folder, and texts of many lengths."""

from pathlib import Path

import pytest

from tfm_zoo.corpus.folder import LOCK
from tfm_zoo.corpus.run import CorpusRun
from tfm_zoo.corpus.source import Corpus

from .. import encoders


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return ["", *encoders.texts(99, 30)]


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    encoders.save(folder, files=False, noise=0)
    return folder


def contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name != LOCK}


def run(reader, files, out, keep=("place",), rows_per_part=30) -> dict[str, bytes]:
    CorpusRun(Corpus.open(data_files=files, keep=keep), reader, out, rows_per_part)()
    return contents(out)
