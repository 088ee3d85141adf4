"""What a table says of one official architecture, and what follows from it in both directions.

A table names: the rules for its tensors, the configuration fields that both sides have, what the others must be, and
the heads. Nothing in it is said twice: what the zoo cannot express on the way in, and what the official classes
cannot on the way back, is found by converting a configuration there and back and comparing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel

from .checkpoint import Checkpoint
from .models import assemble, skeleton_of
from .rules import ConversionError, Rule, find

#: what every transformers configuration has, and what is not part of an architecture: set anew for each model
COMMON = {field.name for field in fields(PreTrainedConfig)} | {"output_attentions"}
NOT_KEPT = {"transformers_version", "model_type", "architectures", "dtype", "_name_or_path", "auto_map"}
#: zoo fields that change no output, and those that change what is computed in training only
WITHOUT_EFFECT = COMMON | {"official", "skip_padding", "initializer_range", "scaled_residual_init", "weight_init"}
IN_TRAINING = ("dropout", "train_padding_embedding")
#: what `None` stands for in a zoo configuration
FALLBACK = {
    "attention_output_dropout": "hidden_dropout",
    "classifier_dropout": "hidden_dropout",
    "lm_head_act": "hidden_act",
}


@dataclass(frozen=True)
class Reading:
    """How a zoo field is worked out of official fields that do not hold it as it stands.

    What the official configuration had is kept, and comes back as it was where it still says the same: one of two
    names for one thing, or a field that is not there.

    Args:
        read: official fields -> the zoo field's value.
        write: the zoo field's value -> official fields that say it.
    """

    read: Callable[[Mapping[str, Any]], Any]
    write: Callable[[Any], dict[str, Any]]


@dataclass(frozen=True)
class Head:
    """A native class and the zoo's class with the same head.

    Args:
        native: name of the class in transformers.
        zoo: class of the zoo.
        rules: for the head's tensors, under their full names. A pooler counts as part of the head.
        config: zoo fields that are otherwise for this head than the architecture says.
        unread: official fields that this native class does not read, though others do.
        labels: how many labels this native class works with, where the zoo's does not count them.
    """

    native: str
    zoo: type[PreTrainedModel]
    rules: tuple[Rule, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    labels: int | None = None

    @property
    def is_bare(self) -> bool:
        """Whether it is the base model, without a head."""
        return self.zoo.__name__.endswith("Model")


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One official architecture.

    Args:
        model_type: its name in `config.json`.
        title: its name for people.
        prefix: the attribute of a native class with a head that holds its base model.
        body: rules for the tensors of the base model, under their names in it.
        heads: every head that both sides have; the base model, if they have that, first.
        other_prefixes: what some of its classes, or of their versions, have in place of `prefix`.
        fields: official field -> zoo field, one and the same value.
        readings: zoo field -> how it is read from official fields, where it is not one of them.
        constants: zoo field -> what it is in every model of this architecture, or a function of the zoo's fields.
        required: official field -> the only value of it that the zoo converts, or a function that says whether it does.
        excluded: official field -> the only value of it that the zoo does not convert.
        equal: official field -> another one, whose value it is to have, where the zoo has one field for both.
        synonyms: ending of a tensor's name -> the ending that the rules have. For names of old checkpoints, and for
            tensors that a native model holds twice; where both are there, the first is the one that is used.
        ignored: endings of tensors that older versions saved, but that are no weights.
        sinusoids: endings of tensors that hold the table of sinusoidal positions, which either side makes for itself.
        tokenizer: tokenizer class, for checkpoints that do not say.
        read_by: zoo field that only some heads read -> their classes.
        free: zoo fields that say nothing to the native side.
        fresh: beginnings of the zoo's tensors that a checkpoint may lack: they are then initialised anew.
        optional: the zoo's tensors that either side may lack: the other then has them as its class makes them.
    """

    model_type: str
    title: str
    prefix: str
    body: tuple[Rule, ...]
    heads: tuple[Head, ...]
    other_prefixes: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    readings: Mapping[str, Reading] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)
    excluded: Mapping[str, Any] = field(default_factory=dict)
    equal: Mapping[str, str] = field(default_factory=dict)
    synonyms: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    sinusoids: tuple[str, ...] = ()
    tokenizer: str | None = None
    read_by: Mapping[str, tuple[type, ...]] = field(default_factory=dict)
    free: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ("model.pooler.",)
    optional: tuple[str, ...] = ()

    # heads

    @property
    def family(self) -> str:
        """The `model_type` of the zoo's models."""
        return self.heads[0].zoo.config_class.model_type

    def head(self, zoo_class: type) -> Head | None:
        """The head whose zoo class it is, by name: a class that travelled with a checkpoint counts too."""
        return next((head for head in self.heads if head.zoo.__name__ == zoo_class.__name__), None)

    def head_in(self, architectures: Iterable[str] | None, tensors: Iterable[str]) -> Head:
        """The head that a checkpoint holds: by its `config.architectures`, or else by the names of its tensors."""
        for head in self.heads:
            if head.native in (architectures or ()):
                return head
        tensors = list(tensors)
        names = set(map(self.canonical, tensors))
        has_prefix = any(name.startswith(f"{prefix}.") for prefix in self.prefixes for name in tensors)

        def agreement(head: Head) -> tuple[int, bool]:
            """Its tensors that are there, less those that are not, unless they are tied to others or optional."""
            there = {rule: any(find([rule], name, "official") for name in names) for rule in head.rules}
            spared = {*(head.zoo._tied_weights_keys or ()), *self.optional}
            lacking = [rule for rule, is_there in there.items() if not is_there and rule.zoo not in spared]
            return sum(there.values()) - len(lacking), has_prefix != head.is_bare

        return max(self.heads, key=agreement)

    # names of tensors

    @cached_property
    def full_body(self) -> tuple[Rule, ...]:
        """The rules of the body for full names, as a class with a head has them."""
        return tuple(rule.under(self.prefix, "model") for rule in self.body)

    @property
    def prefixes(self) -> tuple[str, ...]:
        return (self.prefix, *self.other_prefixes)

    def rules(self, head: Head | None) -> tuple[Rule, ...]:
        return (head.rules if head else ()) + self.full_body

    def canonical(self, name: str) -> str:
        """An official tensor's name as the rules have it: with the prefix, and with no synonym."""
        for ending, canonical in self.synonyms.items():
            if name.endswith(ending):
                name = name.removesuffix(ending) + canonical
        if self.is_known(name):
            return name
        tops = ("", *(f"{prefix}." for prefix in self.other_prefixes))
        fulls = [f"{self.prefix}.{name.removeprefix(top)}" for top in tops if name.startswith(top)]
        return next(filter(self.is_known, fulls), name)

    def is_known(self, name: str) -> bool:
        """Whether a rule of the body, or of any head, has this official tensor."""
        return self.is_of_a_head(name) or find(self.full_body, name, "official") is not None

    def is_of_a_head(self, name: str) -> bool:
        return any(find(head.rules, name, "official") for head in self.heads)

    def is_ignored(self, name: str) -> bool:
        return name.endswith(self.ignored + self.sinusoids)

    def may_be_fresh(self, name: str) -> bool:
        """Whether a tensor of the zoo (by its name in a class with a head) belongs to a head."""
        return not name.startswith("model.") or name.startswith(self.fresh)

    # configurations

    def zoo_config(self, native: PreTrainedConfig, zoo_class: type, overrides: Mapping[str, Any]) -> PreTrainedConfig:
        """The zoo's configuration for `zoo_class` that computes what `native` does, but for `overrides`.

        Raises:
            ConversionError: where the native configuration has what the zoo has not, or for an override that the
                zoo's configuration has no field for.
        """
        config_class = zoo_class.config_class
        check_overrides(overrides, config_class)
        head = self.head(zoo_class)
        official = self.native_values(native)
        values = {name: official.pop(name) for name in COMMON & official.keys()}
        values |= {name: reading.read(official) for name, reading in self.readings.items()}
        shared = {name: name_in_zoo for name, name_in_zoo in self.fields.items() if not head or name not in head.unread}
        values |= {shared[name]: official.pop(name) for name in shared.keys() & official.keys()}
        official = {name: value for name, value in official.items() if name not in self.equal}
        if "id2label" in overrides or overrides.get("num_labels") not in (None, len(values.get("id2label") or ())):
            values = {name: value for name, value in values.items() if name not in ("id2label", "label2id")}
        if "id2label" in overrides and "label2id" not in overrides:
            values["label2id"] = {label: int(id) for id, label in overrides["id2label"].items()}
        values |= overrides
        for name, value in {**self.constants, **(head.config if head else {})}.items():
            values.setdefault(name, value(values) if isinstance(value, Callable) else value)
        return config_class(**values, official={"model_type": self.model_type} | official)

    def native_config_of(self, checkpoint: Checkpoint) -> PreTrainedConfig:
        native_class = CONFIG_MAPPING[self.model_type]
        return native_class.from_dict(checkpoint.config) if checkpoint.model is None else checkpoint.model.config

    def native_values(self, native: PreTrainedConfig) -> dict[str, Any]:
        """The fields of a native configuration, checked for what the zoo does not convert."""
        if barred := self.barred(native):
            values = ", ".join(f"{name}={value!r}" for name, value in barred.items())
            raise ConversionError(f"{self.title} with {values} is not converted.")
        return {name: value for name, value in native.to_dict().items() if name not in NOT_KEPT}

    def barred(self, native: PreTrainedConfig) -> dict[str, Any]:
        """The official fields whose values the zoo does not convert."""
        required = {"quantization_config": None, **self.required}

        def converts(name: str, value: Any) -> bool:
            wanted = required.get(name, value)
            return (wanted(value) if callable(wanted) else value == wanted) and (
                name not in self.excluded or value != self.excluded[name]
            )

        values = {name: getattr(native, name) for name in (*required, *self.excluded) if hasattr(native, name)}
        barred = {name: value for name, value in values.items() if not converts(name, value)}
        for pair in self.equal.items():
            pair_values = {name: getattr(native, name) for name in pair}
            if len(set(pair_values.values())) > 1:
                barred |= pair_values
        return barred

    def native_config(self, config: PreTrainedConfig, head: Head) -> PreTrainedConfig:
        """The native configuration nearest to a zoo configuration; [`differences`] says what it cannot express."""
        native_class = CONFIG_MAPPING[self.model_type]
        # `to_dict` has `None` where a field follows from others.
        zoo = config.to_dict() | {name: getattr(config, name) for name in config.derived()}
        values = {name: value for name, value in (config.official or {}).items() if name != "model_type"}
        values |= {name: zoo[name] for name in (COMMON - NOT_KEPT) & zoo.keys()}
        for name, name_in_zoo in self.fields.items():
            if name in head.unread:
                continue
            value = zoo.get(name_in_zoo)
            # What the native side has no `None` for gets what the zoo's `None` stands for.
            if value is None and name_in_zoo in FALLBACK and getattr(native_class, name) is not None:
                value = zoo[FALLBACK[name_in_zoo]]
            values[name] = value
        for name, reading in self.readings.items():
            if reading.read(values) != zoo[name]:
                values |= reading.write(zoo[name])
        values |= {name: values[other] for name, other in self.equal.items()}
        if head.labels not in (None, config.num_labels):
            values = {name: value for name, value in values.items() if name not in ("id2label", "label2id")}
            values["num_labels"] = head.labels
        return native_class(**values)

    def differences(self, config: PreTrainedConfig, head: Head) -> dict[str, tuple[Any, Any]]:
        """Zoo fields whose value the native class `head.native` cannot express: what it is, and what it would be.

        Raises:
            ConversionError: where there is no such native configuration at all.
        """
        try:
            native = self.native_config(config, head)
            if barred := self.barred(native):
                names = {name: self.fields.get(name, name) for name in barred}
                return {names[name]: (value, f"anything but {value!r}") for name, value in barred.items()}
            back = self.zoo_config(native, head.zoo, {name: getattr(config, name) for name in self.free})
        except (ValueError, StrictDataclassError) as error:
            raise ConversionError(f"{head.native} cannot express this model: {error}") from error
        mine, its = self.read_values(config, head), self.read_values(back, head)
        return {name: (value, its.get(name)) for name, value in mine.items() if value != its.get(name)}

    def read_values(self, config: PreTrainedConfig, head: Head) -> dict[str, Any]:
        """The fields that decide what a model with this head computes, with what stands behind each `None`."""
        # Rotary models alone have the attribute, which is no field.
        values = {"rope_parameters": getattr(config, "rope_parameters", None)}
        for name in {known.name for known in fields(config)} - WITHOUT_EFFECT:
            if head.zoo in self.read_by.get(name, (head.zoo,)):
                value = getattr(config, name)
                values[name] = getattr(config, FALLBACK[name]) if value is None and name in FALLBACK else value
        if config.pad_token_id is None:
            del values["train_padding_embedding"]
        return values

    # native models

    def skeleton(self, native: PreTrainedConfig, head: Head) -> nn.Module:
        return skeleton_of(getattr(transformers, head.native), native)

    def assemble(
        self, skeleton: nn.Module, weights: dict[str, torch.Tensor], dtype: torch.dtype, attention: str | None
    ):
        return assemble(skeleton, weights, dtype, attention)


def check_overrides(overrides: Mapping[str, Any], config_class: type) -> None:
    known = {field.name for field in fields(config_class)} | {"num_labels", "output_attentions", "rope_parameters"}
    for name in overrides.keys() - known:
        nearest = get_close_matches(name, known, n=1)
        hint = f" Is it {nearest[0]!r} that is meant?" if nearest else ""
        raise ConversionError(f"{config_class.__name__} has no field {name!r}.{hint}")
