"""Converts between official checkpoints and the zoo's, both ways, by one reversible table per official architecture.

The tables are in `architectures/`: they are data, and importing them loads neither torch nor a model. A rule for
configurations is in `config_rules.py`, one for tensors in `tensor_rules.py`. All other files carry the tables out.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .architectures import ARCHITECTURES
from .errors import ConversionError

if TYPE_CHECKING:
    from .conversion import from_official, to_official

__all__ = ["ARCHITECTURES", "ConversionError", "from_official", "to_official"]


def __getattr__(name: str) -> Any:
    """Imports the conversion, and torch with it, when somebody first asks for it."""
    if name in __all__:
        return getattr(import_module(f"{__name__}.conversion"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
