"""Whether a checkpoint is still as it was saved, and still computes what it computed then."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

from ..converters.checkpoint import WEIGHTS, open_weights
from ..converters.config_reading import check_sizes
from ..converters.errors import ConversionError
from ..converters.sources import (
    MANIFEST,
    check_folder,
    check_inside,
    check_recorded,
    download,
    not_on_hub,
    without_manifest,
)
from ..utils.pointers import refuse_pointers
from ..utils.quiet import silenced_retrying
from . import comparisons
from .comparisons import TOLERANCE
from .contents import CARD, UNREAD_FORMATS, files_in, is_unread, read_json, settings_in, weight_names_in
from .origin import Origin, listed, origin_of
from .verdict import Verdict

ANY_NAME = ...  # as a key of `FORM`: a field of any name
TEXTS, LISTS = {ANY_NAME: ""}, {ANY_NAME: []}
#: the types of what a manifest has, and of what it may have. (`reading` says how a text becomes a vector.)
FORM = {
    **dict.fromkeys(("tfm_zoo", "transformers", "torch"), ""),
    **{"settings": {ANY_NAME: {}}, "code": TEXTS, "weights": TEXTS, "files": TEXTS},
    **{"tested": LISTS, "loading": LISTS, "types": [], "tokenizer": {}, "reading": {}},
    "fingerprint": {
        **{"dtype": "", "inputs": LISTS, "labels": LISTS, "outputs": {ANY_NAME: {"shape": [], "values": []}}},
        "states": {ANY_NAME: {"class": "", "dtype": "", "digest": "", "shape": [], "values": []}},
    },
}
OPTIONAL = ("tested", "files", "loading", "tokenizer", "types", "reading", "labels", "states")
MAY_BE_NONE = ("fingerprint", "tokenizer", "reading")
FIELDS = tuple(name for name in FORM if name not in OPTIONAL)  # that every manifest has


def verify(
    source: str | Path,
    revision: str | None = None,
    token: str | None = None,
    dtype: str = "auto",
    *,
    python: str = sys.executable,
    manifest: str | Path | None = None,
    trust_remote_code: bool = False,
    run_changed: bool = False,
    code_only: bool = False,
) -> Verdict:
    """Compares a checkpoint with its manifest: its files, and what a fresh process loads from them and computes.

    A manifest shows accidents and drift: a file that was edited, a library that computes otherwise. It cannot show
    forgery, since a forger can write a new manifest. A signature (OpenSSF model signing) shows who wrote the bytes.

    No code of the folder runs without `trust_remote_code`. transformers' own classes load official models. The
    installed `tfm_zoo` loads models whose code is that of one of its releases, file by file; in another environment
    (`python`) that code itself does.

    Args:
        source: a folder, or a Hub id.
        revision: a branch, a tag or a commit on the Hub.
        token: by default the one of `hf auth login`.
        dtype: the type to load it in, a key of [`TOLERANCE`], which says how far outputs may then drift; by default the
            checkpoint's.
        python: the interpreter that loads it, perhaps of another environment. There the zoo's models are loaded by the
            code that they carry.
        manifest: the file, where it is not in the folder.
        trust_remote_code: run the folder's own code, if it is as it was recorded.
        run_changed: run it also if it has been changed since.
        code_only: say whose code it is and whether it was changed, and load nothing.

    Raises:
        FileNotFoundError: if there is no checkpoint, or one without a manifest.
        ValueError: for a manifest or a configuration that cannot be read, and for an unknown `dtype`.
    """
    if dtype not in ("auto", *TOLERANCE):
        raise ValueError(f"dtype={dtype!r} should be one of: auto, {', '.join(TOLERANCE)}.")
    folder = find(source, revision, token, needed=None if manifest else MANIFEST)
    saved = read_manifest(folder, Path(manifest) if manifest else None)
    config, settings, origin = read_json(folder / "config.json"), settings_in(folder), origin_of(folder)
    verdict = Verdict(str(source), code=str(origin))
    if not code_only and (other := comparisons.another_class(saved, settings, source)):
        verdict.differences.append(other)
        return verdict
    comparisons.compare_code(saved, folder, verdict)
    comparisons.compare_with_release(saved, origin, verdict)
    comparisons.compare_named_code(saved, settings, verdict)
    code_changed = not verdict.ok  # (so far, all differences are of code)
    if code_only:
        comparisons.compare_unrun_code(saved, origin, verdict)
        verdict.figures["code_only"] = True
        return verdict
    others = comparisons.other_files(saved, folder, verdict)
    changed = comparisons.compare_weights(saved, folder, verdict)
    try:
        loader = loader_of(origin, trust_remote_code, code_changed and not run_changed)
        model_class = class_of(config)
    except ValueError as error:
        comparisons.note_files(others, verdict, comparisons.Alike())
        comparisons.compare_settings(saved, settings, {}, folder, verdict)
        verdict.differences.append(str(error))
        return verdict
    if loader == "tfm_zoo" and python != sys.executable:  # it may lack `tfm_zoo`: the same code lies in the folder
        loader = "folder"
    verdict.figures["loader"] = loader
    loaded, failure = load_in_fresh_process(folder.resolve(), model_class, loader, dtype, saved, python)
    tokenizer = loaded.get("tokenizer") or {}
    comparisons.compare_readings(saved, tokenizer, folder, verdict)
    alike = comparisons.alike_in(saved, tokenizer, folder)
    comparisons.note_files(others, verdict, alike)
    comparisons.compare_lengths(saved, tokenizer.get("longest"), alike, verdict)
    comparisons.compare_tested(saved, loaded.get("transformers", transformers.__version__), verdict)
    comparisons.compare_settings(saved, settings, loaded.get("settings", {}), folder, verdict)
    if failure:
        verdict.differences.append(f"it does not load: {failure}")
    else:
        comparisons.compare_loaded(saved, loaded, changed, files_changed=any(others.values()), verdict=verdict)
    return verdict


def loader_of(origin: Origin, trust_remote_code: bool, needs_run_changed: bool = False) -> str:
    """Whose code loads a checkpoint: see `check.py`.

    Raises:
        ValueError: saying why no class does.
    """
    if origin.foreign:
        raise ValueError(f"it was not run: {listed(origin.foreign)}")
    if not origin.files:
        return "transformers"
    if not trust_remote_code and origin.is_released:
        return "tfm_zoo"
    needed = [] if trust_remote_code else ["trust_remote_code=True"]
    if needed := needed + (["run_changed=True"] if needs_run_changed else []):
        raise ValueError(f"it was not run, since that needs {' and '.join(needed)}")
    return "folder"


def class_of(config: dict[str, Any]) -> str:
    """The class of transformers that loads a checkpoint with its head: an Auto class, where it has its own code.

    Raises:
        ValueError: if there is no such code.
    """
    names, targets = config.get("architectures"), config.get("auto_map") or {}
    name = str(names[0]) if names and isinstance(names, list) else "AutoModel"
    if not targets:
        if not hasattr(getattr(transformers, name, None), "from_pretrained"):
            raise ValueError(
                f"it does not load: config.json names class {name}, which neither transformers "
                f"{transformers.__version__} nor the folder has. If another release of transformers has it, install "
                "that. A class of your own needs a configuration with a model_type of its own, and its code in the "
                "folder (docs/change_the_block.md)"
            )
        return name
    auto = next((auto for auto, target in targets.items() if str(target).rpartition(".")[2] == name), None)
    if auto is None or not auto.startswith("Auto") or not hasattr(transformers, auto):
        raise ValueError(f"it does not load: no Auto class in the auto_map of config.json gives a {name}")
    return auto


def find(source: str | Path, revision: str | None, token: str | None, needed: str | None = MANIFEST) -> Path:
    """The folder of a checkpoint, downloaded where it is on the Hub; `needed`: a manifest that it should have."""
    if Path(source).is_dir():
        refuse_pointers(source)
        if needed:
            check_recorded(source)
        return Path(source)
    check_folder(source, token)
    folder = download(source, [needed or "config.json"], revision, token)
    if needed and not (folder / needed).is_file():  # the repository lacks it; or, without a connection, the cache does
        try:
            with silenced_retrying():
                hf_hub_download(str(source), needed, revision=revision, token=token)
        except EntryNotFoundError as error:
            place = " on its main branch (others may have it)" if revision is None else f" at revision {revision!r}"
            is_away = isinstance(error, LocalEntryNotFoundError)
            reason = not_on_hub(source, error, revision) if is_away else without_manifest(f"{source}{place}")
            raise FileNotFoundError(reason) from error
    return Path(snapshot_download(str(source), revision=revision, token=token, ignore_patterns=[*UNREAD_FORMATS]))


def read_manifest(folder: Path, path: Path | None = None) -> dict[str, Any]:
    """The manifest of a checkpoint's folder, in it or at `path`; a ValueError says what it lacks."""
    path = path or folder / MANIFEST
    saved = read_json(path)
    if "canaries" in saved:
        raise ValueError(f"{path} is the proof of vectors, and {folder} is a model: verify the vectors with --model.")
    if missing := ", no ".join(name for name in FIELDS if name not in saved):
        raise ValueError(f"{path} has no {missing}: it is not a manifest, or has the format of another version.")
    if wrong := ", ".join(misfits(saved, FORM)):
        raise ValueError(f"{path} is not a manifest, or has the format of another version: look at {wrong}.")
    check_files(folder, *saved["code"], *saved.get("files", ()))
    try:
        shapes = shapes_in(folder)
    except ConversionError:  # of files that are not whole, which is a difference
        shapes = [()] * len(saved["weights"])  # not known: only their number is checked
    if shapes:
        check_sizes(folder / "config.json", read_json(folder / "config.json"), shapes)
    return saved


