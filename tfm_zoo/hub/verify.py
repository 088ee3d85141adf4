"""Whether a checkpoint still is what it was when it was saved, and still computes what it did."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

from ..models import manifest as manifests
from ..models.contents import read_json
from .comparisons import (
    TOLERANCE,
    auto_class,
    compare_auto_map,
    compare_code,
    compare_loaded,
    compare_settings,
    compare_versions,
    compare_weights,
)
from .verdict import Verdict


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
        dtype: the type to load it in, a key of [`TOLERANCE`], within which outputs are then compared; by default the
            checkpoint's.

    Raises:
        FileNotFoundError: where there is no checkpoint, or none with a manifest.
        ValueError: for a manifest or a configuration that cannot be read, and for an unknown `dtype`.
    """
    if dtype not in ("auto", *TOLERANCE):
        raise ValueError(f"dtype={dtype!r} should be one of: auto, {', '.join(TOLERANCE)}.")
    folder = find(source, revision, token)
    saved, config = read_manifest(folder / manifests.FILE), read_json(folder / "config.json")
    verdict = Verdict(str(source))
    compare_versions(saved, verdict)
    compare_code(saved, folder, config, verdict)
    compare_weights(saved, folder, verdict)
    compare_auto_map(saved, config, verdict)
    auto = auto_class(config, verdict)
    if auto is not None:
        loaded, failure = load_elsewhere(folder.resolve(), auto, dtype, saved)
        compare_settings(loaded.get("settings", {}), verdict)
        if failure:
            verdict.differences.append(f"it does not load: {failure}")
        else:
            compare_loaded(saved, loaded, verdict)
    return verdict


def find(source: str | Path, revision: str | None, token: str | None) -> Path:
    """The folder of a checkpoint, downloaded where it is on the Hub."""
    if Path(source).is_dir():
        if not (Path(source) / manifests.FILE).is_file():
            raise FileNotFoundError(f"{source} has no {manifests.FILE}: it was not saved as a model of the zoo.")
        return Path(source)
    try:
        hf_hub_download(str(source), manifests.FILE, revision=revision, token=token)
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise FileNotFoundError(
            f"{source} is neither a folder nor a repository on the Hub that you may read (user/name)."
        ) from error
    except LocalEntryNotFoundError as error:
        raise FileNotFoundError(
            f"The Hub does not answer (or HF_HUB_OFFLINE is set), and its cache has no {manifests.FILE} of {source},"
            " which loading does not download: verify it once with a connection."
        ) from error
    except EntryNotFoundError as error:
        raise FileNotFoundError(f"{source} has no {manifests.FILE}: it was not saved as a model of the zoo.") from error
    return Path(snapshot_download(str(source), revision=revision, token=token))


def read_manifest(path: Path) -> dict:
    saved = read_json(path)
    missing = [name for name in manifests.FIELDS if name not in saved]
    if missing:
        raise ValueError(f"{path} has no {', no '.join(missing)}: it is no manifest, or of another version's form.")
    return saved


def load_elsewhere(folder: Path, auto: str, dtype: str, saved: dict) -> tuple[dict, str | None]:
    """What [`check`] finds in a fresh process, into which no code from a cache comes; and why it failed, if it did."""
    with tempfile.TemporaryDirectory() as modules:
        process = subprocess.run(
            [sys.executable, str(Path(__file__).parent / "check.py"), str(folder), auto, dtype],
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
