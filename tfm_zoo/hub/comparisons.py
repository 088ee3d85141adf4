"""Compares a checkpoint with its manifest, part by part; differences go into a verdict."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import transformers
from packaging.requirements import Requirement

from .. import __version__, models
from .contents import code_in, digests_of_files, digests_of_tensors, weight_files_in

#: how far outputs may drift from those in the manifest, as a share of the largest of them
TOLERANCE = {"float32": 1e-4, "float64": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
#: the same for quantised models: the kernels of some machines round inputs, and others do not. (Between the two, MiniLM
#: drifts by 0.08 in eight bits and by 0.007 in four. Weights are compared bit for bit.)
QUANTISED_TOLERANCE = {"int8": 0.25, "int4": 0.05}
SHOWN = 5  # names in a message


@dataclass
class Verdict:
    """Whether a checkpoint is still as it was saved.

    Its `figures` are `saved_by`, the versions that saved it; `drift`, the largest drift of each output, as a share of
    the output's largest value; and the `tolerance` for that, with the `dtype` of the computation.
    """

    source: str  # the folder or Hub id
    differences: list[str] = field(default_factory=list)  # what has changed since
    warnings: list[str] = field(default_factory=list)  # what could make a difference, though none was found
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        match = "code, weights and outputs match" if self.figures.get("drift") else "code and weights match"
        notes = "".join(f" (warning: {warning})" for warning in self.warnings)
        return f"{self.source}: {'; '.join(self.differences) or match}{notes}"


def compare_versions(saved: dict, verdict: Verdict) -> None:
    """Warns of a transformers that the zoo is not tested with, and of code from another version of the zoo."""
    tested = next(need.specifier for need in map(Requirement, requires("tfm_zoo")) if need.name == "transformers")
    verdict.figures |= {"saved_by": {name: saved[name] for name in ("tfm_zoo", "transformers", "torch")}}
    if not tested.contains(transformers.__version__, prereleases=True):
        outside = f"transformers {transformers.__version__} is outside of the tested range, {tested}"
        verdict.warnings.append(f"{outside}; it was saved with {saved['transformers']}")
    if saved["tfm_zoo"] != __version__:
        verdict.warnings.append(f"its code is that of tfm_zoo {saved['tfm_zoo']}; {__version__} is installed")


def compare_code(saved: dict, folder: Path, config: dict, verdict: Verdict) -> None:
    """Checks that the folder holds the code files that were saved, and that its configuration names no others."""
    now = digests_of_files(folder, saved["code"].keys() | code_in(folder, config))
    for name in sorted(saved["code"].keys() | now.keys()):
        if name not in now:
            verdict.differences.append(f"code file {name} is missing")
        elif name not in saved["code"]:
            verdict.differences.append(f"code file {name} was not saved with the checkpoint")
        elif now[name] != saved["code"][name]:
            verdict.differences.append(f"code file {name} has been changed")


def compare_shipped(saved: dict, verdict: Verdict) -> None:
    """Checks that a checkpoint of the installed version has the code that this version ships, by file name."""
    shipped = digests_of_files(Path(models.__file__).parent, saved["code"].keys())
    for name in sorted(shipped) if saved["tfm_zoo"] == __version__ else ():
        if shipped[name] != saved["code"][name]:
            verdict.differences.append(f"code file {name} is not the one that tfm_zoo {__version__} ships")


def compare_weights(saved: dict, folder: Path, verdict: Verdict) -> None:
    """Checks that the tensors in the folder's files are those that were saved, bit for bit."""
    try:
        now = digests_of_tensors(folder)
        files = {path.name for path in weight_files_in(folder)}
    except ValueError as error:
        verdict.differences.append(str(error))
        return
    before = saved["weights"]
    for change, names in {
        "missing": before.keys() - now.keys(),
        "not the checkpoint's": now.keys() - before.keys(),
        "changed": {name for name in now.keys() & before.keys() if now[name] != before[name]},
    }.items():
        if names:
            verdict.differences.append(f"weights {change}: {listed(names)}")
    unread = {path.name for path in folder.glob("model-*-of-*.safetensors")} - files
    if unread:
        verdict.warnings.append(f"files of weights that are not read: {listed(unread)}")


