"""Tells whether a model's name is a folder or a Hub id; the errors for a name that is neither."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from ..utils.folder_kinds import MANIFEST, check_is_model
from ..utils.pointers import refuse_pointers
from ..utils.quiet import silenced_retrying
from .errors import ConversionError

#: what is written to OUT lies in `.OUT.partial` until it is whole, and the OUT that it replaces in `old` there
UNFINISHED, OLD = ".partial", "old"
#: files of sentence-transformers beside a model: how a text becomes a vector
OF_SENTENCES = ("modules.json", "sentence_*_config.json", "config_sentence_transformers.json", "[0-9]*_*/*")


def is_path(source: str | Path, token: str | None = None) -> bool:
    """Whether `source` names a folder, which may be missing, and not a Hub id. A name that could be both is a misspelt
    folder if a folder has a similar name and the Hub has no such model."""
    depth = len(Path(source).parts)
    if Path(source).is_dir() or str(source).startswith((".", "~", "/")) or depth > 2:
        return True
    return depth == 2 and similar_folder(source) is not None and not is_on_hub(str(source), token)


def is_on_hub(repo: str, token: str | None = None) -> bool:
    """Whether the Hub, or its cache, has a repository. Without a connection the answer comes at once: a download would
    try for half a minute."""
    try:
        is_cached = isinstance(try_to_load_from_cache(repo, "config.json"), str)
        return is_cached or bool(HfApi(token=token).model_info(repo, timeout=10))
    except Exception:  # whatever the reason is, the Hub has not said yes
        return False


def similar_folder(source: str | Path) -> Path | None:
    """The folder beside `source` whose name is most like its name."""
    parent, name = Path(source).parent, Path(source).name
    names = [path.name for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []
    matches = get_close_matches(name, names, n=1)
    return parent / matches[0] if matches else None


def which_is_meant(source: str | Path) -> str:
    """The end of the error for a missing folder: the folder with the most similar name, if there is one."""
    similar, replaced = similar_folder(source), Path(source).parent / f".{Path(source).name}{UNFINISHED}" / OLD
    if replaced.is_dir():
        return f": the process that was to replace it was killed, and it lies in {str(replaced)!r}."
    return f"; did you mean {str(similar)!r}?" if similar else "."


def no_folder(source: str | Path) -> str:
    """The error for a missing folder."""
    return f"There is no folder {str(source)!r}{which_is_meant(source)}"


def check_inside(folder: Path, names: Iterable[str | Path]) -> None:
    """Raises a `ConversionError` for a name that leads out of a folder: from the root, by `..`, or through a link.

    A folder of the Hub's cache consists of links, to the `blobs` of its repository.
    """
    folder = folder.resolve()
    roots = (folder, folder.parents[1] / "blobs") if folder.parent.name == "snapshots" else (folder,)
    for name in names:
        if not isinstance(name, (str, Path)) or not str(name) or "\0" in str(name):
            raise ConversionError(f"{folder} names {name!r} as a file, and that is not a name of one.")
        place = (folder / name).resolve()
        if not any(place.is_relative_to(root) for root in roots):
            raise ConversionError(f"{name} leads out of {folder}, to {place}: files of a checkpoint lie in its folder.")


def check_folder(source: str | Path, token: str | None = None) -> None:
    """Raises a `FileNotFoundError` if `source` names a missing folder, and a `ConversionError` for a folder with
    pointers of Git LFS."""
    if is_path(source, token) and not Path(source).is_dir():
        raise FileNotFoundError(no_folder(source))
    refuse_pointers(source, ConversionError)


def check_source(source: str, revision: str | None = None, token: str | None = None) -> None:
    """Raises a `FileNotFoundError` if there is no checkpoint of this name: it downloads the `config.json` of a Hub id.
    Commands ask before they import what takes seconds."""
    check_folder(source, token)
    if not Path(source).exists():
        download(source, ["config.json"], revision, token)


def check_recorded(folder: str | Path) -> None:
    """Raises a `FileNotFoundError` for a folder without a manifest; it says if this is not a model at all."""
    if not Path(folder, MANIFEST).is_file():
        check_is_model(Path(folder), folder)
        raise FileNotFoundError(without_manifest(folder))


def without_manifest(source: str | Path) -> str:
    """The error for a checkpoint that was not recorded."""
    start = f"{source} has no {MANIFEST}, which zoo models get when they are saved where tfm_zoo is imported."
    return f"{start} `tfm-zoo record` writes one for any model but an adapter. --manifest names one that is elsewhere."


def download(
    source: str | Path, patterns: Sequence[str], revision: str | None = None, token: str | None = None
) -> Path:
    """A folder with those files of a Hub repository that match one of the patterns, if there are such files. Without a
    connection it has those in the cache. The Hub's client then gives up at once; it would try for half a minute if it
    were asked for one file by its name.

    Raises:
        FileNotFoundError: if the Hub lacks the repository or the revision. Without a connection: if the cache lacks the
            repository, or one of these files that it lists.
    """
    try:
        with silenced_retrying():
            return Path(snapshot_download(str(source), revision=revision, token=token, allow_patterns=[*patterns]))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise FileNotFoundError(not_on_hub(source, error, revision)) from error


def not_on_hub(source: str | Path, error: Exception, revision: str | None = None) -> str:
    """The error for a name that is not a folder, and for which the Hub's client has raised `error`."""
    name, hint = str(source), which_is_meant(source)
    if isinstance(error, LocalEntryNotFoundError):
        files = name if revision is None else f"{name}, revision {revision!r}"
        reason = f"the Hub cannot be reached (or HF_HUB_OFFLINE is set), and its cache lacks files of {files}"
        return f"{name!r} is neither a folder nor a model on the Hub that can be read now: {reason}{hint}"
    if isinstance(error, RevisionNotFoundError):
        return f"{name!r} has no revision {revision!r} on the Hub."
    if isinstance(error, (RepositoryNotFoundError, HFValidationError)) and not isinstance(error, GatedRepoError):
        return f"{name!r} is neither a folder nor a model on the Hub that you may read (user/name){hint}"
    return f"{name!r} is not a folder, and the Hub does not give a model of this name: {error}"
