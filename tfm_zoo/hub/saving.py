"""How zoo models are saved and pushed where `tfm_zoo` is: as transformers does. A save writes a manifest, too,
and a push writes a missing card.

`register` in plugin/registration.py makes these functions methods of all zoo models. The code that travels with a
checkpoint has none of them: where there is no `tfm_zoo`, and in a model that was made by a checkpoint's own code,
transformers saves and pushes. The model keeps its code then. It has no manifest, or an earlier one, by which `verify`
finds that it has changed.
"""

import re
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitInfo, HfApi, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from transformers.utils import logging

from ..converters.sources import OF_SENTENCES
from ..families.auto_classes import FAMILIES
from ..models.pretrained import TfmPreTrainedModel
from ..proof import manifest
from ..proof.contents import CARD
from ..proof.sentence_files import MODULES, PROMPTS
from ..utils.locking import atomic_files
from .model_card import card_of_model, is_outdated
from .sharded_models import gathered, is_sharded, own_class, plain_name, rebuilt
from .uploading import REGISTER, open_repository, own_activations, upload

logger = logging.get_logger(__name__)

#: options of `push_to_hub`, which `save_pretrained(push_to_hub=True)` takes too
PUSH_OPTIONS = {"commit_message", "commit_description", "private", "token", "revision", "create_pr", "tags"}

#: the number of a file of weights, of how many
SHARD = re.compile(r"-\d{5}-of-\d{5}(?=\.safetensors$)")


def save_pretrained(
    self: TfmPreTrainedModel,
    save_directory: str | Path,
    is_main_process: bool = True,
    state_dict: dict[str, torch.Tensor] | None = None,
    push_to_hub: bool = False,
    **kwargs: Any,
) -> None:
    """Saves as transformers does, and then writes a manifest. If a file cannot be saved, those that were there stay.

    A sharded model is saved as a whole one: give `state_dict=accelerator.get_state_dict(model)`. With FSDP2 it may be
    left out if all processes call this.
    """
    folder = Path(save_directory)
    if state_dict is not None:
        state_dict = {plain_name(name): value for name, value in state_dict.items()}
    if is_sharded(self):
        return save_whole(self, folder, is_main_process, state_dict, push_to_hub=push_to_hub, **kwargs)
    if state_dict is not None:  # engines copy tied weights: only one of each is saved
        tied = self.all_tied_weights_keys  # a copy's name -> the name that is saved
        copies = [name for name, saved in tied.items() if saved in state_dict]
        state_dict = {name: value for name, value in state_dict.items() if name not in copies}
    if push_to_hub:
        check_code(self)
    weights = state_dict and dict(state_dict)  # transformers empties the dict that it saves
    options = {name: kwargs.pop(name) for name in PUSH_OPTIONS & kwargs.keys()} if push_to_hub else {}
    repo_id = kwargs.pop("repo_id", folder.name)
    is_together = kwargs.get("distributed_checkpoint")  # all processes write to one folder
    with nullcontext(folder) if is_together else atomic_files(folder) as new:
        super(TfmPreTrainedModel, self).save_pretrained(
            new, is_main_process=is_main_process, state_dict=state_dict, **kwargs
        )
        saved = {path.name for path in new.iterdir()}
    kinds = {SHARD.sub("", name) for name in saved}
    for path in folder.glob("*-of-*.safetensors"):  # of an earlier save: transformers deletes them, too
        if path.name not in saved and SHARD.sub("", path.name) in kinds:
            path.unlink()
    # An adapter is saved without the model's configuration and code.
    if is_main_process and "config.json" in saved:
        manifest.write_manifest(self, folder, weights)
        warn_of_sentence_files(self, folder)
        warn_of_own_class(self)
        if said := own_activations(self.config.to_dict()):
            logger.warning_once(said)
        warn_of_card(self, folder)
    if push_to_hub and is_main_process:
        save_and_push(self, repo_id, {"state_dict": weights} | kwargs, **options)


def warn_of_own_class(model: TfmPreTrainedModel) -> None:
    """Warns once of a class of somebody's own that is saved with the `model_type` of a zoo class, as which it loads."""
    own, kind, autos = own_class(model), model.config.model_type, [*model.config.auto_classes.values()]
    if own.__module__.startswith("tfm_zoo.") or all(kind != each.model_type for each in FAMILIES.values()):
        return
    zoo = [each.__name__ for each in own.__mro__ if each.__module__.startswith("tfm_zoo.") and each.__name__ in autos]
    logger.warning_once(
        f"{own.__name__} is saved with model_type={kind!r}, which is the zoo's: AutoModel will load the zoo's class "
        f"{(zoo or autos[1:])[0]} in its place, without the parts that {own.__name__} changes. Give it a configuration "
        "with a model_type of its own (docs/change_the_block.md)."
    )