def shapes_in(folder: Path) -> list[torch.Size]:
    """The shapes of a checkpoint's weights, without reading these."""
    if not any((folder / name).is_file() for name in WEIGHTS):
        return []
    return [tensor.meta.shape for tensor in open_weights(folder, mapped=True).values()]


def misfits(value: Any, form: Any, name: str = "") -> Iterator[str]:
    """The names of what is missing, or has another type than in `form`."""
    if value is None and name in MAY_BE_NONE:
        return
    if not isinstance(value, type(form)):
        yield name
    elif isinstance(form, dict):
        needed = [field for field in form if field in value or field not in OPTIONAL]
        for field in value if ANY_NAME in form else needed:
            yield from misfits(value.get(field), form.get(field, form.get(ANY_NAME)), f"{name}.{field}".lstrip("."))


def check_files(folder: Path, *names: str) -> None:
    """Refuses a folder if a file, or one of these names, lies elsewhere; and one with links to folders, which
    are not looked into."""
    check_inside(folder, (*names, MANIFEST, CARD, *weight_names_in(folder), *sorted(files_in(folder))))
    links = [path for path in folder.rglob("*") if path.is_symlink() and path.is_dir()]
    if wrong := sorted(str(path) for path in links if not is_unread(path.relative_to(folder))):
        raise ValueError(f"{listed(wrong)}: a link to a folder. A checkpoint's folders must lie inside it.")


def load_in_fresh_process(
    folder: Path, model_class: str, loader: str, dtype: str, saved: dict | None, python: str = sys.executable
) -> tuple[dict[str, Any], str | None]:
    """What `check.py` finds when transformers has no code of checkpoints cached; and, if it fails, the last line of its
    error."""
    with tempfile.TemporaryDirectory() as modules:
        process = subprocess.run(
            [python, str(Path(__file__).with_name("check.py")), str(folder), model_class, loader, dtype],
            input=json.dumps(saved),
            env=os.environ | {"HF_MODULES_CACHE": modules, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
        )
    loaded = {}
    for line in process.stdout.splitlines():
        loaded |= json.loads(line)
    lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
    return loaded, lines[-1] if process.returncode else None
