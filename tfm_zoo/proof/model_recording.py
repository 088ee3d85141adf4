"""Writes the manifest of any model that an Auto class loads: official, quantised, or with its own code."""

from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import HfApi

from ..converters.config_reading import check_sizes
from ..converters.sources import check_source
from ..utils.folder_kinds import MANIFEST, check_is_model
from .contents import ADAPTER, is_same, read_json, tensors_in
from .manifest import described, files_beside, fingerprint, tokenized, write
from .origin import listed, origin_of
from .verifying import check_files, class_of, find, load_in_fresh_process, loader_of, shapes_in

logger = transformers.logging.get_logger(__name__)


def record(
    model: transformers.PreTrainedModel | str | Path,
    folder: str | Path | None = None,
    *,
    output: str | Path | None = None,
    trust_remote_code: bool = False,
    revision: str | None = None,
    token: str | None = None,
) -> Path:
    """Writes a manifest (`zoo_manifest.json`) with which [`verify`] finds later what has changed.

    It holds versions, settings, the SHA-256 of every file that loading may read and of every tensor, and a fingerprint:
    fixed inputs with the outputs, the loss and the states after each part of the model, and what the tokenizer makes of
    a text and a conversation.

    Args:
        model: a checkpoint, a folder or a Hub id, that a fresh process loads with the class that its `architectures`
            names; or a model in memory that has been saved to `folder`.
        folder: where a model in memory was saved.
        output: the file to write; by default `zoo_manifest.json` in the folder. A Hub id needs it.
        trust_remote_code: run code of the checkpoint that is not that of a release of `tfm_zoo`.
        revision: a branch, a tag or a commit on the Hub.
        token: by default the one of `hf auth login`.

    Returns:
        The file.

    Raises:
        FileNotFoundError: if there is no such checkpoint, or no model in the folder.
        ValueError: for a checkpoint that needs other files than its own, such as an adapter; for one whose code may not
            be run, or that does not load; for a model in memory whose weights are not the folder's; for a Hub id
            without `output`.
    """
    in_memory = isinstance(model, transformers.PreTrainedModel)
    if not in_memory and not isinstance(model, str | Path):
        raise ValueError(
            f"{type(model).__name__} is not a model of transformers: record takes one, with the folder that it was "
            "saved to, or the folder or Hub id of a checkpoint."
        )
    if in_memory and folder is None:
        raise ValueError("folder is missing: name the one that the model was saved to.")
    if not in_memory and folder is not None:
        raise ValueError(f"folder={str(folder)!r} is for a model in memory; where the manifest goes, output= says.")
    source = folder if in_memory else model
    if output is None and not Path(source).is_dir():
        check_source(str(source), revision, token)
        raise ValueError(f"output is missing: {source} is not a folder that a manifest could be written to.")
    if output is not None and not Path(output).parent.is_dir():
        raise FileNotFoundError(f"output {str(output)!r}: there is no folder {str(Path(output).parent)!r}.")
    place = find(source, revision, token, needed=None).resolve()
    if (place / ADAPTER).is_file() and not (place / "config.json").is_file():
        raise ValueError(f"{source} cannot be recorded: it is an adapter; merge it into its base, and record that")
    check_is_model(place, source)
    config = read_json(place / "config.json")
    check_files(place)
    if shapes := shapes_in(place):
        check_sizes(place / "config.json", config, shapes)
    origin = origin_of(place)
    try:
        model_class, loader = class_of(config), loader_of(origin, trust_remote_code or in_memory)
        if in_memory:
            check_saved(model, place)
            held = {"fingerprint": fingerprint(model), "tokenizer": tokenized(place), "loading": {}}
        else:
            held = in_a_fresh_process(place, model_class, loader)
    except ValueError as error:
        whose = f" ({origin})" if origin.files else ""
        raise ValueError(f"{source} cannot be recorded: {error}{whose}") from error
    path = Path(output or place / MANIFEST)
    write(described(place) | files_beside(place) | held, path)
    return path


def check_saved(model: transformers.PreTrainedModel, folder: Path) -> None:
    """Raises a ValueError if a tensor of a model is not that of its folder. (A tensor of another type or shape is not
    compared: it may have been saved in another form.)"""
    held = model.state_dict()
    for name, saved in tensors_in(folder):
        own = held.get(name)
        is_comparable = own is not None and (own.dtype, own.shape) == (saved.dtype, saved.shape)
        if is_comparable and not is_same(own, saved):
            raise ValueError(f"its {name} is not that of the model in memory: save the model first")


def in_a_fresh_process(folder: Path, model_class: str, loader: str) -> dict[str, Any]:
    """What a checkpoint computes once it is loaded, and the weights that loading did not match."""
    loaded, failure = load_in_fresh_process(folder, model_class, loader, "auto", None)
    if failure:
        raise ValueError(failure)
    if loaded["missing"]:
        names = listed(loaded["missing"])
        logger.warning(f"{folder} lacks weights of {loaded['class']}, which loading initialises anew: {names}")
    kept = {name: loaded.get(name) for name in ("fingerprint", "tokenizer")}
    return kept | {"loading": {kind: loaded[kind] for kind in ("missing", "unexpected")}}


def propose(path: Path, repo_id: str, token: str | None = None, revision: str | None = None) -> str:
    """Opens a pull request on the Hub that adds a manifest to a repository; returns its address."""
    commit = HfApi(token=token).upload_file(
        path_or_fileobj=path,
        path_in_repo=MANIFEST,
        repo_id=repo_id,
        revision=revision,
        create_pr=True,
        commit_message="Add a manifest, with which `tfm-zoo verify` finds what has changed",
    )
    return commit.pr_url
