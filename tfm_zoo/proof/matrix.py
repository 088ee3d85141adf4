"""`verify` under several releases of a library, each in an environment of its own."""

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from .verdict import Verdict
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


def verify_matrix(source: str | Path, matrix: str, by: Callable[..., Verdict] | None = None, **options: Any) -> Matrix:
    """Verifies a checkpoint in a new environment for each release of a library, one after the other.

    Args:
        source: a folder, or a Hub id.
        matrix: the library and its releases, as in `"transformers==5.12,5.15,latest"`.
        by: what verifies it, with the interpreter of an environment (`python`) and the options; by default [`verify`].
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
                verdict = (by or verify)(source, python=python, **options)
            except RuntimeError as error:
                verdict = Verdict(str(source), differences=[str(error)])
        row = {"installed": installed, "ok": verdict.ok, "result": str(verdict), "seconds": perf_counter() - start}
        found.matrix[requirement] = row | asdict(verdict)
    return found


def verify_by_command(source: str | Path, python: str, words: Sequence[str]) -> Verdict:
    """What `tfm-zoo verify` says in another environment of vectors or of an export; `words`: its options."""
    package = Path(__file__).parents[2]
    process = subprocess.run(
        [python, "-m", "tfm_zoo", "verify", str(source), *words, "--json"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))},
        capture_output=True,
        text=True,
    )
    try:
        found = json.loads(process.stdout[process.stdout.index("{") :])
    except ValueError:
        lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        return Verdict(str(source), differences=[f"it cannot be verified there: {lines[-1]}"])
    if "error" in found:
        return Verdict(str(source), differences=[found["error"]])
    return Verdict(**{name: value for name, value in found.items() if name != "ok"})


def requirements_of(matrix: str) -> list[str]:
    """What `pip` installs for each release of a matrix. Of `5.12` it takes the newest bug fix."""
    library, _, releases = matrix.replace(" ", "").partition("==")
    wanted = []
    for release in releases.split(","):
        if not library or not re.fullmatch(r"\d+(\.\w+)+|latest", release):
            wrong = f"{release!r} is not a release"
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
