"""What a caller of a pipeline has given."""

from typing import Any


def without_none(arguments: dict[str, Any]) -> dict[str, Any]:
    """Those that were given: the base class sets these above those given when the pipeline was made."""
    return {name: value for name, value in arguments.items() if value is not None}
