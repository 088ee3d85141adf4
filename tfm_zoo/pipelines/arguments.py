"""The arguments that a caller of a pipeline has given."""

from typing import Any


def without_none(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that were given. The base class prefers those of a call to those of the pipeline's constructor."""
    return {name: value for name, value in arguments.items() if value is not None}
