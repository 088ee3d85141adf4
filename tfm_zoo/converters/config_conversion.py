"""Configurations, converted by a table in either direction."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from transformers import GenerationConfig, PreTrainedConfig

from ..configurations.names import OTHERS, by_field, merged, misspelt_field
from ..models.configuration_tfm import TfmConfig
from .architecture import Architecture, Head
from .config_reading import made_of
from .config_rules import ConfigRule, Field, Fields, only
from .errors import ConversionError

#: what every configuration of transformers has, or may have, such as `id2label`: the same on both sides. (Ids of
#: special tokens and ties are fields of each class, which tables carry over.)
COMMON = {field.name for field in fields(PreTrainedConfig)} | {"output_attentions", "task_specific_params"}
#: what transformers sets anew in each configuration, in `COMMON` or not: it says nothing about the model
SET_ANEW = {"transformers_version", "model_type", "architectures", "dtype", "_name_or_path", "auto_map"}
#: what transformers reads though a class does not declare it: settings for `generate`, files of code, fields of its
#: earlier releases. They stay with the side that they come from.
OF_TRANSFORMERS = {
    *vars(GenerationConfig()),
    *("custom_pipelines", "quantization_config", "torch_dtype", "is_decoder", "add_cross_attention"),
    *("rope_parameters", "rope_scaling", "rope_theta"),
}
#: official fields that change no output: of caches, initialisation, special tokens, and generation
OFFICIAL_WITHOUT_EFFECT = {
    *("use_cache", "pretraining_tp", "initializer_factor", "mask_token_id", "cls_token_id", "sep_token_id"),
    *("max_length", "num_beams", "length_penalty", "early_stopping", "forced_eos_token_id"),
    *("encoder_no_repeat_ngram_size",),
}


#: where a zoo configuration keeps the tensors of `Kept` rules: in its `official`, with all that no `Field` carries over
KEPT = "kept_tensors"


def of_others(architecture: Architecture, zoo_config: type[TfmConfig], fields: Fields) -> dict[str, Any]:
    """The fields that the configurations of neither side know. Other libraries write and read them, such as the
    `sentence_transformers` of a cross-encoder: they are the same on both sides."""
    if architecture.library == "torch":  # a module has settings, in which nobody else writes
        return {}
    sides = (zoo_config, architecture.config_class)
    known = COMMON | SET_ANEW | OF_TRANSFORMERS | set(zoo_config.lacks)
    known |= {name for side in sides for name in (*side.__dataclass_fields__, *side.attribute_map, *dir(side))}
    names = [name for name in fields if name not in known and not name.startswith("_")]
    return {name: fields[name] for name in names if not misspelt_field(zoo_config, name)}


class ReadFields(dict):
    """Fields that record which of them are read."""

    def __init__(self, fields: Fields):
        super().__init__(fields)
        self.read = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


def completed(architecture: Architecture, fields: Fields, source: str = "a configuration") -> dict[str, Any]:
    """These fields of an official configuration, completed by its defaults; `source`: whose they are, for an error."""
    if architecture.library != "torch":
        config_class = architecture.config_class
        fields = made_of(lambda fields: config_class.from_dict(fields).to_dict(), fields, source)
    return {name: value for name, value in fields.items() if name not in SET_ANEW}


def to_zoo_config(
    architecture: Architecture, official: Fields, zoo_class: type, overrides: Mapping[str, Any]
) -> PreTrainedConfig:
    """The configuration with which a zoo class computes what the official class computes, except for `overrides`.

    Raises:
        ConversionError: for an official value that the zoo does not convert, an override that is not a field, or fields
            that do not fit each other.
    """
    config_class = zoo_class.config_class  # (`zoo_class` is a class of models)
    overrides = by_field(config_class, overrides)
    check_overrides(overrides, config_class)
    rules = architecture.config_rules(architecture.head(zoo_class))
    check_official(architecture, rules, official)
    zoo = dict(overrides)
    try:
        read = read_by_rules(architecture, official)
        check_unread(architecture, official, read)
        for rule in rules:
            zoo = rule.to_zoo(official, zoo) | zoo  # what an override or an earlier rule has set stays
    except ArithmeticError as error:  # a division by a size of 0
        raise ConversionError(f"{architecture.title} with these fields is not converted: {error}") from error
    unread = {name: value for name, value in official.items() if name not in read}
    common = {name: official[name] for name in COMMON & official.keys()}
    common |= of_others(architecture, config_class, unread)
    # The zoo's field `official` keeps what is neither common nor carried over by a `Field`. (A `Computed` looks at what
    # it has read, on the way back.) It also names the table, by which `choosing.official_for` finds the way back.
    carried_over = COMMON | common.keys() | {rule.official for rule in rules if isinstance(rule, Field)}
    kept_fields = {name: value for name, value in official.items() if name not in carried_over}
    kept_fields["model_type"] = architecture.model_type
    config = made_of(
        lambda given: config_class(**with_labels(common, given) | given, official=kept_fields),
        merged(config_class, zoo, overrides),
        f"{architecture.title} with these fields",
    )
    if overrides.get("label2id") not in (None, {label: index for index, label in config.id2label.items()}):
        wanted = f"should be the reverse of id2label={config.id2label}, from which it follows"
        raise ConversionError(f"label2id={overrides['label2id']} {wanted}: give id2label.")
    return config


def with_labels(common: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The common fields. If the overrides choose other labels, the official ones are left out, and `label2id` follows
    from a new `id2label`."""
    count = overrides.get("num_labels")
    if "id2label" not in overrides and count in (None, len(common.get("id2label") or ())):
        return common
    common = {name: value for name, value in common.items() if name not in ("id2label", "label2id")}
    if "id2label" in overrides:
        common["label2id"] = {label: int(index) for index, label in overrides["id2label"].items()}
    return common


