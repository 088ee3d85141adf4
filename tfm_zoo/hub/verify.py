"""Whether a checkpoint still is what it was when it was saved, and still computes what it did."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import snapshot_download
from packaging.requirements import Requirement

from ..models import manifest as manifests

#: how far outputs may be from those of the manifest, as a share of the largest of them
TOLERANCE = {"float32": 1e-4, "float64": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
SHOWN = 5


@dataclass
class Verdict:
    """What was found out about a checkpoint.

    Args:
        source: the folder or Hub id.
        differences: what is not as it was; none: all is.
        warnings: what may make a difference, and made none.
        figures: the largest drift of each output, as a share of its largest value; versions.
    """

    source: str
    differences: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        found = "; ".join(self.differences) if self.differences else "code, weights and outputs match"
        return f"{self.source}: {found}" + "".join(f" (warning: {warning})" for warning in self.warnings)


def verify(
    source: str | Path,
    revision: str | None = None,
    token: str | None = None,
    dtype: str = "auto",
) -> Verdict:
    """Checks a checkpoint against its manifest: its files here, and what it loads to and computes in a fresh process,
    with transformers and the checkpoint's own code alone. (That code is run: verify what you would load.)

    Args:
        source: a folder, or a Hub id, of which `revision` is a branch, a tag or a commit.
        dtype: the type to load it in; by default the checkpoint's. In another one, outputs are compared within
            the tolerance of that type ([`TOLERANCE`]), and the weights in the files alone.

    Raises:
        FileNotFoundError: for a folder without a manifest.
    """
    folder = (
        Path(source) if Path(source).is_dir() else Path(snapshot_download(str(source), revision=revision, token=token))
    )
    if not (folder / manifests.FILE).is_file():
        raise FileNotFoundError(f"{source} has no {manifests.FILE}: it was not saved as a model of the zoo.")
    saved = json.loads((folder / manifests.FILE).read_text(encoding="utf-8"))
    verdict = Verdict(str(source))
    compare_versions(saved, verdict)
    compare_code(saved, folder, verdict)
    compare_weights(saved, folder, verdict)
    loaded = load_elsewhere(folder.resolve(), dtype, verdict)
    if loaded is not None:
        compare_loaded(saved, loaded, verdict)
    return verdict


def compare_versions(saved: dict, verdict: Verdict) -> None:
    tested = next(r for r in map(Requirement, requires("tfm_zoo")) if r.name == "transformers").specifier
    verdict.figures |= {"saved_by": {name: saved[name] for name in ("tfm_zoo", "transformers", "torch")}}
    if not tested.contains(transformers.__version__, prereleases=True):
        verdict.warnings.append(
            f"transformers {transformers.__version__} is outside of the tested range, {tested};"
            f" it was saved with {saved['transformers']}"
        )
    if saved["tfm_zoo"] != manifests.VERSION:
        verdict.warnings.append(f"its code is that of tfm_zoo {saved['tfm_zoo']}; {manifests.VERSION} is installed")


def compare_code(saved: dict, folder: Path, verdict: Verdict) -> None:
    """The files are those that were saved; and, saved by the installed version, those that it ships."""
    there = {path.name: manifests.digest(path.read_bytes()) for path in folder.glob("*.py")}
    for name in sorted(saved["code"].keys() | there.keys()):
        if name not in there:
            verdict.differences.append(f"code file {name} is missing")
        elif name not in saved["code"]:
            verdict.differences.append(f"code file {name} was not saved with the checkpoint")
        elif there[name] != saved["code"][name]:
            verdict.differences.append(f"code file {name} has been changed")
        elif saved["tfm_zoo"] == manifests.VERSION:
            shipped = Path(manifests.__file__).parent / name
            if not shipped.is_file() or manifests.digest(shipped.read_bytes()) != there[name]:
                verdict.differences.append(f"code file {name} is not the one that tfm_zoo {manifests.VERSION} ships")


def compare_weights(saved: dict, folder: Path, verdict: Verdict) -> None:
    there = manifests.weights_of(folder)
    for what, names in {
        "missing": saved["weights"].keys() - there.keys(),
        "not the checkpoint's": there.keys() - saved["weights"].keys(),
        "changed": {name for name in there.keys() & saved["weights"].keys() if there[name] != saved["weights"][name]},
    }.items():
        if names:
            verdict.differences.append(f"weights {what}: {enumerated(names)}")


def load_elsewhere(folder: Path, dtype: str, verdict: Verdict) -> dict | None:
    """What [`check`] finds in a fresh process, into which no code from a cache comes."""
    with tempfile.TemporaryDirectory() as modules:
        process = subprocess.run(
            [sys.executable, str(Path(__file__).parent / "check.py"), str(folder), dtype],
            env=os.environ | {"HF_MODULES_CACHE": modules, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
        )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        verdict.differences.append(f"it does not load: {lines[-1]}")
        return None
    return json.loads(process.stdout.splitlines()[-1])


def compare_loaded(saved: dict, loaded: dict, verdict: Verdict) -> None:
    """No weight was left out or initialised anew, none is another than in its file, and the outputs are the same."""
    for what in ("missing", "unexpected", "mismatched"):
        if loaded[what]:
            verdict.differences.append(f"weights {what} when it is loaded: {enumerated(loaded[what])}")
    fingerprint = saved["fingerprint"]
    if fingerprint is None:
        verdict.warnings.append("it was saved without outputs to compare with, since it could not be run then")
        return
    if loaded["dtype"] == fingerprint["dtype"] and loaded["changed"]:
        verdict.differences.append(f"weights are not as in their file once loaded: {enumerated(loaded['changed'])}")
    tolerance = max(TOLERANCE.get(dtype, TOLERANCE["bfloat16"]) for dtype in (loaded["dtype"], fingerprint["dtype"]))
    drifts = {}
    for name, was in fingerprint["outputs"].items():
        now = (loaded["outputs"] or {}).get(name)
        if now is None or now["shape"] != was["shape"]:
            verdict.differences.append(f"output {name} is {now and now['shape']}, and was {was['shape']}")
            continue
        largest = max(map(abs, was["values"]), default=0.0) or 1.0
        pairs = zip(was["values"], now["values"], strict=True)
        drift = drifts[name] = max(abs(one - other) for one, other in pairs) / largest
        if not drift <= tolerance:  # nan too
            verdict.differences.append(f"output {name} drifted by {drift:.2g} of its largest value")
    verdict.figures |= {"drift": drifts, "tolerance": tolerance, "dtype": loaded["dtype"]}


def enumerated(names: Any) -> str:
    names = sorted(names)
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
