"""Reversible rules between the fields of an official configuration and the fields of the zoo's.

The rules of a table run in the same order in both directions: a rule may read what those before it wrote. If two write
one field, the first wins on the way to the zoo, and the last on the way back.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Fields = Mapping[str, Any]


class ConfigRule:
    """One line of a configuration's table."""

    zoo: str | None  # the zoo's field; a head's rule replaces the architecture's rule for the same field

    def to_zoo(self, official: Fields, zoo: Fields) -> dict[str, Any]:
        """What the rule sets in the zoo's configuration. `zoo`: what the caller chose and earlier rules have set."""
        return {}

    def to_official(self, zoo: Fields, official: Fields) -> dict[str, Any]:
        """The reverse. `official`: what a converted model has kept of its original, and what earlier rules have set."""
        return {}

    def refused(self, official: Fields) -> dict[str, str]:
        """The official fields whose values the zoo does not convert -> what each would have to be."""
        return {}


@dataclass(frozen=True)
class Field(ConfigRule):
    """A field that both sides have, with the same value: `Field("d_model", "hidden_size")`."""

    official: str
    zoo: str

    def to_zoo(self, official: Fields, zoo: Fields) -> dict[str, Any]:
        return {self.zoo: official[self.official]} if self.official in official else {}

    def to_official(self, zoo: Fields, official: Fields) -> dict[str, Any]:
        return {self.official: zoo.get(self.zoo)}


@dataclass(frozen=True)
class Constant(ConfigRule):
    """A zoo field with the same value in every model of the architecture, which has no field for it."""

    zoo: str
    value: Any  # or a function of the zoo fields known so far

    def to_zoo(self, official: Fields, zoo: Fields) -> dict[str, Any]:
        return {self.zoo: self.value(zoo) if callable(self.value) else self.value}


@dataclass(frozen=True)
class Computed(ConfigRule):
    """A zoo field whose value is computed from official fields.

    A converted model remembers those official fields, also which of them were `None` or absent. As long as the zoo's
    value follows from them, they come back unchanged.
    """

    zoo: str
    read: Callable[[Fields], Any]  # official fields -> the zoo's value
    #: the reverse; by default the value goes to the official field of the same name
    write: Callable[[Any], dict[str, Any]] | None = None

    def to_zoo(self, official: Fields, zoo: Fields) -> dict[str, Any]:
        return {self.zoo: self.read(official)}

    def to_official(self, zoo: Fields, official: Fields) -> dict[str, Any]:
        value = zoo.get(self.zoo)
        if self.read(official) == value:
            return {}
        return {self.zoo: value} if self.write is None else self.write(value)


@dataclass(frozen=True)
class Following(Computed):
    """A field of both sides. Where it is `None`, the value follows from other fields, as `read` does. An official
    `None` stays one in the zoo's configuration and, unless the value has changed there, on the way back."""

    def to_zoo(self, official: Fields, zoo: Fields) -> dict[str, Any]:
        return {self.zoo: official.get(self.zoo)}


@dataclass(frozen=True)
class Free(ConfigRule):
    """A zoo field that makes no difference to the official class: a model with any value of it can be exported."""

    zoo: str


@dataclass(frozen=True)
class Requires(ConfigRule):
    """An official field. The zoo converts only some of its values. A configuration may lack the field, and so may
    its class: code that models of transformers share reads some such fields, and earlier releases read others."""

    official: str
    is_converted: Callable[[Any], bool]
    wanted: str  # the values that are converted, in words, for the error
    zoo = None

    def refused(self, official: Fields) -> dict[str, str]:
        is_accepted = self.official not in official or self.is_converted(official[self.official])
        return {} if is_accepted else {self.official: self.wanted}


@dataclass(frozen=True)
class Always(ConfigRule):
    """An official field with the same value in every model of a variant."""

    official: str
    value: Any
    zoo = None

    def refused(self, official: Fields) -> dict[str, str]:
        return {} if official.get(self.official) == self.value else {self.official: repr(self.value)}

    def to_official(self, zoo: Fields, official: Fields) -> dict[str, Any]:
        return {self.official: self.value}


@dataclass(frozen=True)
class LabelCount(ConfigRule):
    """An official head that must have this many labels; the zoo's head does not read their number."""

    count: int
    zoo = None

    def to_official(self, zoo: Fields, official: Fields) -> dict[str, Any]:
        if len(official.get("id2label") or range(self.count)) == self.count:
            return {}
        names = {index: f"LABEL_{index}" for index in range(self.count)}
        return {"id2label": names, "label2id": {name: index for index, name in names.items()}}


def amended(rules: Iterable[ConfigRule], *others: ConfigRule) -> tuple[ConfigRule, ...]:
    """These rules and the others, which take the place of those for the same zoo fields."""
    replaced = {rule.zoo for rule in others} - {None}
    return (*(rule for rule in rules if rule.zoo not in replaced), *others)


def same(*names: str) -> tuple[Field, ...]:
    """Fields that have the same name on both sides."""
    return tuple(Field(name, name) for name in names)


def constants(**values: Any) -> tuple[Constant, ...]:
    """`zoo_field=value`."""
    return tuple(Constant(name, value) for name, value in values.items())


def choice(official: str, zoo: str, values: Mapping[Any, Any], default: Any) -> tuple[ConfigRule, ...]:
    """A field with different values on the two sides: `values` maps official ones to the zoo's. Others are refused.

    If several official values map to one of the zoo's, the last of them is written. `default` is the official default.
    """
    official_values = {zoo_value: official_value for official_value, zoo_value in values.items()}
    return (
        Computed(
            zoo,
            lambda fields: values.get(fields.get(official, default)),
            lambda value: {official: official_values.get(value, default)},
        ),
        Requires(official, values.__contains__, "one of " + ", ".join(map(repr, values))),
    )


def only(**values: Any) -> tuple[Requires, ...]:
    """`official_field=value`, which is the one value that the zoo converts."""
    return tuple(Requires(name, (value,).__contains__, repr(value)) for name, value in values.items())


def ignored(*names: str) -> tuple[Requires, ...]:
    """Official fields that change no output: they are kept, whatever their values are."""
    return tuple(Requires(name, lambda value: True, "any value") for name in names)
