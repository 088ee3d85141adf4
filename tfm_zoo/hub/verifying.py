"""Whether a checkpoint is still as it was saved, and still computes what it computed then."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

from ..converters.config_reading import check_depth
from ..converters.sources import check_folder, check_inside, download, not_on_hub
from ..quiet import quiet_retrying
from . import comparisons
from .comparisons import TOLERANCE, Verdict
from .contents import weight_files_in
from .manifest import FILE

#: what every manifest has
FIELDS = ("tfm_zoo", "transformers", "torch", "settings", "code", "weights", "fingerprint")


def verify(
    source: str | Path,
    revision: str | None = None,
    token: str | None = None,
    dtype: str = "auto",
    *,
    python: str = sys.executable,
) -> Verdict:
    """Compares a checkpoint with its manifest: its files, and what a fresh process loads from them and computes.

    That process has transformers and the checkpoint's own code, which is run: verify what you would load.

    Args:
        source: a folder, or a Hub id.
        revision: a branch, a tag or a commit on the Hub.
        token: by default the one of `hf auth login`.
        dtype: the type to load it in, a key of [`TOLERANCE`], which says how far outputs may then drift; by default the
            checkpoint's.
        python: the interpreter that loads it, perhaps of another environment.

    Raises:
        FileNotFoundError: if there is no checkpoint, or one without a manifest.
        ValueError: for a manifest or a configuration that cannot be read, and for an unknown `dtype`.
    """
    if dtype not in ("auto", *TOLERANCE):
        raise ValueError(f"dtype={dtype!r} should be one of: auto, {', '.join(TOLERANCE)}.")
    folder = find(source, revision, token)
    saved, config = read_manifest(folder), read_json(folder / "config.json")
    verdict = Verdict(str(source))
    comparisons.compare_versions(saved, verdict)
    comparisons.compare_code(saved, folder, config, verdict)
    comparisons.compare_shipped(saved, verdict)
    comparisons.compare_weights(saved, folder, verdict)
    comparisons.compare_auto_map(saved, config, verdict)
    if auto_class := comparisons.auto_class(config, verdict):
        loaded, failure = load_in_fresh_process(folder.resolve(), auto_class, dtype, saved, python)
        for file, (before, now) in loaded.get("settings", {}).items():
            verdict.differences += [f"{file}: {change}" for change in comparisons.changes(before, now)]
        if failure:
            verdict.differences.append(f"it does not load: {failure}")
        else:
            comparisons.compare_loaded(saved, loaded, verdict)
    return verdict


def find(source: str | Path, revision: str | None, token: str | None) -> Path:
    """The folder of a checkpoint, downloaded where it is on the Hub."""
    if Path(source).is_dir():
        if not (Path(source) / FILE).is_file():
            raise FileNotFoundError(without_manifest(source))
        return Path(source)
    check_folder(source, token)
    folder = download(source, [FILE], revision, token)
    if not (folder / FILE).is_file():  # missing on the Hub, or not asked for while there was a connection
        try:
            with quiet_retrying():
                hf_hub_download(str(source), FILE, revision=revision, token=token)
        except LocalEntryNotFoundError as error:
            raise FileNotFoundError(not_on_hub(source, error, revision)) from error
        except EntryNotFoundError as error:
            place = " on its main branch (others may have it)" if revision is None else f" at revision {revision!r}"
            raise FileNotFoundError(without_manifest(f"{source}{place}")) from error
    return Path(snapshot_download(str(source), revision=revision, token=token))


def without_manifest(source: str | Path) -> str:
    return f"{source} has no {FILE}: it was not saved as a model of the zoo."


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest in a checkpoint's folder; a ValueError says what it lacks."""
    saved = read_json(folder / FILE)
    if missing := [name for name in FIELDS if name not in saved]:
        missing = ", no ".join(missing)
        raise ValueError(f"{folder / FILE} has no {missing}: it is no manifest, or has the format of another version.")
    check_inside(folder, (*saved["code"], *weight_files_in(folder)))
    check_depth(folder, read_json(folder / "config.json"), saved["weights"])
    return saved


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; a ValueError names a file that is missing or holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {type(content).__name__} where a JSON object is wanted.")
    return content


def load_in_fresh_process(
    folder: Path, auto_class: str, dtype: str, saved: dict, python: str = sys.executable
) -> tuple[dict[str, Any], str | None]:
    """What `check.py` finds when transformers has no code of checkpoints cached; and, if it fails, the last line of its
    error."""
    with tempfile.TemporaryDirectory() as modules:
        process = subprocess.run(
            [python, str(Path(__file__).with_name("check.py")), str(folder), auto_class, dtype],
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
