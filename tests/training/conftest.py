"""The fixtures of the recipes' tests: a tiny checkpoint, the texts it learns, one thread."""

from ..recipes.conftest import checkpoint, one_thread_and_own_cache, rows

__all__ = ["checkpoint", "one_thread_and_own_cache", "rows"]
