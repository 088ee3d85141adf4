"""A checkpoint on its way to the Hub: how it is saved, its card, its upload."""

from importlib import import_module
from typing import TYPE_CHECKING

# First: `when_imported` in tfm_zoo/__init__.py then imports `tfm_zoo.plugin`, while no file here is half imported.
import transformers  # noqa: F401

from ..utils.importing import names_from

if TYPE_CHECKING:
    from .pushing import PushError, files_to_push, push

__all__ = ["PushError", "files_to_push", "push"]

#: what was here until 0.3, and is in `tfm_zoo.proof`
EARLIER = ("Matrix", "Verdict", "compare", "record", "verify", "verify_matrix")

find = names_from(__name__, dict.fromkeys(__all__, "pushing"))


def __getattr__(name: str) -> object:
    return getattr(import_module("tfm_zoo.proof"), name) if name in EARLIER else find(name)
