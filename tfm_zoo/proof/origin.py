"""Whose code a checkpoint carries: that of a release of the zoo, file by file, or somebody's own. Nothing of it runs.

`released.json` holds the SHA-256 of every file of every release. `python -m tfm_zoo.proof.origin` adds the installed
one.
"""

import json
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .. import __version__
from ..utils.locking import write_json
from .contents import GENERATE, code_in, digests_of_files, foreign_in

RELEASED = Path(__file__).with_name("released.json")
MODELS = Path(__file__).parents[1] / "models"
SHOWN = 5  # names in a message
#: the releases of transformers under which every kind of checkpoint is loaded by its own code, oldest first. (Those of
#: old, such as 5.6 and 5.9, copy of a local folder's code only what the first file imports, and not what that imports.)
TESTED = ("5.12", "5.15", "5.17", "5.20", "5.23", "5.24")


@dataclass
class Origin:
    """Where a checkpoint's code comes from.

    Its `version` is the release whose files most of them are (`None`: no release's); `changed`, those that this release
    has otherwise; `own`, those that it has not at all; `foreign`, what is loaded from elsewhere than the folder.
    """

    files: dict[str, str]  # name -> SHA-256
    version: str | None = None
    changed: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    @property
    def is_released(self) -> bool:
        """Whether every file is that of one release of the zoo, and nothing is loaded from elsewhere."""
        return self.version is not None and not (self.changed or self.own or self.foreign)

    def __str__(self) -> str:
        if not self.files:
            whose = "that of transformers"
        elif self.version is None:
            whose = f"somebody's own: {listed(self.files)}"
        else:
            whose = f"that of tfm_zoo {self.version}, file by file ({len(self.files)} files)"
            if self.changed or self.own:
                whose = f"that of tfm_zoo {self.version} with changes"
            whose += f"; changed: {listed(self.changed)}" if self.changed else ""
            whose += f"; somebody's own: {listed(self.own)}" if self.own else ""
        return f"code: {whose}" + "".join(f"; {one}" for one in self.foreign)


def origin_of(folder: Path) -> Origin:
    """Where the code in a checkpoint's folder comes from."""
    files = digests_of_files(folder, code_in(folder))
    foreign = foreign_in(folder)

    def in_common(version: str) -> int:
        return sum(releases()[version].get(Path(name).name) == digest for name, digest in files.items())

    version = max(releases(), key=in_common)
    if not files or in_common(version) * 2 < len(files):
        return Origin(files, foreign=foreign)
    release = releases()[version]
    named = {name: release.get(Path(name).name) for name in sorted(files)}  # code may lie in a folder of its own
    changed = [name for name, digest in named.items() if digest not in (None, files[name])]
    return Origin(files, version, changed, [name for name in named if named[name] is None], foreign)


@cache
def releases() -> dict[str, dict[str, str]]:
    """Version -> name -> SHA-256 of the files that travel with its checkpoints; the installed version's first."""
    return {__version__: installed()} | json.loads(RELEASED.read_text(encoding="utf-8"))


def installed(folder: Path = MODELS) -> dict[str, str]:
    names = {path.name for path in folder.glob("*.py")} - {"__init__.py", GENERATE}
    return digests_of_files(folder, names)


def listed(names) -> str:
    names = sorted(map(str, names))
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def add_release(version: str = __version__, folder: Path = MODELS) -> None:
    """Adds the files in `folder` to `released.json`, as those of a version."""
    known = json.loads(RELEASED.read_text(encoding="utf-8")) if RELEASED.is_file() else {}
    write_json(RELEASED, known | {version: installed(folder)}, indent=1)


if __name__ == "__main__":
    add_release(*sys.argv[1:2], *map(Path, sys.argv[2:3]))