def compare_auto_map(saved: dict, config: dict, verdict: Verdict) -> None:
    """Checks that the file has the `auto_map` that was saved. (In a loaded model the configuration's class sets it.)"""
    before, now = (fields.get("auto_map") or {} for fields in (saved["settings"]["config.json"], config))
    if before != now:
        verdict.differences.append(f"config.json: {listed(changes(before, now, 'auto_map.'))}")


def auto_class(config: dict, verdict: Verdict) -> str | None:
    """The Auto class that loads the checkpoint; `None` where there is none, or where it would run foreign code."""
    targets = config.get("auto_map") or {}
    foreign = sorted({str(target) for target in targets.values() if "--" in str(target)})
    if foreign:
        verdict.differences.append(f"it was not run: its auto_map names code of other repositories: {listed(foreign)}")
        return None
    name = (config.get("architectures") or [None])[0]
    auto = next((auto for auto, target in targets.items() if str(target).rpartition(".")[2] == name), None)
    if auto is None:
        verdict.differences.append(f"it does not load: no Auto class in the auto_map of config.json gives a {name}")
    return auto


def compare_loaded(saved: dict, loaded: dict, verdict: Verdict) -> None:
    """Checks that the model that `check.py` loaded has the weights of its files, no others, and the outputs it had."""
    for kind in ("missing", "unexpected", "mismatched"):
        if loaded[kind]:
            verdict.differences.append(f"weights {kind} when it is loaded: {listed(loaded[kind])}")
    if loaded["changed"]:
        verdict.differences.append(f"weights are not as in their file once loaded: {listed(loaded['changed'])}")
    if saved["fingerprint"] is None:
        verdict.warnings.append("it was saved without outputs to compare with, since it could not be run then")
    else:
        compare_outputs(saved["fingerprint"], loaded["outputs"], loaded["dtype"], verdict)


def compare_outputs(fingerprint: dict, outputs: dict[str, dict], dtype: str, verdict: Verdict) -> None:
    """Checks that each output has the shape that it had, and values within the tolerance of the coarser type."""
    known = TOLERANCE | QUANTISED_TOLERANCE
    tolerance = max(known.get(name, TOLERANCE["bfloat16"]) for name in (dtype, fingerprint["dtype"]))
    drifts = {}
    for name, before in fingerprint["outputs"].items():
        now = outputs.get(name)
        if now is None or now["shape"] != before["shape"]:
            verdict.differences.append(f"output {name} is {now and now['shape']}, and was {before['shape']}")
            continue
        pairs = list(zip(before["values"], now["values"], strict=True))
        flips = sum((old is None) != (new is None) for old, new in pairs)
        if flips:
            verdict.differences.append(f"output {name} has {flips} values that are finite and were not, or the reverse")
        numbers = [pair for pair in pairs if None not in pair]
        largest = max((abs(old) for old, _ in numbers), default=0.0) or 1.0
        drifts[name] = max((abs(old - new) for old, new in numbers), default=0.0) / largest
        if drifts[name] > tolerance:
            verdict.differences.append(f"output {name} drifted by {drifts[name]:.2g} of its largest value")
    verdict.figures |= {"drift": drifts, "tolerance": tolerance, "dtype": dtype}


def changes(before: dict, now: dict, prefix: str = "") -> list[str]:
    """A sentence for each field that has changed; a field of a nested object is named `object.field`."""
    sentences = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            sentences += changes(old, new, f"{prefix}{name}.")
        elif old != new:
            sentences.append(f"{prefix}{name} was {old!r} and is {new!r}")
    return sentences


def listed(names: Iterable[Any]) -> str:
    names = sorted(names)
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
