"""What surrounds a checkpoint on the Hub: its card, its upload, and the check that it is still what was saved."""

from typing import TYPE_CHECKING

from .. import plugin  # noqa: F401
from ..importing import names_from

if TYPE_CHECKING:
    from .comparisons import Verdict
    from .matrix import Matrix, verify_matrix
    from .pushing import PushError, push
    from .recording import record
    from .side_by_side import compare
    from .verifying import verify

__all__ = ["Matrix", "PushError", "Verdict", "compare", "push", "record", "verify", "verify_matrix"]

__getattr__ = names_from(
    __name__,
    {
        **{"Verdict": "comparisons", "verify": "verifying", "Matrix": "matrix", "verify_matrix": "matrix"},
        **{"PushError": "pushing", "push": "pushing", "record": "recording", "compare": "side_by_side"},
    },
)
