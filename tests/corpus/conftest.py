"""A tiny encoder in a folder, and texts of many lengths."""

from pathlib import Path

import pytest

from tfm_zoo.corpus.folder import LOCK

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
