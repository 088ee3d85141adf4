"""Pushes a checkpoint's folder to the Hub, in one commit."""

import json
import logging
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitInfo, HfApi, ModelCard
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import validate_repo_id

from .. import __version__
from ..converters.config_reading import check_names
from ..converters.sources import check_inside, no_folder
from ..families.auto_classes import FAMILIES
from ..proof.bill import check_drop
from ..proof.comparisons import compare_code, compare_named_code, compare_weights
from ..proof.contents import CARD, read_json, settings_in, weight_names_in
from ..proof.model_files import files_of_model
from ..proof.origin import listed
from ..proof.verdict import Verdict
from ..proof.verifying import read_manifest
from ..utils.errors import in_one_line
from ..utils.folder_kinds import MANIFEST
from ..utils.quiet import silenced_retrying
from .cards import with_source
from .model_card import card_of_model, is_outdated
from .uploading import REGISTER, is_unreachable, open_repository, own_activations, patiently, upload

logger = logging.getLogger(__name__)

#: what to do with a model that is not the zoo's
OFFICIAL = "Push an official model by `hf upload`, or convert it first (`tfm-zoo convert`)."


class PushError(RuntimeError):
    """An upload failed; the message says what the Hub lacks."""


def push(
    folder: str | Path,
    repo_id: str,
    private: bool | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    commit_message: str | None = None,
    native: bool = False,
    max_drop: float | None = None,
) -> CommitInfo:
    """Uploads a model in one commit: code, weights, tokenizer, settings, card and manifest.

    Exports, results of a recipe, and what the card links to or shows go along. A warning names all other files: they
    are not sent, and the manifest on the Hub does not name them. What a run leaves is not sent, without a word: its
    checkpoints, and formats that may run code when they are read.

    Until the commit is complete, the Hub shows what it showed before. A second push of the same folder changes nothing,
    and one after a failure uploads only what is missing. Weights and code of an earlier push that the folder does not
    hold are deleted. A card on the Hub that a person wrote stays; one that the zoo wrote is replaced.

    Args:
        folder: what `save_pretrained` wrote.
        repo_id: `"user/name"`; the repository, which is made if it is missing, `private` or not.
        revision: a branch, made if it is missing; by default the main one.
        token: by default the one of `hf auth login`.
        native: whether the folder holds an official model, such as a recipe trains with `--model_class native`.
        max_drop: the share that a quantised model may have lost, such as 0.005, by what it says of itself.

    Raises:
        FileNotFoundError: if there is no folder, or it lacks what the model needs.
        ValueError: for code or weights that were changed since they were saved, for a revision that is not a branch,
            for `private` where the repository is public, and for a quantised model that lost more than `max_drop`.
        PushError: if the Hub cannot be reached, or the upload fails.
    """
    folder, api = Path(folder), HfApi(token=token)
    validate_repo_id(repo_id)
    files = checked_files(folder, native, max_drop)
    command = push_command(folder, repo_id, private, revision, native)
    try:
        with told_if_unreachable(api, f"push when there is a connection: {command}"), silenced_retrying():
            repo_id = open_repository(api, repo_id, private, revision)
    except HfHubHTTPError as error:
        raise PushError(f"{repo_id}: {in_one_line(error)}. Nothing was sent; push again: {command}") from error
    message = commit_message or f"Upload {folder.resolve().name} with tfm_zoo {__version__}"
    try:
        card = card_of_folder(folder, repo_id)
        return upload(api, repo_id, files, card, revision=revision, commit_message=message)
    except Exception as error:  # of the network, of the Hub, or of the disk
        raise PushError(
            f"The upload to {repo_id} failed: {in_one_line(error)}. {lacking(error, api, files, repo_id, revision)}: "
            f"a push changes all or nothing. Push again ({command}): what is there is not sent a second time."
        ) from error


def push_command(
    folder: str | Path, repo_id: str, private: bool | None = None, revision: str | None = None, native: bool = False
) -> str:
    """The command that pushes a folder as [`push`] does. `tfm-zoo push` refuses a `native` model, so that is Python."""
    if native:
        given = ", private=True" * bool(private) + f', revision="{revision}"' * bool(revision)
        call = f'push("{folder}", "{repo_id}", native=True{given})'
        return shlex.join(["python", "-c", f"from tfm_zoo.hub import push; {call}"])
    options = [*(["--private"] if private else []), *(["--revision", revision] if revision else [])]
    return shlex.join(["tfm-zoo", "push", str(folder), repo_id, *options])


def files_to_push(
    folder: str | Path, repo_id: str, native: bool = False, max_drop: float | None = None
) -> dict[str, int]:
    """The files that [`push`] would send, with their sizes in bytes.

    It checks the folder, and asks the Hub for nothing. Arguments and errors are those of [`push`].
    """
    validate_repo_id(repo_id)
    files, card = checked_files(Path(folder), native, max_drop), card_of_folder(Path(folder), repo_id)
    files |= {} if card is None else {CARD: str(card).encode()}
    return {name: len(each) if isinstance(each, bytes) else each.stat().st_size for name, each in sorted(files.items())}


