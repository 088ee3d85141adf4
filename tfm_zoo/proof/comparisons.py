"""Compares a checkpoint with its manifest, part by part, outputs within `TOLERANCE`; differences go into a verdict."""

import shlex
from collections.abc import Collection, Sequence
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

from .. import __version__
from ..converters.sources import OF_SENTENCES
from .contents import (
    HARMLESS,
    ORIGIN,
    REWRITTEN,
    both_settings,
    code_in,
    digests_of_files,
    digests_of_tensors,
    files_in,
    named_by,
    types_in,
    weight_files_in,
)
from .diagnosis import drift_of, first_change
from .model_files import files_of_model
from .origin import Origin, listed, releases
from .reading import NO_LIMIT, Reading, sentences
from .sentence_files import reading_in
from .verdict import Verdict

#: how far outputs may drift from those in the manifest, as a share of the largest of them
TOLERANCE = {"float32": 1e-4, "float64": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
#: the same for quantised models: the kernels of some machines round inputs, and others do not. (Between the two, MiniLM
#: drifts by 0.08 in eight bits and by 0.007 in four. Weights are compared bit for bit.)
QUANTISED_TOLERANCE = {"int8": 0.25, "int4": 0.05}
#: the share of weights that are others where a checkpoint was saved again in another type
CAST = 0.9
#: fields that a loaded configuration does not show as its file has them: a class has its own
UNSHOWN = {"model_type", "auto_map"}
#: what has become of files
LOST, ADDED = "files missing", "files not recorded, and read when it is loaded"
#: the name of a table of numbers from 0 on, which earlier releases of transformers saved as a weight
POSITIONS = "position_ids"
#: fields of earlier releases of transformers, which a loaded configuration shows by other names
RENAMED = {"torch_dtype", "rope_theta", "rope_scaling", "num_labels"}


def compare_with_release(saved: dict, origin: Origin, verdict: Verdict) -> None:
    """Notes the versions that saved the checkpoint; checks that its code is that of the `tfm_zoo` that says to have
    saved it, file by file, and warns if another version is installed. (What `record` wrote may be of any code.)"""
    verdict.figures["saved_by"] = {name: saved[name] for name in ("tfm_zoo", "transformers", "torch")}
    version = saved["tfm_zoo"]
    # (Keys of `code` are paths. What saving wrote lies at the top: there they are the names that a release has.)
    shipped = {} if is_by_record(saved) else releases().get(version, {})
    others = [name for name, digest in sorted(saved["code"].items()) if shipped.get(name, digest) != digest]
    verdict.differences += [not_shipped(name, version) for name in others]
    if origin.version not in (None, __version__):
        verdict.warnings.append(f"its code is that of tfm_zoo {origin.version}; {__version__} is installed")


def is_by_record(saved: dict) -> bool:
    """Whether `record` wrote the manifest, perhaps in place of the one that was saved with the model: it alone notes
    what loading left unmatched."""
    return "loading" in saved


def not_shipped(name: str, version: str) -> str:
    return f"code file {name} is not the one that tfm_zoo {version} ships"


def compare_unrun_code(saved: dict, origin: Origin, verdict: Verdict) -> None:
    """For code that is read and not run: notes what is loaded from elsewhere, files that differ from the release that
    most of them are of (`origin.version`), and a manifest of a `tfm_zoo` that is not a release known here."""
    verdict.differences += origin.foreign
    verdict.differences += [not_shipped(name, origin.version) for name in origin.changed]
    if origin.files and not origin.is_released and not is_by_record(saved) and saved["tfm_zoo"] not in releases():
        verdict.differences.append(
            f"tfm_zoo {saved['tfm_zoo']}, which is to have saved it, is not a release known here"
        )


def compare_tested(saved: dict, release: str, verdict: Verdict) -> None:
    """Warns if the transformers that loads it is older or newer than those that the manifest says were tested, whatever
    the bug fix."""
    tested = saved.get("tested", {}).get("transformers")
    if not tested:
        return
    oldest, now, newest = (Version(each).release[:2] for each in (tested[0], release, tested[-1]))
    if not oldest <= now <= newest:
        verdict.warnings.append(
            f"transformers {release} is outside of the tested range, {tested[0]} to {tested[-1]}; it was saved with "
            f"{saved['transformers']}"
        )


def compare_code(saved: dict, folder: Path, verdict: Verdict) -> None:
    """Checks that the folder holds the code files that were saved, and that its configurations name no others."""
    before, now = saved["code"], digests_of_files(folder, saved["code"].keys() | code_in(folder))
    for names, of_one, of_many in (
        (changed_in(before, now), "has been changed", "have been changed"),
        (before.keys() - now.keys(), "is missing", "are missing"),
        (now.keys() - before.keys(), "was not saved with the checkpoint", "were not saved with the checkpoint"),
    ):
        said = f"code files {listed(names)} {of_many}" if len(names) > 1 else f"code file {listed(names)} {of_one}"
        verdict.differences += [said] if names else []


def another_class(saved: dict, settings: dict, source: str | Path) -> str | None:
    """What is said of a model of another class and type than the one that was recorded, such as what
    `tfm_zoo.to_official` makes of it: its files, its settings and its weights have other names."""
    was, now = (fields.get("config.json", {}) for fields in (saved["settings"], settings))
    if was.get("model_type") == now.get("model_type") or was.get("architectures") == now.get("architectures"):
        return None
    if not all(isinstance(fields.get("architectures"), list) for fields in (was, now)):
        return None
    old, new = (listed(fields["architectures"]) for fields in (was, now))
    advice = f"`tfm-zoo verify {shlex.quote(str(source))} --against MODEL` compares what two models compute"
    quantization = now.get("quantization_config") or {}
    rounded = quantization.get("dtype") or quantization.get("quant_method")
    new += f" with {rounded} weights" if rounded else ""
    return f"it is a {new}, and was recorded as a {old}: their files are not compared; {advice}"


def other_files(saved: dict, folder: Path, verdict: Verdict) -> dict[str, set[str]]:
    """The other files that loading may read and that are not those that were recorded, by what has become of them.

    The manifest of a model that was saved lacks them, until `record` or `complete_manifest` writes it again: what lies
    there is named.
    """
    names = files_in(folder) - saved["code"].keys()
    if (recorded := saved.get("files")) is None:
        read = {name for name in names if name.endswith((".json", ".jinja", ".txt", ".model"))}
        beside = f"not in the manifest, until `tfm-zoo record` writes one with them: {listed(read)}"
        verdict.warnings += [beside] if read else []
        return {}
    now = digests_of_files(folder, names | recorded.keys())  # an earlier version read what this one leaves out
    added = now.keys() - recorded.keys() - code_in(folder)
    _, others = files_of_model(folder)
    if strays := added & {*others}:
        verdict.warnings.append(f"files were added that do not belong to the model: {listed(strays)}")
    return {
        LOST: recorded.keys() - now.keys(),
        "files changed since it was recorded": changed_in(recorded, now),
        ADDED: added - strays,
    }


class Alike(NamedTuple):
    """What makes the same of a text as it did, even if its files are others."""

    tokenizer: bool = False  # it consists of the same
    reading: bool = False  # how sentence-transformers makes a vector of a text
    file: bool = False  # what tokenizer.json says, however it is written

    def covers(self, name: str) -> bool:
        """Whether a file is one of theirs."""
        patterns = (*(REWRITTEN if self.tokenizer else ()), *(OF_SENTENCES if self.reading else ()))
        return any(fnmatch(name, pattern) for pattern in patterns)


def note_files(others: dict[str, set[str]], verdict: Verdict, alike: Alike) -> None:
    """Notes these [`other_files`]. Those from which the same is read are warned of."""
    reader = "sentence-transformers" if alike.reading else "transformers"
    changed, others_may = ("were written anew", "") if alike.file else ("were changed", " (other programs may not)")
    for change, names in others.items():
        same = {name for name in names if alike.covers(name)}
        verdict.add(change, names - same)
        if same:
            how = {LOST: "are missing", ADDED: "were added"}.get(change, changed)
            verdict.warnings.append(f"files {how}, and {reader} reads the same{others_may}: {listed(same)}")


def compare_lengths(saved: dict, now: int | None, alike: Alike, verdict: Verdict) -> None:
    """Notes that the tokenizer cuts texts to another length: `now`, `None` if it is not known. If sentence-transformers
    reads alike, it cuts texts as it did: it has a length of its own."""
    was = (saved.get("tokenizer") or {}).get("longest", now)
    if now is not None and was != now:
        limits = ("missing" if length >= NO_LIMIT else f"{length} tokens" for length in (now, was))
        said = "the tokenizer's own limit is {}, and was {}".format(*limits)
        cut = "; sentence-transformers cuts texts as it did"
        (verdict.warnings if alike.reading else verdict.differences).append(said + cut * alike.reading)


def alike_in(saved: dict, tokenizer: dict | None, folder: Path) -> Alike:
    """What makes the same of a text in this folder as by the manifest; `tokenizer`: what there is of it now."""
    was, now = saved.get("tokenizer") or {}, tokenizer or {}
    before, after = readings(saved, tokenizer, folder)
    is_read_alike = before is not None and before == after
    has_same_limit = is_read_alike or was.get("longest") == now.get("longest")
    is_same_tokenizer = "digest" in was and was["digest"] == now.get("digest") and has_same_limit
    is_same_file = was.get("file") == now.get("file")  # (an earlier version did not note it)
    return Alike(is_same_tokenizer and not changed_sides(was, now), is_read_alike, is_same_file)


def readings(saved: dict, tokenizer: dict | None, folder: Path) -> list[dict | None]:
    """How a text became a vector, and how it does now, by the files of sentence-transformers. Both have all prompts
    and the similarity, too: a changed prompt makes them differ. (Newer releases of sentence-transformers write the
    length that texts are cut to into the tokenizer's file, and earlier releases of the zoo fewer fields.)"""
    both = ((saved.get("reading"), saved.get("tokenizer")), (reading_in(folder), tokenizer))
    return [said and said | asdict(Reading.of(said).cut((of or {}).get("longest"))) for said, of in both]


def compare_readings(saved: dict, tokenizer: dict | None, folder: Path, verdict: Verdict) -> None:
    """Names what has changed of how a text becomes a vector, and of how vectors are compared."""
    before, now = readings(saved, tokenizer, folder)
    # (A tokenizer that does not load says no length.)
    if before and now and bool(saved.get("tokenizer")) == bool(tokenizer):
        verdict.differences += sentences(Reading.of(before), Reading.of(now))
    compare_searches(saved, folder, verdict)


def compare_searches(saved: dict, folder: Path, verdict: Verdict) -> None:
    """Names what has changed of prompts and of how vectors are compared, by the files of sentence-transformers."""
    before, now = saved.get("reading") or {}, reading_in(folder) or {}
    for name in ("prompts", "similarity"):
        if name in before and name in now:
            verdict.differences += changes({name: before[name]}, {name: now[name]})


def compare_weights(saved: dict, folder: Path, verdict: Verdict) -> set[str]:
    """Checks that the tensors in the folder's files are those that were saved, bit for bit. Returns the names of those
    that are others."""
    try:
        before, now = saved["weights"], digests_of_tensors(folder)
    except ValueError as error:
        verdict.differences.append(str(error))
        return set()
    if before and not now and any(folder.glob("pytorch_model*.bin")):
        verdict.differences.append("weights are not in *.safetensors any more: they are not compared bit for bit")
        return set()
    verdict.add("weights missing", but_positions(before.keys() - now.keys()))
    verdict.add("weights not the checkpoint's", but_positions(now.keys() - before.keys()))
    changed = changed_in(before, now)
    cast = cast_of(saved, folder) if len(changed) > CAST * len(before) else None
    verdict.add(cast or "weights changed", changed)
    unread = {*folder.glob("model-*-of-*.safetensors")} - {*weight_files_in(folder)}
    if unread:
        verdict.warnings.append(f"files of weights that are not read: {listed(path.name for path in unread)}")
    return changed


def cast_of(saved: dict, folder: Path) -> str | None:
    """What is said of weights that were saved in another type than those of the manifest, if they were."""
    was = saved.get("types") or [(saved["fingerprint"] or {}).get("dtype")]  # an earlier version noted no types
    now = sorted(types_in(folder))
    return f"weights are {listed(now)} now and were {listed(was)}" if now and None not in was and now != was else None


def but_positions(names: Collection[str]) -> set[str]:
    """These weights without tables of positions. (If a class reads one, loading says that it is missing.)"""
    return {name for name in names if name.rpartition(".")[2] != POSITIONS}


def changed_in(before: dict[str, str], now: dict[str, str]) -> set[str]:
    """The names whose digests differ."""
    return {name for name in before.keys() & now.keys() if before[name] != now[name]}


def compare_named_code(saved: dict, settings: dict, verdict: Verdict) -> None:
    """Notes code that settings name, and did not name when they were recorded; and the reverse."""
    for file, both in both_settings(saved, settings).items():
        named = [{name: one for name, one in fields.items() if any(named_by({name: one}, file))} for fields in both]
        verdict.differences += [f"{file}: {change}" for change in changes(*named)]


def compare_settings(saved: dict, settings: dict, loaded: dict, folder: Path, verdict: Verdict) -> None:
    """Checks that the settings are those that were saved. `loaded`: what the class of the configuration makes of both,
    by file; for it, a default that is left out is the same as one that is written out."""
    for file, both in both_settings(saved, settings).items():
        both = typed(*both, folder)
        if (file in saved["settings"]) != (file in settings):
            verdict.differences.append(f"{file} {'is missing' if file in saved['settings'] else 'was not recorded'}")
        found = [f"{file}: {change}" for change in changes(*both, loaded.get(file, ({}, {})))]
        harmless = [one for one in found if one.partition(" was ")[0].endswith((f" {HARMLESS}", f".{HARMLESS}"))]
        # (Code that settings name was compared before.)
        verdict.differences += [one for one in found if one not in (*verdict.differences, *harmless)]
        verdict.warnings += [f"{one}, which changes no output" for one in harmless]


def typed(before: dict, now: dict, folder: Path) -> tuple[dict, dict]:
    """The fields of two settings. A type that one of them leaves out counts as written if all weights of the folder
    have it."""
    old, new = (fields.get("dtype") or fields.get("torch_dtype") for fields in (before, now))
    if bool(old) == bool(new) or [old or new] != [*types_in(folder)]:
        return before, now
    others = ({name: each[name] for name in each if name != "torch_dtype"} for each in (before, now))
    return tuple(fields | {"dtype": old or new} for fields in others)


def compare_loaded(saved: dict, loaded: dict, changed: set[str], files_changed: bool, verdict: Verdict) -> None:
    """Checks that the model that `check.py` loaded has its files' weights, no others, and computes what it did.
    `changed`: the tensors that are others in their files. If other files have changed, the tokenizer's vocabulary and
    rules are compared, too."""
    compare_loading(saved, loaded, verdict)
    verdict.add("weights are not as in their file once loaded", loaded["not_as_in_file"])
    if saved["fingerprint"] is None:
        verdict.warnings.append("it was saved without outputs to compare with, since it could not be run then")
    else:
        drifted = compare_outputs(saved["fingerprint"], loaded["outputs"], loaded["dtype"], verdict)
        loaded = loaded | {"changed": [*loaded["not_as_in_file"], *changed]}
        compare_states(saved["fingerprint"], loaded, drifted, verdict)
    if was := saved.get("tokenizer"):
        compare_tokenizers(was, loaded["tokenizer"], verdict, with_rules=files_changed)


def compare_loading(saved: dict, loading: dict, verdict: Verdict) -> None:
    """Checks that loading matches the weights that it matched."""
    for kind in ("missing", "unexpected"):
        names = set(loading[kind]) - set(saved.get("loading", {}).get(kind, ()))
        verdict.add(f"weights {kind} when it is loaded", names)


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
    """Names the first part of the model whose states differ: why the outputs do, or a warning if they do not. (If
    settings have changed and no weight has, the settings are why.)"""
    before, now = fingerprint.get("states", {}), loaded.get("states", {})
    same = [now[name]["digest"] == before[name]["digest"] for name in before if name in now]
    verdict.figures["bit_for_bit"] = bool(same) and all(same)
    is_explained = verdict.names_setting and not loaded["changed"]
    if not is_explained and (change := first_change(fingerprint, loaded, verdict.figures["tolerance"])):
        verdict.figures["first_change"] = change._asdict()
        (verdict.differences if outputs_drifted else verdict.warnings).append(str(change))


def compare_texts(before: dict, now: dict, verdict: Verdict) -> None:
    """Checks that the tokenizer makes of the fixed text what it made of it."""
    kinds = {"ids": "a text", "pair": "a pair of texts", "decoded": "decoded ids", "chat": "a conversation"}
    changed = [kind for name, kind in kinds.items() if before.get(name) != now.get(name)]
    if changed:
        verdict.differences.append(f"the tokenizer makes something else of {listed(changed)}")
    verdict.add("special tokens", changes(before["special"], now["special"]))
    verdict.differences += changed_sides(before, now)


def changed_sides(before: dict, now: dict) -> list[str]:
    """A sentence for each change of the side at which a tokenizer pads or cuts texts, if a manifest says the side."""
    sides = (before["sides"], now["sides"]) if "sides" in before and "sides" in now else ({}, {})
    return [f"the tokenizer's {change}" for change in changes(*sides)]


def compare_tokenizers(
    before: dict, now: dict, verdict: Verdict, with_rules: bool = True, than: str = "before"
) -> None:
    """Checks what two tokenizers make of the fixed text; if that is the same, their vocabularies and rules
    (`with_rules`). `than`: what the first is called."""
    known = len(verdict.differences)
    compare_texts(before, now, verdict)
    if with_rules and len(verdict.differences) == known and before.get("digest", now["digest"]) != now["digest"]:
        verdict.differences.append(f"the tokenizer has another vocabulary or other rules than {than}")


def changes(before: dict, now: dict, loaded: Sequence[dict] = ({}, {}), prefix: str = "") -> list[str]:
    """A sentence for each field that has changed; a field of a nested object is named `object.field`.

    What only one of the two has is compared as it is `loaded` from each, if that shows it.
    """
    said = []
    # (Labels have numbers as keys once they are loaded, and text in JSON.)
    before, now, *loaded = ({str(name): value for name, value in each.items()} for each in (before, now, *loaded))
    for name in sorted(set().union(before, now, *loaded) - ORIGIN):
        files, shown = ([each.get(name) for each in pair] for pair in ((before, now), loaded))
        is_shown = any(name in each for each in loaded) and name not in UNSHOWN
        is_renamed = name in RENAMED and name not in now
        is_loaded = (is_shown or is_renamed) and not (name in before and name in now)
        old, new = shown if is_loaded else files
        if isinstance(old, dict) and isinstance(new, dict):
            inner = shown if all(isinstance(each, dict) for each in shown) else ({}, {})
            said += changes(*(({}, {}) if is_loaded else files), inner, f"{prefix}{name}.")
        elif old != new:
            said.append(f"{prefix}{name} was {old!r} and is {new!r}")
    return said
