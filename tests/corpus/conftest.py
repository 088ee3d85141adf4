"""A tiny encoder in a folder, and texts of many lengths."""

import random
from pathlib import Path

import pytest

from ..tiny_corpus import save_tiny_encoder

WORDS = ("a", "warm", "film", "dull", "from", "start", "to", "end", "b2", "zebra")


@pytest.fixture(scope="session")
def texts() -> list[str]:
    rng = random.Random(0)
    return ["", *(" ".join(rng.choices(WORDS, k=rng.randint(1, 30))) for _ in range(99))]


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    save_tiny_encoder(folder)
    return folder
