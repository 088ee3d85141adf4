"""`verify` under several releases of a library, each in an environment of its own."""

import re
import subprocess
import sys
import venv
from dataclasses import asdict, dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from .comparisons import Verdict
from .verifying import verify


@dataclass
class Matrix:
    """Whether a checkpoint is still as it was saved, under each of several releases of a library."""

    source: str
    #: by what `pip` takes: the release that was installed, the verdict (as a dict, and in words), and its seconds
    matrix: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return all(row["ok"] for row in self.matrix.values())

    def __str__(self) -> str:
        codes = dict.fromkeys(row["code"] for row in self.matrix.values() if row["code"])
        lines = [*codes, f"{'release':20} {'seconds':>7}  result"]
        for name, row in self.matrix.items():
            result = row["result"].removeprefix(f"{self.source}: ")
            lines.append(f"{row['installed'] or name:20} {row['seconds']:7.0f}  {result}")
        return "\n".join(lines)


def verify_matrix(source: str | Path, matrix: str, **options: Any) -> Matrix:
    """Verifies a checkpoint in a new environment for each release of a library, one after the other.

    Args:
        source: a folder, or a Hub id.
        matrix: the library and its releases, as in `"transformers==5.12,5.15,latest"`.
        options: those of [`verify`].

    Raises:
        ValueError: for a matrix that names no releases, and what [`verify`] raises.
    """
    found = Matrix(str(source))
    for requirement in requirements_of(matrix):
        with TemporaryDirectory() as folder:
            start, installed = perf_counter(), None
            try:
                python, installed = environment(Path(folder), requirement)
                start = perf_counter()
                verdict = verify(source, python=python, **options)
            except RuntimeError as error:
                verdict = Verdict(str(source), differences=[str(error)])
        row = {"installed": installed, "ok": verdict.ok, "result": str(verdict), "seconds": perf_counter() - start}
        found.matrix[requirement] = row | asdict(verdict)
    return found


def requirements_of(matrix: str) -> list[str]:
    """What `pip` installs for each release of a matrix. Of `5.12` it takes the newest bug fix."""
    library, _, releases = matrix.replace(" ", "").partition("==")
    wanted = []
    for release in releases.split(","):
        if not library or not re.fullmatch(r"\d+(\.\w+)+|latest", release):
            wrong = f"{release!r} is no release"
            raise ValueError(f"matrix={matrix!r}: {wrong}. It should be like 'transformers==5.12,5.15.1,latest'.")
        bug_fix = ".*" if release.count(".") == 1 else ""
        wanted.append(library if release == "latest" else f"{library}=={release}{bug_fix}")
    return wanted


def environment(folder: Path, requirement: str) -> tuple[str, str]:
    """The interpreter of a new environment in `folder`, and the release of the library that it has.

    It has what `requirement` names, and what that requires, in releases that fit. It shares all else with the
    environment that this runs in, such as torch.

    Raises:
        RuntimeError: if `pip` cannot install the requirement; the message is its own.
    """
    venv.create(folder, with_pip=True, symlinks=True)
    python = str(folder / "bin" / "python")
    site = next(folder.glob("lib/python*/site-packages"))
    shared = [path for path in sys.path if path.endswith("site-packages")]
    (site / "shared.pth").write_text("\n".join(shared) + "\n")
    pip = [python, "-m", "pip", "install", "--quiet", "--upgrade", "--no-compile", "--no-warn-conflicts", requirement]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr.strip()]
        raise RuntimeError(f"{requirement} cannot be installed: {lines[-1].removeprefix('ERROR: ')}")
    found = distributions(name=requirement.partition("==")[0], path=[str(site), *shared])
    return python, next(iter(found)).version
