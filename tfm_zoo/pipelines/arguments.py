"""What a caller of a pipeline has given."""

from typing import Any


def without_none(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that were given, which the base class prefers to those given when the pipeline was made."""
    return {name: value for name, value in arguments.items() if value is not None}
