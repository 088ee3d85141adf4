"""Zoo classes by name, and models for subcommands to work with. (Importing this module takes seconds.)"""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ..converters import ConversionError, from_official
from ..converters.checkpoint import fetch, open_folder, read_config
from ..converters.choosing import is_derived, official_for
from ..converters.config_conversion import to_official_fields
from ..converters.config_reading import made_of
from ..converters.tensor_matching import enumerated
from ..families.auto_classes import FAMILIES
from ..utils.quiet import silenced, silenced_loading
from .screen import notes


def find_class(name: str, family: str | None = None) -> type[PreTrainedModel]:
    """A zoo class, of a family, by its name or by its head's: `TfmBertForMaskedLM`, `MaskedLM` or `masked-lm`."""
    classes = {
        class_name: getattr(module, class_name)
        for module, config_class in FAMILIES.items()
        for class_name in (*config_class.auto_classes.values(), *config_class.other_auto_classes)
        if family in (None, config_class.model_type) and class_name != config_class.__name__
    }
    wanted = name.replace("-", "").replace("_", "").lower()
    for class_name, model_class in classes.items():
        if wanted in (class_name.lower(), class_name.partition("For")[2].lower()):
            return model_class
    group = "the zoo" if family is None else f"the zoo's family {family}"
    raise ConversionError(f"{name!r} is not a class of {group}; choose from {', '.join(classes)}.")


def is_zoo(config: dict[str, Any]) -> bool:
    """Whether a `config.json` is that of a zoo model."""
    return str(config.get("model_type")).startswith("tfm_")


def check_is_zoo(config: dict[str, Any], source: str | Path) -> None:
    """Refuses the `config.json` of another model; `source`: what that is called in the error."""
    if is_zoo(config):
        return
    found = f"{source} holds a model of type {config.get('model_type')!r}"
    if is_derived(config):
        derived = "whose class is derived from one of the zoo's: export takes the zoo's own classes alone"
        raise ConversionError(f"{found}, {derived}.")
    raise ConversionError(f"{found}, not one of the zoo: `tfm-zoo convert` first.")


def load(folder: Path, dtype: torch.dtype | str = "auto") -> PreTrainedModel:
    """A zoo model, by the class that its `config.json` names; `"auto"`: in the type of its weights."""
    config, tensors, _ = open_folder(folder, mapped=True)  # (An error below reads the tensors' shapes.)
    check_is_zoo(config, folder)
    model_class = find_class((config.get("architectures") or ["None"])[0])
    # (`made_of` names a field that is wrong.)
    made_of(lambda fields: model_class.config_class.from_dict(fields).to_dict(), config, folder / "config.json")
    try:
        with silenced_loading():
            return model_class.from_pretrained(folder, dtype=dtype)
    except RuntimeError as error:  # which does not say what does not fit
        with torch.device("meta"):
            wanted = model_class(model_class.config_class.from_dict(config)).state_dict()
        shapes = {
            name: (tuple(tensors[name].meta.shape), tuple(wanted[name].shape)) for name in wanted if name in tensors
        }
        wrong = [f"{name} of shape {one}, not {other}" for name, (one, other) in shapes.items() if one != other]
        if not wrong:
            raise
        raise ConversionError(f"{folder} has weights that do not fit its config.json: {enumerated(wrong)}.") from error


def load_any(source: str) -> PreTrainedModel:
    """The zoo model in a folder or on the Hub; an official checkpoint is converted to one."""
    folder = fetch(source)
    model = load(folder) if is_zoo(read_config(folder)) else from_official(folder)
    model.name_or_path = source
    return model


def load_with_tokenizer(source: str, trust_remote_code: bool) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """[`load_any`], and its tokenizer. The flag is for the tokenizer: models run the installed zoo's code."""
    model = load_any(source)
    folder = source if trust_remote_code else fetch(source, weights=False)  # which fetches no code
    try:
        return model, AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except Exception as error:  # which one, depends on what is wrong with its files
        raise ConversionError(f"{source} holds no tokenizer that can be loaded: {error}") from error


def save(model: PreTrainedModel, folder: Path) -> None:
    """Saves a model. (`save_pretrained` of a zoo model, in hub/saving.py, also writes a manifest; that of an official
    model does not.) `copy_companions` then copies other files of the source over those that were saved, such as
    `generation_config.json`: a warning that they are missing is silenced."""
    with notes.status("Saving"), silenced_loading(), silenced("tfm_zoo.hub.saving"):
        model.save_pretrained(folder)


def save_config(model: PreTrainedModel, source: Path, file: Path) -> None:
    """Writes the configuration of the official class that computes the same, or else the zoo model's, without code."""
    try:
        architecture, head, _ = official_for(model)
        fields = to_official_fields(architecture, model.config, head)
        architecture.config_class(**fields, architectures=[head.official]).to_json_file(file)
    except (ConversionError, KeyError):  # (a `KeyError`: modules of torch lack a configuration)
        fields = read_config(source)
        fields.pop("auto_map", None)
        file.write_text(json.dumps(fields, indent=2) + "\n", "utf-8")