def checked_files(folder: Path, native: bool, max_drop: float | None) -> dict[str, Path | bytes]:
    """The files that a push sends, or the contents of those that change, by name. All is checked that needs no Hub."""
    if not folder.is_dir():
        raise FileNotFoundError(no_folder(folder))
    files, left = files_of_model(folder)
    check_inside(folder, [*files, *weight_names_in(folder)])
    check_whole(folder, files, native)
    config = read_json(folder / "config.json")
    check_names(folder / "config.json", config)
    if max_drop is not None:
        check_drop(config, str(folder), max_drop)
    saved = read_manifest(folder) if MANIFEST in files else None
    if not native:
        check_unchanged(folder, saved)
        check_code(config, folder, files)
    if left:
        logger.warning(f"{folder}: not pushed, as no part of the model: {listed(left)} (add them with `hf upload`)")
    if saved and (recorded := saved.get("files")) and not recorded.keys().isdisjoint(left):
        kept = {name: digest for name, digest in recorded.items() if name not in left}
        return files | {MANIFEST: f"{json.dumps(saved | {'files': kept}, indent=1)}\n".encode()}
    return files


@contextmanager
def told_if_unreachable(api: HfApi, later: str) -> Iterator[None]:
    """Raises a [`PushError`] where the Hub gives no answer. It says what to do later."""
    try:
        yield
    except Exception as error:
        if not is_unreachable(error):
            raise
        why = in_one_line(error)
        raise PushError(f"The Hub ({api.endpoint}) cannot be reached: {why}. Nothing was sent; {later}") from error


def check_whole(folder: Path, files: dict[str, Path], native: bool) -> None:
    """Refuses a folder without configuration or weights or, unless it is `native`, without manifest."""
    wanted = ("config.json", *(() if native else (MANIFEST,)), *weight_names_in(folder))
    missing = [name for name in wanted if name not in files]
    missing += [] if any(name.endswith(".safetensors") for name in files) else ["weights"]
    if missing:
        kind = "model" if native else "zoo model"
        hint = f" {OFFICIAL}" if missing == [MANIFEST] else ""
        raise FileNotFoundError(f"{folder} is not a folder of a {kind}: it lacks {', '.join(missing)}.{hint}")


def check_code(config: dict[str, Any], folder: Path, files: dict[str, Path]) -> None:
    """Refuses a model whose code is not all in the folder: nobody could load it."""
    targets = config.get("auto_map") or {}
    named = {f"{target.partition('.')[0]}.py" for target in map(str, targets.values()) if "--" not in target}
    if missing := sorted(named - files.keys()):
        raise FileNotFoundError(f"{folder}: config.json names code that is not there: {', '.join(missing)}. {REGISTER}")
    if "AutoConfig" not in targets or len(targets) < 2:
        raise FileNotFoundError(
            f"{folder}: config.json names no code of its configuration or its model. {OFFICIAL} "
            f"For a class of your own: {REGISTER}"
        )
    if said := own_activations(config):
        raise ValueError(f"{folder}: {said}")


def check_unchanged(folder: Path, saved: dict[str, Any]) -> None:
    """Refuses code or weights that are not those of the manifest: nobody could verify them."""
    verdict = Verdict(str(folder))
    compare_code(saved, folder, verdict)
    compare_named_code(saved, settings_in(folder), verdict)
    compare_weights(saved, folder, verdict)
    if not verdict.ok:
        raise ValueError(f"{verdict}. It differs from what was saved. Load it, save it again, and push that.")


def card_of_folder(folder: Path, repo_id: str) -> ModelCard | None:
    """The folder's own card, as one of the repository; without one, or if it [`is_outdated`], that of its zoo model."""
    config, card = read_json(folder / "config.json"), None
    if (folder / CARD).exists():
        text = (folder / CARD).read_text(encoding="utf-8")
        card = ModelCard(with_source(text, repo_id))
        if not is_outdated(text, config.get("quantization_config")):
            return card
    for module, config_class in FAMILIES.items():
        model_class = getattr(module, (config.get("architectures") or [""])[0], None)
        if config_class.model_type == config.get("model_type") and model_class:
            with torch.device("meta"):
                new = card_of_model(model_class(config_class.from_dict(config)), repo_id)
            if card:
                logger.warning(f"{folder / CARD} tells of the weights before these were rounded: another card is sent")
                for name in ("license", "language", "base_model", "datasets"):
                    if known := card.data.get(name):
                        new.data[name] = known
            return new
    if card is None:
        logger.warning(f"{folder} has no {CARD}: no card is sent. (`model.push_to_hub` writes one.)")
    return card


@patiently()
def lacking(error: Exception, api: HfApi, files: dict[str, Path | bytes], repo_id: str, revision: str | None) -> str:
    """A sentence on which of the files are not on the Hub after an error."""
    try:
        if isinstance(error, TimeoutError):  # it would take as long again
            raise error
        missing = sorted(files.keys() - set(api.list_repo_files(repo_id, revision=revision)))
        last = api.list_repo_commits(repo_id, revision=revision)[0]
    except Exception:
        return "The repository does not answer"
    return f"It lacks {', '.join(missing)}" if missing else f"Its last commit is {last.commit_id[:8]}, {last.title!r}"
