"""The fields of a zoo model that an official class cannot express.

No table lists them: the configuration is converted there and back, and compared.
"""

from dataclasses import fields
from importlib import import_module
from typing import Any, NamedTuple

from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig

from ..utils.quiet import silenced_trying
from .architecture import Architecture, Head
from .config_conversion import COMMON, completed, refused, to_official_fields, to_zoo_config
from .config_rules import Field, Free
from .errors import ConversionError

#: zoo fields that change no output
ZOO_WITHOUT_EFFECT = COMMON | {
    *("official", "skip_padding", "use_cache"),
    *("initializer_range", "scaled_residual_init", "weight_init"),
}
#: endings of the names of fields that matter in training only
IN_TRAINING = ("dropout", "train_padding_embedding")


class Differences(NamedTuple):
    """The fields of a zoo model that an official class cannot express."""

    #: zoo field -> its value, and the one of the official class; of a refused field, the values that would be taken
    fields: dict[str, tuple[Any, str]]
    is_whole: bool = True  # false where the table refuses fields: then the others were not compared

    @property
    def decisive(self) -> dict[str, tuple[Any, str]]:
        """Those for which the official class does not compute the same; `{}`: it does, in evaluation mode."""
        return {name: pair for name, pair in self.fields.items() if is_decisive(name) or not self.is_whole}


def differences(architecture: Architecture, config: PreTrainedConfig, head: Head) -> Differences:
    """Compares a zoo configuration with what comes back from the official class.

    Raises:
        ConversionError: where the official class takes no such configuration.
    """
    rules = architecture.config_rules(head)
    try:
        with silenced_trying():
            official = completed(architecture, to_official_fields(architecture, config, head))
        if wanted := refused(rules, official):
            zoo_names = {rule.official: rule.zoo for rule in rules if isinstance(rule, Field)}
            refused_fields = {zoo_names.get(name, name): (official[name], value) for name, value in wanted.items()}
            return Differences(refused_fields, is_whole=False)
        round_trip = to_zoo_config(architecture, official, head.zoo, {})
    except (ValueError, StrictDataclassError) as error:
        raise ConversionError(f"{head.official} cannot express this model: {error}") from error
    free = {rule.zoo for rule in rules if isinstance(rule, Free)}
    values, official_values = effective_values(config, head), effective_values(round_trip, head)
    return Differences(
        {
            name: (value, repr(official_values.get(name)))
            for name, value in values.items()
            if name not in free and value != official_values.get(name)
        }
    )


def is_decisive(field: str) -> bool:
    """Whether a zoo field changes what a model computes in evaluation mode."""
    return not field.endswith(IN_TRAINING)


def effective_values(config: PreTrainedConfig, head: Head) -> dict[str, Any]:
    """The fields that decide what a model with this head computes, with what each `None` follows from."""
    family = vars(import_module(head.zoo.__module__)).values()
    of_heads = {name for each in family for name in getattr(each, "head_fields", ())}
    of_other_heads = of_heads - set(head.zoo.head_fields)
    read = {field.name for field in fields(config)} - ZOO_WITHOUT_EFFECT - of_other_heads
    # (These `rules` are those of configurations: a field of theirs may be without effect beside the others.)
    read = read.difference(*(rule.idle_among(vars(config)) for rule in config.rules))
    values = {"rope_parameters": effective_rotation(config)} | {name: getattr(config, name) for name in read}
    if config.pad_token_id is None:
        del values["train_padding_embedding"]
    return values


def effective_rotation(config: PreTrainedConfig) -> dict[str, Any] | None:
    """The rotary parameters by type of layer, or of all types if they are the same; `None` without such."""
    parameters = getattr(config, "rope_parameters", None)  # an attribute of rotary models alone, which is not a field
    if parameters is None:
        return None
    by_type = {layer_type: parameters.get(layer_type, parameters) for layer_type in config.layer_types}
    first, *others = by_type.values()
    return by_type if any(other != first for other in others) else first
