"""Model cards, filled in from templates; a card that a person wrote is never replaced."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.utils import yaml_dump
from jinja2 import Template
from transformers import PreTrainedModel

from ..converters import ConversionError
from ..converters.architectures import ARCHITECTURES
from ..converters.choosing import official_for
from ..proof.contents import CARD, has_tokenizer
from ..proof.sentence_files import MODULES
from ..utils.locking import atomic_file
from .model_card import MARK, USAGE, VECTORS, facts_of_class, make_card, metadata_of, source_of, verify_command

FOLDER = Path(__file__).parent  # of the templates


def write_card(folder: str | Path, template: str | Path, data: ModelCardData, source: str, **values: Any) -> bool:
    """Writes `folder/README.md`, as [`make_card`] makes it.

    Args:
        template: the Jinja text of the card below its metadata, or the path of a file that holds it.
        source: what the card says the model is loaded from, a folder or a Hub id.
        values: the template's variables; for a zoo model, [`facts_of_zoo_model`] has many of them.

    Returns:
        Whether the card was written; False where somebody else wrote the README, which then stays.
    """
    path = Path(folder) / CARD
    if path.exists() and source_of(path.read_text(encoding="utf-8", errors="replace")) is None:
        return False
    text = template.read_text(encoding="utf-8") if isinstance(template, Path) else template
    with atomic_file(path) as file:
        make_card(text, data, source, **values).save(file)
    return True


def write_conversion_card(
    folder: str | Path, model: PreTrainedModel, checkpoint: str, title: str, out: str, options: Sequence[str]
) -> bool:
    """Writes the card of a model that `tfm-zoo convert` made, as [`write_card`] does.

    Args:
        checkpoint: what was converted, a folder or a Hub id; `title`: the name of its architecture, or "zoo".
        out: what `folder` will be called, from which the card loads the model; `options`: those of the command.
    """
    is_local = Path(checkpoint).exists()
    name = Path(checkpoint).resolve().name if is_local else checkpoint.split("/")[-1]
    base_model = None if is_local else checkpoint
    command = shlex.join(["tfm-zoo", "convert", base_model or name, out, *options])
    command += f"  # {name}: a local folder" if is_local else ""
    data = metadata_of(model, license=licence_of(checkpoint), base_model=base_model, model_name=name)
    values = {"name": name, "title": title, "command": command, "has_tokenizer": has_tokenizer(Path(folder))}
    values["is_exact"] = "--dtype" not in options
    origin = ARCHITECTURES.get((model.config.official or {}).get("model_type"))
    values |= {"has_no_class": origin is not None and origin.library == "none"} | facts_of_zoo_model(model)
    if model.base_model is model and (Path(folder) / MODULES).is_file():
        data.library_name, data.pipeline_tag = "sentence-transformers", "sentence-similarity"
        data.tags += ["sentence-transformers", "sentence-similarity", "feature-extraction"]
        values["usage"] = Template(VECTORS)
    return write_card(folder, FOLDER / "conversion_card.md", data, out, **values)


def facts_of_zoo_model(model: PreTrainedModel) -> dict[str, Any]:
    """The variables that templates read about a zoo model.

    Returns:
        `model`; those of [`facts_of_class`]; `parameters`, how many; `official`, the architecture that it converts
        back to, if any; and templates for `{% include ... %}`: `usage`, lines of Python, and `about`, sections on its
        architecture and on `tfm_zoo`.
    """
    try:
        official = official_for(model)[0].title if model.config.official else None
    except ConversionError:  # it does not convert back with its configuration as it is now
        official = None
    with torch.device("meta"):  # packed weights are not parameters
        parameters = type(model)(model.config).num_parameters()
    about = Template((FOLDER / "about_zoo_model.md").read_text(encoding="utf-8"))
    facts = {"model": model, "parameters": parameters, "official": official}
    return facts_of_class(model) | facts | {"usage": Template(USAGE), "about": about}


def with_source(card: str, source: str) -> str:
    """A card of the zoo, for a model that is now loaded from `source`; somebody else's card stays as it is. A title
    that was the last part of the earlier source is that of the new one."""
    if (old := source_of(card)) is None:
        return card
    for form in (MARK.format, json.dumps, verify_command):
        card = card.replace(form(old), form(source))
    for form in ("\n# {}\n".format, name_in_index):
        card = card.replace(form(Path(old).name), form(Path(source).name))
    return card


def name_in_index(name: str) -> str:
    """The lines of a card's metadata that name the model beside its results; YAML quotes `2024`, which is a number."""
    return "\n" + yaml_dump({"model-index": [{"name": name}]})


def licence_of(model_name_or_path: str) -> str | None:
    """The licence that a checkpoint's own card states, if it has one that can be read."""
    folder = Path(model_name_or_path)
    try:
        return ModelCard.load(folder / CARD if folder.is_dir() else model_name_or_path).data.get("license")
    except Exception:  # a licence that cannot be read must not cost anybody a trained model
        return None


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """A Markdown table of rows that map the names of the columns to cells."""
    lines = [rows[0].keys(), ["---"] * len(rows[0]), *(row.values() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
