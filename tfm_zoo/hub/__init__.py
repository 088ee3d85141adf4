"""What surrounds a checkpoint on the Hub: its card, its upload, and the check that it is still what was saved."""

from typing import TYPE_CHECKING

from .. import plugin  # noqa: F401
from ..importing import names_from

if TYPE_CHECKING:
    from .comparisons import Verdict
    from .pushing import PushError, push
    from .verifying import verify

__all__ = ["PushError", "Verdict", "push", "verify"]

__getattr__ = names_from(
    __name__, {"PushError": "pushing", "Verdict": "comparisons", "push": "pushing", "verify": "verifying"}
)
