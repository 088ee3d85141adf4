"""Importing late: names that are imported at their first use, and what is done once another library is imported."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def names_from(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package, of whose `modules` (name -> module) each is imported when it is needed."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get


def when_imported(name: str, act: Callable[[ModuleType], object]) -> None:
    """Calls `act` with the module `name`: now, if it has been imported, or else as soon as it is."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, WhenImported(name, act))


class WhenImported(MetaPathFinder):
    """Finds one module as Python would, calls `act` with it after its code has run, and then is gone."""

    def __init__(self, name: str, act: Callable[[ModuleType], object]):
        self.name, self.act, self.is_asking = name, act, False

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name or self.is_asking:
            return None
        self.is_asking = True  # the other finders
        try:
            spec = find_spec(name)
        finally:
            self.is_asking = False
        if spec is not None:  # though it may only be looked up, and not imported
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: self.run_and_act(run, module)
        return spec

    def run_and_act(self, run: Callable[[ModuleType], None], module: ModuleType) -> None:
        run(module)
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self.act(sys.modules[self.name])  # a module may have put another in its place
