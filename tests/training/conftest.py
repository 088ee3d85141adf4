"""The fixtures of the recipes' tests (a tiny checkpoint, the texts it learns, one thread); and loops on tensors."""

from collections.abc import Callable
from tempfile import mkdtemp

import pytest

from tfm_zoo.training.loop import Loop

from ..recipes.conftest import checkpoint, frozen, one_thread_and_own_cache, own, quick_runs, rows
from .tensors import loop_on_tensors

__all__ = ["checkpoint", "frozen", "one_thread_and_own_cache", "own", "quick_runs", "rows"]


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
