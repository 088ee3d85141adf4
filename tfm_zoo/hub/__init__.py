"""What surrounds a checkpoint on the Hub: its card, its upload, and the proof that it is what it was."""

from .push import PushError, push
from .verify import Verdict, verify

__all__ = ["PushError", "Verdict", "push", "verify"]