def warn_of_sentence_files(model: TfmPreTrainedModel, folder: Path) -> None:
    """Warns once if files of sentence-transformers lie beside an encoder's source, and not in the folder of the copy.

    A model with a head has another use. sentence-transformers writes its prompts first, and `modules.json` last.
    """
    source = model.config.name_or_path or model.name_or_path
    if model.base_model is not model or not source or any((folder / name).is_file() for name in (MODULES, PROMPTS)):
        return
    modules = Path(source, MODULES)
    if not Path(source).is_dir():
        with suppress(HFValidationError):  # the name of a folder that was deleted
            cached = try_to_load_from_cache(source, MODULES)
            modules = Path(cached) if isinstance(cached, str) else modules  # else: not there, or not known
    if modules.is_file():
        place = modules.parent
        files = sorted(str(file.relative_to(place)) for each in OF_SENTENCES for file in place.glob(each))
        logger.warning_once(
            f"{type(model).__name__} is saved without the files of sentence-transformers in {source} "
            f"({', '.join(files)}). Where they are missing, vectors are not those of the source: CorpusReader and "
            "SentenceTransformer do not know how states are pooled, whether vectors have length 1, and where long "
            "texts are cut. To keep them, save in a folder that has them, as `tfm-zoo convert` writes one."
        )


def warn_of_card(model: TfmPreTrainedModel, folder: Path) -> None:
    """Warns if the card in the folder tells of the model before its weights were rounded as they are."""
    card, quantization = folder / CARD, getattr(model.config, "quantization_config", None)
    if card.is_file() and is_outdated(card.read_text("utf-8", "replace"), quantization):
        logger.warning(f"{card} tells of the model before its weights were rounded. (`tfm-zoo push` writes another.)")


def save_whole(
    model: TfmPreTrainedModel, folder: Path, is_main_process: bool, weights: dict | None, **options: Any
) -> None:
    """Saves a sharded model as an ordinary one, on the first process."""
    weights = gathered(model) if weights is None else weights
    if not is_main_process or (torch.distributed.is_initialized() and torch.distributed.get_rank() > 0):
        return
    if weights is None:
        raise ValueError("The model is sharded: pass state_dict=accelerator.get_state_dict(model).")
    model = rebuilt(model, weights)
    lacks_some = any(parameter.is_meta for parameter in model.parameters())
    model.save_pretrained(folder, state_dict=weights if lacks_some else None, **options)


def push_to_hub(
    self: TfmPreTrainedModel,
    repo_id: str,
    *,
    max_shard_size: int | str = "50GB",
    tags: list[str] | str | None = None,
    **options: Any,
) -> CommitInfo:
    """Uploads weights, configurations, code, manifest and card in one commit, with transformers' own `options`.

    Weights and code of an earlier upload that this one does not bring are deleted. A card that somebody wrote stays,
    with `tags` added to its own; one that the zoo wrote is replaced.
    """
    check_code(self)
    if getattr(self, "_hf_peft_config_loaded", False):  # only an adapter is saved
        push = super(TfmPreTrainedModel, self).push_to_hub
        return push(repo_id, max_shard_size=max_shard_size, tags=tags or [], **options)
    return save_and_push(self, repo_id, {"max_shard_size": max_shard_size}, tags, **options)


def check_code(model: TfmPreTrainedModel) -> None:
    """Raises a `ValueError` for somebody's own activation, model or configuration whose code would not be pushed."""
    if said := own_activations(model.config.to_dict()):
        raise ValueError(said)
    classes = own_class(model), type(model.config)
    if classes[0].__module__.startswith("tfm_zoo."):
        return
    unsaved = [each.__name__ for each in classes if each._auto_class is None or each.__module__ == "__main__"]
    if unsaved:
        raise ValueError(f"Nobody could load it: the code of {' and '.join(unsaved)} is not saved. {REGISTER}")


def save_and_push(
    model: TfmPreTrainedModel,
    repo_id: str,
    save_options: dict[str, Any],
    tags: Sequence[str] | str | None = None,
    **options: Any,
) -> CommitInfo:
    """Saves to an empty folder, and uploads it."""
    api = HfApi(token=options.pop("token", None))
    repo_id = open_repository(api, repo_id, options.pop("private", None), options.get("revision"))
    tags = [*(model.model_tags or ()), *([tags] if isinstance(tags, str) else tags or ())]
    options["commit_message"] = options.get("commit_message") or f"Upload {type(model).__name__}"
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, **save_options)
        files = {path.name: path for path in Path(folder).iterdir()}
        return upload(api, repo_id, files, card_of_model(model, repo_id), tags, **options)
