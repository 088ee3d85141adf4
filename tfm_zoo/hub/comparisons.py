"""A checkpoint against its manifest, part by part: what differs goes into the verdict."""

from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import transformers
from packaging.requirements import Requirement

from ..models import contents
from ..models import manifest as manifests
from .verdict import Verdict

#: how far outputs may be from those of the manifest, as a share of the largest of them
TOLERANCE = {"float32": 1e-4, "float64": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
SHOWN = 5


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


def compare_code(saved: dict, folder: Path, config: dict, verdict: Verdict) -> None:
    """The files are those that were saved; and, saved by the installed version, those that it ships. (One of a name
    that it does not ship is its author's.)"""
    there = contents.digests_of_files(folder, saved["code"].keys() | contents.code_in(folder, config))
    shipped = contents.digests_of_files(Path(contents.__file__).parent, there)
    for name in sorted(saved["code"].keys() | there.keys()):
        if name not in there:
            verdict.differences.append(f"code file {name} is missing")
        elif name not in saved["code"]:
            verdict.differences.append(f"code file {name} was not saved with the checkpoint")
        elif there[name] != saved["code"][name]:
            verdict.differences.append(f"code file {name} has been changed")
        elif saved["tfm_zoo"] == manifests.VERSION and shipped.get(name, there[name]) != there[name]:
            verdict.differences.append(f"code file {name} is not the one that tfm_zoo {manifests.VERSION} ships")


def compare_auto_map(saved: dict, config: dict, verdict: Verdict) -> None:
    """As the file has it: loaded, it is what the configuration's class makes it."""
    was, now = (fields.get("auto_map") or {} for fields in (saved["settings"]["config.json"], config))
    verdict.differences += [f"config.json: {change}" for change in changes({"auto_map": was}, {"auto_map": now})]


def auto_class(config: dict, verdict: Verdict) -> str | None:
    """The Auto class by which the checkpoint is loaded; `None` where it cannot, or should not be."""
    targets = config.get("auto_map") or {}
    elsewhere = sorted({str(target) for target in targets.values() if "--" in str(target)})
    if elsewhere:
        verdict.differences.append(
            f"it was not run: its auto_map names code of other repositories: {listed(elsewhere)}"
        )
        return None
    name = (config.get("architectures") or [None])[0]
    auto = next((auto for auto, target in targets.items() if str(target).rpartition(".")[2] == name), None)
    if auto is None:
        verdict.differences.append(f"it does not load: no Auto class in the auto_map of config.json gives a {name}")
    return auto


def compare_weights(saved: dict, folder: Path, verdict: Verdict) -> None:
    try:
        there = contents.digests_of_tensors(folder)
        files = {path.name for path in contents.weight_files_in(folder)}
    except ValueError as error:
        verdict.differences.append(str(error))
        return
    for what, names in {
        "missing": saved["weights"].keys() - there.keys(),
        "not the checkpoint's": there.keys() - saved["weights"].keys(),
        "changed": {name for name in there.keys() & saved["weights"].keys() if there[name] != saved["weights"][name]},
    }.items():
        if names:
            verdict.differences.append(f"weights {what}: {listed(names)}")
    stale = {path.name for path in folder.glob("model-*-of-*.safetensors")} - files
    if stale:
        verdict.warnings.append(f"files of weights that are not read: {listed(stale)}")


def compare_settings(settings: dict[str, list[dict]], verdict: Verdict) -> None:
    for file, (was, now) in settings.items():
        verdict.differences += [f"{file}: {change}" for change in changes(was, now)]


def compare_loaded(saved: dict, loaded: dict, verdict: Verdict) -> None:
    """No weight was left out or initialised anew, none is another than in its file, and the outputs are the same."""
    for what in ("missing", "unexpected", "mismatched"):
        if loaded[what]:
            verdict.differences.append(f"weights {what} when it is loaded: {listed(loaded[what])}")
    if loaded["changed"]:
        verdict.differences.append(f"weights are not as in their file once loaded: {listed(loaded['changed'])}")
    if saved["fingerprint"] is None:
        verdict.warnings.append("it was saved without outputs to compare with, since it could not be run then")
    else:
        compare_outputs(saved["fingerprint"], loaded["outputs"], loaded["dtype"], verdict)


def compare_outputs(fingerprint: dict, outputs: dict[str, dict], dtype: str, verdict: Verdict) -> None:
    tolerance = max(TOLERANCE.get(name, TOLERANCE["bfloat16"]) for name in (dtype, fingerprint["dtype"]))
    drifts = {}
    for name, was in fingerprint["outputs"].items():
        now = outputs.get(name)
        if now is None or now["shape"] != was["shape"]:
            verdict.differences.append(f"output {name} is {now and now['shape']}, and was {was['shape']}")
            continue
        pairs = list(zip(was["values"], now["values"], strict=True))
        turned = sum((one is None) != (other is None) for one, other in pairs)
        if turned:
            verdict.differences.append(
                f"output {name} has no finite value where it had, or the reverse: {turned} times"
            )
        numbers = [pair for pair in pairs if None not in pair]
        largest = max((abs(one) for one, _ in numbers), default=0.0) or 1.0
        drift = drifts[name] = max((abs(one - other) for one, other in numbers), default=0.0) / largest
        if drift > tolerance:
            verdict.differences.append(f"output {name} drifted by {drift:.2g} of its largest value")
    verdict.figures |= {"drift": drifts, "tolerance": tolerance, "dtype": dtype}


def changes(was: dict, now: dict, of: str = "") -> list[str]:
    """Which fields are not what they were, those of nested objects by their own names."""
    found = []
    for name in sorted(was.keys() | now.keys()):
        one, other = was.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            found += changes(one, other, f"{of}{name}.")
        elif one != other:
            found.append(f"{of}{name} was {one!r} and is {other!r}")
    return found


def listed(names: Iterable[Any]) -> str:
    names = sorted(names)
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