def to_official_fields(architecture: Architecture, config: PreTrainedConfig, head: Head) -> dict[str, Any]:
    """The official fields nearest to a zoo configuration."""
    zoo = config.to_dict()
    official = {name: value for name, value in (config.official or {}).items() if name not in ("model_type", KEPT)}
    official |= {name: zoo[name] for name in (COMMON - SET_ANEW) & zoo.keys()}
    official |= of_others(architecture, type(config), zoo)
    for rule in architecture.config_rules(head):
        official |= rule.to_official(zoo, official)
    return official


def check_official(architecture: Architecture, rules: Iterable[ConfigRule], official: Fields) -> None:
    """Refuses an official configuration, naming each value that the zoo does not convert and what it converts."""
    if wanted := refused((*only(quantization_config=None), *rules), official):
        values = ", ".join(f"{name}={official[name]!r}" for name in wanted)
        choices = ", ".join(dict.fromkeys(f"{name}: {value}" for name, value in wanted.items()))
        raise ConversionError(f"{architecture.title} with {values} is not converted. What is converted: {choices}.")


def check_unread(architecture: Architecture, official: Fields, read: set[str]) -> None:
    """Refuses an official configuration with a field that no rule of any head has `read`, unless its value is the
    default of the class beside the other fields, or the field is known to change no output."""
    if architecture.library == "torch":  # the zoo itself lists the settings of modules
        return
    known = read | COMMON | OFFICIAL_WITHOUT_EFFECT
    default = completed(architecture, {name: official[name] for name in known & official.keys()})
    names = architecture.config_class.__dataclass_fields__.keys() & default.keys() - known
    unread = {name: default[name] for name in sorted(names) if official[name] != default[name]}
    if unread:
        values = ", ".join(f"{name}={official[name]!r} (by default {value!r})" for name, value in unread.items())
        raise ConversionError(f"{architecture.title} with {values} is not converted: the zoo does not read this.")


def read_by_rules(architecture: Architecture, official: Fields) -> set[str]:
    """The official fields that a rule of the architecture, or of any of its heads, reads."""
    fields, zoo = ReadFields(official), {}
    for rule in (*architecture.config, *(rule for head in architecture.heads for rule in head.config)):
        rule.refused(fields)  # (so that `fields` notes what it reads)
        zoo |= rule.to_zoo(fields, zoo)
    return fields.read


def refused(rules: Iterable[ConfigRule], official: Fields) -> dict[str, str]:
    """The official fields whose values a rule refuses -> what each would have to be."""
    return {name: wanted for rule in rules for name, wanted in rule.refused(official).items()}


def check_overrides(overrides: Mapping[str, Any], config_class: type) -> None:
    """Refuses a name that is not a field of the configuration, and suggests the field that it means or resembles.
    Labels have to be a dict."""
    names = {field.name for field in fields(config_class)} | {"num_labels", "output_attentions", "rope_parameters"}
    names -= {"official"}  # which a conversion fills
    for name in overrides.keys() - names:
        nearest = [OTHERS[name]] if name in OTHERS else get_close_matches(name, names, n=1)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        raise ConversionError(f"{config_class.__name__} takes no field {name!r}.{hint}")
    if not isinstance(labels := overrides.get("id2label", {}), Mapping):
        raise ConversionError(f"id2label={labels!r} should be a dict of ids and labels, such as {{0: 'no', 1: 'yes'}}.")
