"""Models that start from nothing: which one, of which configuration."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig

import tfm_zoo
from tfm_zoo.training.arguments import option
from tfm_zoo.training.models import ModelArguments, load_config


@dataclass
class NewModelArguments(ModelArguments):
    """Which checkpoint to start from, or which new model to make. A task names its own small model."""

    small_type: ClassVar[str]
    small_fields: ClassVar[Mapping[str, Any]]

    model_name_or_path: str | None = option(
        None, "Zoo or official checkpoint, Hub id or folder. Without one a new model is trained."
    )
    model_type: str | None = option(
        None,
        "Type of a new model (tfm_gpt, gpt2, llama, marian, ...), of that type's usual size; default: a small one.",
    )
    config_name: str | None = option(
        None, f"Configuration of a new model: a Hub id, a folder, or one of {', '.join(tfm_zoo.NAMED_CONFIGS)}."
    )
    config_overrides: str | None = option(
        None, "Fields of a new model's configuration: 'hidden_size=256,mlp_type=gated', or a mapping (in YAML, JSON)."
    )
    tokenizer_name: str | None = option(
        None, "Tokenizer, if not the checkpoint's; default for a new model: one made from the training text."
    )
    tokenizer_vocab_size: int | None = option(None, "Tokens of a tokenizer made from the training text, a BPE.")

    def __post_init__(self) -> None:
        given = self.given
        if self.model_name_or_path and given:
            raise ValueError(f"{given[0]} makes a new model and cannot go with model_name_or_path")
        if self.model_type and self.config_name:
            raise ValueError("give either model_type or config_name, not both")
        if self.tokenizer_vocab_size and (self.tokenizer_name or self.model_name_or_path):
            raise ValueError("tokenizer_vocab_size is for a tokenizer made from the training text, of a new model")
        self.overrides()

    @property
    def given(self) -> list[str]:
        """The options that describe a new model, of those that are given."""
        return [name for name in ("model_type", "config_name", "config_overrides") if getattr(self, name) is not None]

    @property
    def is_named(self) -> bool:
        """Whether a new model has sizes of its own, and is not the small one."""
        return bool(self.model_type or self.config_name)

    @property
    def is_new(self) -> bool:
        return self.model_name_or_path is None

    def overrides(self) -> dict[str, Any]:
        """`config_overrides` as fields and values.

        Raises:
            ValueError: for what is neither `field=value,field=value` nor a mapping.
        """
        text = (self.config_overrides or "").strip()
        if text.startswith("{"):
            try:
                values = yaml.safe_load(text)
            except yaml.YAMLError:
                raise ValueError(f"config_overrides {text!r}: not a mapping of fields to values") from None
        else:
            pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
            if not all(equals for _, equals, _ in pairs):
                raise ValueError(f"config_overrides {text!r}: expected field=value,field=value")
            values = {name.strip(): yaml.safe_load(value) for name, _, value in pairs}
        return {name: _number(value) for name, value in values.items()}


def new_config(args: NewModelArguments, fields: dict[str, Any]) -> PreTrainedConfig:
    """The configuration that the arguments name, with these fields, and over them the arguments' own.

    Raises:
        OSError, ValueError: naming the type, configuration or field that does not exist.
    """
    overrides, known = args.overrides(), _known_config(args)
    names = {name: name for name in (*known.to_dict(), "rope_parameters")} | known.attribute_map
    for name in overrides:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"config_overrides: {known.model_type} has no field {name!r}{hint}")
    if not args.is_named:
        fields = {**args.small_fields, **fields}
    changes = {names.get(name, name): value for part in (fields, overrides) for name, value in part.items()}
    saved = known.to_dict() if args.config_name else {}
    return type(known).from_dict(saved | changes)


def tokens_to_learn(args: NewModelArguments, default: int) -> int:
    """Size of a tokenizer's vocabulary that is made for a new model: as asked for, or as its configuration has it."""
    if args.tokenizer_vocab_size is not None:
        return args.tokenizer_vocab_size
    usual = getattr(_known_config(args), "vocab_size", default) if args.is_named else default
    return args.overrides().get("vocab_size", usual)


def _known_config(args: NewModelArguments) -> PreTrainedConfig:
    if args.config_name in tfm_zoo.NAMED_CONFIGS:
        return tfm_zoo.named_config(args.config_name)
    if args.config_name:
        return load_config(args, args.config_name, "config_name")
    if args.model_type is None or args.model_type in CONFIG_MAPPING:
        return AutoConfig.for_model(args.model_type or args.small_type)
    near = difflib.get_close_matches(args.model_type, CONFIG_MAPPING, n=3)
    raise ValueError(f"model_type {args.model_type!r} is not one of transformers' or the zoo's; near: {near}")


def check_has_head(config: PreTrainedConfig, auto_class: str, mapping: Mapping[type, type], head: str) -> None:
    """Refuse a configuration for which neither transformers' `mapping` nor its own code has a class with the head."""
    if type(config) not in mapping and auto_class not in getattr(config, "auto_map", {}):
        raise ValueError(f"model_type {config.model_type!r} is not a {head}")


def _number(value: Any) -> Any:
    """YAML reads 1e-3 as a string."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
