"""Which table converts a checkpoint, and which one exports a zoo model."""

from pathlib import Path
from typing import Any

import transformers
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedModel

from .architecture import Architecture, Head
from .architectures import ARCHITECTURES
from .config_comparison import Differences, differences, is_decisive
from .config_rules import Fields
from .errors import OTHER_MODELS, ConversionError
from .refused import QK_POST_NORM, REFUSED

IN_LATER_RELEASES = f"which transformers {transformers.__version__} does not have: a later release does"


def architecture_of(config: Fields, title: str) -> Architecture:
    """The table for a checkpoint, by its `config.json` or what takes its place. Errors call the checkpoint `title`.

    Raises:
        ConversionError: if no architecture fits. The message lists the architectures that the zoo converts.
    """
    model_type, classes = config.get("model_type"), config.get("architectures") or ()
    if QK_POST_NORM in str(config.get("auto_map")):
        model_type = QK_POST_NORM
    if model_type is None:  # a configuration from before transformers 2.3
        heads = ((name, head.official) for name, table in ARCHITECTURES.items() for head in table.heads)
        model_type = next((name for name, official in heads if official in classes), None)
    table = table_for({**config, "model_type": model_type})
    if table and is_installed(table):
        return table
    found = f"{title} is of architecture {model_type!r}"
    if table:
        raise ConversionError(f"{found}, {IN_LATER_RELEASES}.")
    if str(model_type).startswith("tfm_"):
        raise ConversionError(f"{title} is a model of the zoo already: load it with from_pretrained.")
    if is_derived(config):
        derived = "whose class is derived from one of the zoo's: load it with from_pretrained, by its own code"
        raise ConversionError(f"{found}, {derived}.")
    if model_type in REFUSED:
        raise ConversionError(f"{found}, which the zoo does not convert: {REFUSED[model_type]}.")
    known = ", ".join(ARCHITECTURES)
    raise ConversionError(f"{found}, which the zoo does not convert; it converts {known}. {OTHER_MODELS}")


def table_for(fields: Fields) -> Architecture | None:
    """The table for an official configuration with these fields: that of a variant, or else of its `model_type`."""
    model_type = fields.get("model_type")
    tables = (each for each in ARCHITECTURES.values() if each.variant_of == model_type and each.is_variant(fields))
    return next(tables, ARCHITECTURES.get(model_type))


def is_derived(config: Fields) -> bool:
    """Whether a configuration that is not of the zoo is of a class derived from one of the zoo's."""
    return "norm_position" in config


def is_installed(architecture: Architecture) -> bool:
    """Whether the release of transformers that is installed has the architecture."""
    return architecture.library == "torch" or architecture.official_type in CONFIG_MAPPING


def official_for(model: PreTrainedModel) -> tuple[Architecture, Head, dict[str, tuple[Any, str]]]:
    """The architecture and the head that a zoo model is exported to, and the zoo fields that they cannot express.

    A model that was converted goes back to its own architecture, or nowhere. For one that never was official, or that
    only a later release knows, all tables are compared: the nearest is taken, of equally near ones the first.

    Returns:
        The architecture, the head, and the fields, which matter in training only. Each comes with its value and the one
        it has in the official class.

    Raises:
        ConversionError: if no class among these computes what this model computes; the message names the fields.
    """
    compared, errors = [], []
    for architecture, head in candidates(model):
        try:
            compared.append((architecture, head, differences(architecture, model.config, head)))
        except ConversionError as error:
            errors.append(error)
    if not compared:
        raise errors[0]
    compared.sort(key=lambda each: distance(each[2]))
    architecture, head, nearest = compared[0]
    if not nearest.decisive:
        return architecture, head, nearest.fields
    near: dict[str, dict[str, tuple]] = {}  # classes, and what each lacks: one that lacks more than another is left out
    for _, head, found in compared:
        if not any(found.decisive.keys() >= less.keys() for less in near.values()):
            near[head.official] = found.decisive
    values = {
        name: ", ".join(f"{field}={value!r} (it has {other})" for field, (value, other) in lacks.items())
        for name, lacks in [*near.items()][:2]
    }
    told = "; ".join(f"{name}, which lacks {lacks}" for name, lacks in values.items())
    raise ConversionError(f"No official class can express this model. Near it: {told}.")


def candidates(model: PreTrainedModel) -> list[tuple[Architecture, Head]]:
    """The tables by which a zoo model may be exported, and the head of each; a `ConversionError` if no table may."""
    if not isinstance(model, PreTrainedModel):
        given = "" if isinstance(model, nn.Module) else f" {model!r}"
        wrong = f"to_official takes a model of the zoo in memory, not the {type(model).__name__}{given}."
        command = f" `tfm-zoo export {model} OUT` converts a folder, and from_pretrained loads it."
        raise ConversionError(wrong + (command if isinstance(model, str | Path) else ""))
    if not str(model.config.model_type).startswith("tfm_"):
        raise ConversionError(f"This {type(model).__name__} is not a model of the zoo: there is nothing to convert.")
    if getattr(model, "hf_quantizer", None) is not None:
        raise ConversionError(f"This {type(model).__name__} is quantised: export the model that it was made from.")
    # (The name of the table that made it; a later release of the zoo may have others.)
    origin = ARCHITECTURES.get((getattr(model.config, "official", None) or {}).get("model_type"))
    if origin is not None and origin.library == "none":
        raise ConversionError(
            f"{origin.title} has no class in transformers to be exported to. to_state_dict(model, rules) gives its "
            f"tensors their earlier names, with the tensor_rules of ARCHITECTURES[{origin.model_type!r}]."
        )
    if origin is not None and not is_installed(origin):
        raise ConversionError(f"This model is exported to {origin.title}, {IN_LATER_RELEASES}.")
    # (Modules of torch lack embeddings: only models that came from one go back to one.)
    others = (table for table in ARCHITECTURES.values() if table.library == "transformers" and is_installed(table))
    tables = [origin] if origin is not None else [*others]
    with_head = [(table, head) for table in tables if (head := table.head(type(model)))]
    if not with_head:
        titles = ", ".join(table.title for table in tables)
        raise ConversionError(f"{type(model).__name__} has no counterpart among the classes of {titles}.")
    return with_head


def distance(found: Differences) -> tuple[bool, int, int]:
    """How far an official class is from a model, for sorting; classes whose comparison broke off come last."""
    return not found.is_whole, sum(map(is_decisive, found.fields)), len(found.fields)
