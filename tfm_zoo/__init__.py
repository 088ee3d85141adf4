"""A model zoo for Hugging Face transformers: one Transformer block, five families made from it.

Every class is registered with transformers' `AutoConfig`, `AutoModel` and `AutoModelFor...` as soon as this package and
transformers are both imported. Nothing else is imported before a public name is asked for: torch and transformers take
seconds, and the `tfm-zoo` command, whose modules are in this package, says what it does without them.
"""

from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .utils import moved  # noqa: F401, which finds modules under their earlier names
from .utils.importing import when_imported

if TYPE_CHECKING:
    from .public import *  # noqa: F403

__version__ = "0.4.0.dev0"


def __getattr__(name: str) -> Any:
    """A sub-package, or a public name."""
    if name.startswith("__") and name != "__all__":  # Python asks for some that are not there
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec(f"{__name__}.{name}"):
        return import_module(f"{__name__}.{name}")
    public = import_module(f"{__name__}.public")
    if name == "__all__" or name in public.__all__:
        return getattr(public, name)
    near = [f": did you mean {each!r}?" for each in get_close_matches(name, public.__all__, n=1)]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{''.join(near)}")


def __dir__() -> list[str]:
    return import_module(f"{__name__}.public").__all__


when_imported("transformers", lambda _: import_module(f"{__name__}.plugin"))
