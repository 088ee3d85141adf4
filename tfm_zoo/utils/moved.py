"""Modules of the package under the names that they had earlier: who imports them so gets the modules of today."""

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

PACKAGE = __name__.partition(".")[0]
#: a module, or a package with all that is in it -> where it is
MOVED = {
    **{name: f"utils.{name}" for name in ("importing", "locking", "pointers", "quiet", "schedules")},
    **{name: f"data.{name}" for name in ("built_in_data", "byte_ranges", "row_files", "windows")},
    **{name: f"inference.{name}" for name in ("onnx", "packing")},
    **dict.fromkeys(("limits", "converters.limits"), "converters.token_positions"),
    **{"proof.digests": "proof.vector_digests", "proof.kinds": "utils.folder_kinds"},
    **{"proof.recording": "proof.vector_recording", "named_configs": "families.named_configs"},
    **{"plugin.families": "families.auto_classes", "hub.recording": "proof.model_recording"},
    **{f"hub.{name}": f"proof.{name}" for name in ("check", "comparisons", "contents", "diagnosis", "fingerprints")},
    **{f"hub.{name}": f"proof.{name}" for name in ("manifest", "matrix", "origin", "side_by_side", "states")},
    **{"hub.verifying": "proof.verifying", "models.norms": "models.layers", "models.compat": "models.kernels"},
    **{"training.metrics": "metrics", "training.splits": "data.splits", "hub.gathering": "hub.sharded_models"},
}


class Moved(MetaPathFinder, Loader):
    """Asked before other finders: these would load a file of a package that has moved a second time."""

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, rest = name.partition(".")
        for old, new in MOVED.items() if package == PACKAGE else ():
            if rest == old or rest.startswith(f"{old}."):
                today = f"{PACKAGE}.{new}{rest.removeprefix(old)}"
                return ModuleSpec(name, self, origin=today) if find_spec(today) else None
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(spec.origin)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # which Python has replaced by that of the old name


sys.meta_path.insert(0, Moved())
