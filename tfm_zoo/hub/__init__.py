"""What surrounds a checkpoint on the Hub: its card, its upload, and the check that it is still what was saved."""

from .comparisons import Verdict
from .push import PushError, push
from .verify import verify

__all__ = ["PushError", "Verdict", "push", "verify"]
