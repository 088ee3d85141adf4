"""A checkpoint on its way to the Hub: how it is saved, its card, its upload."""

from typing import TYPE_CHECKING

import transformers  # noqa: F401, with which the zoo is plugged in: before the files here, none of which is half imported

from ..utils.importing import names_from

if TYPE_CHECKING:
    from .pushing import PushError, push

__all__ = ["PushError", "push"]

__getattr__ = names_from(__name__, {"PushError": "pushing", "push": "pushing"})
