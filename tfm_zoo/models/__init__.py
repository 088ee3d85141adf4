from .. import plugin  # noqa: F401
