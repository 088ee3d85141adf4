"""Compares a checkpoint with its manifest, part by part; differences go into a verdict."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version

from .. import __version__
from .contents import code_in, digests_of_files, digests_of_tensors, files_in, weight_files_in
from .diagnosis import drift_of, first_change
from .origin import Origin, listed, releases

#: how far outputs may drift from those in the manifest, as a share of the largest of them
TOLERANCE = {"float32": 1e-4, "float64": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
#: the same for quantised models: the kernels of some machines round inputs, and others do not. (Between the two, MiniLM
#: drifts by 0.08 in eight bits and by 0.007 in four. Weights are compared bit for bit.)
QUANTISED_TOLERANCE = {"int8": 0.25, "int4": 0.05}


@dataclass
class Verdict:
    """Whether a checkpoint is still as it was saved.

    Its `figures` are `saved_by`, the versions that saved it; `loader`, whose code was run; `drift`, the largest drift
    of each output, as a share of the output's largest value; the `tolerance` for that, with the `dtype` of the
    computation; `bit_for_bit`, whether the states after each part of the model are those of the fingerprint to the last
    bit; and `first_change`, the first part whose states differ by more than the tolerance.
    """

    source: str  # the folder or Hub id
    code: str = ""  # whose code the checkpoint carries
    differences: list[str] = field(default_factory=list)  # what has changed since
    warnings: list[str] = field(default_factory=list)  # what could make a difference, though none was found
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        match = "code, weights and outputs match" if self.figures.get("drift") else "code and weights match"
        match = "code matches" if self.figures.get("code_only") else match
        notes = "".join(f" (warning: {warning})" for warning in self.warnings)
        return f"{self.source}: {'; '.join(self.differences) or match}{notes}"


def compare_versions(saved: dict, origin: Origin, verdict: Verdict) -> None:
    """Notes the versions that saved the checkpoint; warns if its code is that of another version of `tfm_zoo`."""
    names = ("tfm_zoo", "transformers", "torch")
    verdict.figures["saved_by"] = {name: saved[name] for name in names}
    if origin.version not in (None, __version__):
        verdict.warnings.append(f"its code is that of tfm_zoo {origin.version}; {__version__} is installed")


def compare_tested(saved: dict, release: str, verdict: Verdict) -> None:
    """Warns if the transformers that loads it is older or newer than those that the manifest says were tested."""
    tested = saved.get("tested", {}).get("transformers")
    if tested and not is_between(tested[0], release, tested[-1]):
        verdict.warnings.append(
            f"transformers {release} is outside of the tested range, {tested[0]} to {tested[-1]}; it was saved with "
            f"{saved['transformers']}"
        )


def is_between(oldest: str, release: str, newest: str) -> bool:
    """Whether a release lies between two others, whatever the bug fix."""
    return Version(oldest).release[:2] <= Version(release).release[:2] <= Version(newest).release[:2]


def compare_code(saved: dict, folder: Path, verdict: Verdict) -> None:
    """Checks that the folder holds the code files that were saved, and that its configurations name no others."""
    now = digests_of_files(folder, saved["code"].keys() | code_in(folder))
    for name in sorted(saved["code"].keys() | now.keys()):
        if name not in now:
            verdict.differences.append(f"code file {name} is missing")
        elif name not in saved["code"]:
            verdict.differences.append(f"code file {name} was not saved with the checkpoint")
        elif now[name] != saved["code"][name]:
            verdict.differences.append(f"code file {name} has been changed")


def compare_shipped(saved: dict, verdict: Verdict) -> None:
    """Checks that a checkpoint has the code of the version that says to have saved it, by file name. (What `record`
    wrote, which says what loading left unmatched, may be of any code.)"""
    shipped = releases().get(saved["tfm_zoo"], {}) if "loading" not in saved else {}
    for name in sorted(shipped.keys() & saved["code"].keys()):
        if shipped[name] != saved["code"][name]:
            verdict.differences.append(f"code file {name} is not the one that tfm_zoo {saved['tfm_zoo']} ships")


def compare_files(saved: dict, folder: Path, verdict: Verdict) -> None:
    """Checks that the other files that loading may read are those that were recorded.

    A manifest that was not completed records none, since a model is saved first; what lies beside it is named.
    """
    recorded = saved.get("files")
    names = files_in(folder) - saved["code"].keys()
    if recorded is None:
        read = {name for name in names if name.endswith((".json", ".jinja", ".txt", ".model"))}
        if read:
            verdict.warnings.append(f"not recorded, and read when it is loaded: {listed(read)}")
        return
    now = digests_of_files(folder, names)
    changed = {name for name in recorded.keys() & now.keys() if recorded[name] != now[name]}
    for change, names in {
        "missing": recorded.keys() - now.keys(),
        "changed since it was recorded": changed,
        "not recorded, and read when it is loaded": now.keys() - recorded.keys() - code_in(folder),
    }.items():
        if names:
            verdict.differences.append(f"files {change}: {listed(names)}")


def compare_weights(saved: dict, folder: Path, verdict: Verdict) -> set[str]:
    """Checks that the tensors in the folder's files are those that were saved, bit for bit. Returns the names of those
    that are others."""
    try:
        now = digests_of_tensors(folder)
        files = {path.name for path in weight_files_in(folder)}
    except ValueError as error:
        verdict.differences.append(str(error))
        return set()
    before = saved["weights"]
    changed = {name for name in now.keys() & before.keys() if now[name] != before[name]}
    for change, names in {
        "missing": before.keys() - now.keys(),
        "not the checkpoint's": now.keys() - before.keys(),
        "changed": changed,
    }.items():
        if names:
            verdict.differences.append(f"weights {change}: {listed(names)}")
    unread = {path.name for path in folder.glob("model-*-of-*.safetensors")} - files
    if unread:
        verdict.warnings.append(f"files of weights that are not read: {listed(unread)}")
    return changed


def compare_auto_map(saved: dict, config: dict, verdict: Verdict) -> None:
    """Checks that the file has the `auto_map` that was saved. (In a loaded model the configuration's class sets it.)"""
    both = ({"auto_map": fields.get("auto_map") or {}} for fields in (saved["settings"].get("config.json", {}), config))
    if changed := changes(*both):
        verdict.differences.append(f"config.json: {listed(changed)}")


def compare_loaded(saved: dict, loaded: dict, changed: set[str], verdict: Verdict) -> None:
    """Checks that the model that `check.py` loaded has its files' weights, no others, and computes what it did.
    `changed`: the weights whose files are others."""
    for kind in ("missing", "unexpected", "mismatched"):
        names = set(loaded[kind]) - set(saved.get("loading", {}).get(kind, ()))
        if names:
            verdict.differences.append(f"weights {kind} when it is loaded: {listed(names)}")
    if loaded["changed"]:
        verdict.differences.append(f"weights are not as in their file once loaded: {listed(loaded['changed'])}")
    if saved["fingerprint"] is None:
        verdict.warnings.append("it was saved without outputs to compare with, since it could not be run then")
    else:
        drifted = compare_outputs(saved["fingerprint"], loaded["outputs"], loaded["dtype"], verdict)
        loaded = loaded | {"changed": [*loaded["changed"], *changed]}
        compare_states(saved["fingerprint"], loaded, drifted, verdict)
    if saved.get("tokenizer"):
        compare_texts(saved["tokenizer"], loaded["tokenizer"], verdict)


def compare_outputs(fingerprint: dict, outputs: dict[str, dict], dtype: str, verdict: Verdict) -> bool:
    """Checks that each output has the shape that it had, and values within the tolerance of the coarser type. Returns
    whether one has not."""
    known, found = TOLERANCE | QUANTISED_TOLERANCE, len(verdict.differences)
    tolerance = max(known.get(name, TOLERANCE["bfloat16"]) for name in (dtype, fingerprint["dtype"]))
    drifts = {}
    for name, before in fingerprint["outputs"].items():
        now = outputs.get(name)
        if now is None or now["shape"] != before["shape"] or len(now["values"]) != len(before["values"]):
            verdict.differences.append(f"output {name} is {now and now['shape']}, and was {before['shape']}")
            continue
        flips = sum((old is None) != (new is None) for old, new in zip(before["values"], now["values"], strict=True))
        if flips:
            verdict.differences.append(f"output {name} has {flips} values that are finite and were not, or the reverse")
            continue
        drifts[name] = drift_of(before, now)
        if drifts[name] > tolerance:
            verdict.differences.append(f"output {name} drifted by {drifts[name]:.2g} of its largest value")
    verdict.figures |= {"drift": drifts, "tolerance": tolerance, "dtype": dtype}
    return len(verdict.differences) > found


def compare_states(fingerprint: dict, loaded: dict, outputs_drifted: bool, verdict: Verdict) -> None:
    """Names the first part of the model whose states differ: why the outputs do, or a warning if they do not."""
    before, now = fingerprint.get("states", {}), loaded.get("states", {})
    same = [now[name]["digest"] == before[name]["digest"] for name in before if name in now]
    verdict.figures["bit_for_bit"] = bool(same) and all(same)
    change = first_change(fingerprint, loaded, verdict.figures["tolerance"])
    is_weights = any(line.startswith("weights changed") for line in verdict.differences)
    if change and is_weights and not change.kind.startswith("its weights"):
        change = change._replace(kind="weights before it")  # their digests leave nothing to guess
    if change:
        verdict.figures["first_change"] = change._asdict()
        (verdict.differences if outputs_drifted else verdict.warnings).append(str(change))


def compare_texts(before: dict, now: dict, verdict: Verdict) -> None:
    """Checks that the tokenizer makes of the fixed text what it made of it."""
    kinds = {"ids": "a text", "pair": "a pair of texts", "decoded": "ids", "chat": "a conversation"}
    changed = [kinds[name] for name in kinds if before.get(name) != now.get(name)]
    verdict.differences += [f"the tokenizer makes something else of {listed(changed)}"] if changed else []
    specials = changes(before["special"], now["special"])
    verdict.differences += [f"special tokens: {'; '.join(specials)}"] if specials else []


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
