"""The model that a recipe trains: which one the options name, loaded from a checkpoint or made with new weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import yaml
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from typing_extensions import Self

import tfm_zoo
from tfm_zoo.limits import positions_of
from tfm_zoo.training.arguments import option
from tfm_zoo.training.sources import DataArguments

# Whatever a checkpoint's weights are: AdamW's small steps vanish in half precision, and `mixed_precision` casts what
# can be cast.
WEIGHTS = torch.float32


@dataclass(frozen=True)
class ModelArguments:
    """Which checkpoint to start from, or which new model to make."""

    #: type of the small new model that is made if no option names another, and its fields
    small_type: ClassVar[str]
    small_fields: ClassVar[Mapping[str, Any]]

    model_name_or_path: str | None = option(None, "Zoo or official checkpoint, Hub id or folder; default: a new model.")
    model_type: str | None = option(
        None, "Type of a new model (tfm_gpt, llama, marian, ...), of that type's usual size; default: a small one."
    )
    config_name: str | None = option(
        None, f"Configuration of a new model: a Hub id, a folder, or one of {', '.join(tfm_zoo.NAMED_CONFIGS)}."
    )
    config_overrides: str | None = option(
        None, "Fields of a new model's configuration: 'hidden_size=256,mlp_type=gated', or a mapping (in YAML, JSON)."
    )
    tokenizer_name: str | None = option(
        None, "Tokenizer; default: the checkpoint's, or one made from the training text."
    )
    tokenizer_vocab_size: int | None = option(None, "Tokens of a tokenizer made from the training text, a BPE.")
    model_class: Literal["zoo", "native"] = option(
        "zoo", "'native' leaves an official checkpoint in its official class, to compare the two."
    )
    trust_remote_code: bool = option(False, "Run code that a checkpoint on the Hub brings along.")

    def __post_init__(self) -> None:
        names = self.new_model_options
        if self.model_name_or_path and names:
            raise ValueError(f"{names[0]} makes a new model and cannot go with model_name_or_path")
        if self.model_type and self.config_name:
            raise ValueError("give either model_type or config_name, not both")
        if self.tokenizer_vocab_size and (self.tokenizer_name or self.model_name_or_path):
            raise ValueError("tokenizer_vocab_size is for a tokenizer made from the training text, of a new model")
        self.overrides()

    def resolved(self, data_args: DataArguments) -> Self:
        """These options with the defaults that depend on the data filled in."""
        return self

    @property
    def new_model_options(self) -> list[str]:
        """The names of the options that describe a new model and are set."""
        return [name for name in ("model_type", "config_name", "config_overrides") if getattr(self, name) is not None]

    @property
    def is_named(self) -> bool:
        """Whether a new model has sizes of its own, and is not the small one."""
        return bool(self.model_type or self.config_name)

    @property
    def is_new(self) -> bool:
        """Whether training starts from new weights, and not from a checkpoint."""
        return self.model_name_or_path is None

    def becomes_zoo(self, config: PreTrainedConfig) -> bool:
        """Whether a model of this configuration is official and is converted."""
        return self.model_class == "zoo" and not is_zoo(config)

    def overrides(self) -> dict[str, Any]:
        """`config_overrides` as fields and values."""
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


@dataclass(frozen=True)
class Head:
    """The head that a task needs."""

    auto_class: type  # makes official models with it
    mapping: Mapping[type, type]  # transformers' classes with it, by their configurations
    zoo_class: type[PreTrainedModel]
    title: str  # what a model with it is called

    def check(self, config: PreTrainedConfig) -> None:
        """Refuse a configuration for which neither transformers nor its own code has a class with the head."""
        if type(config) not in self.mapping and self.auto_class.__name__ not in getattr(config, "auto_map", {}):
            raise ValueError(f"model_type {config.model_type!r} is not a {self.title}")

    def load(self, args: ModelArguments, config: PreTrainedConfig, **fields: Any) -> PreTrainedModel:
        """The checkpoint with this configuration, as a zoo model unless `model_class` is "native".

        Args:
            fields: of the configuration, to change.
        """
        if args.becomes_zoo(config):
            return tfm_zoo.from_official(args.model_name_or_path, self.zoo_class, dtype=WEIGHTS, **fields)
        options = {"trust_remote_code": args.trust_remote_code, "dtype": WEIGHTS, **fields}
        return self.auto_class.from_pretrained(args.model_name_or_path, **options)

    def new(self, args: ModelArguments, config: PreTrainedConfig, **fields: Any) -> PreTrainedModel:
        """A model of this configuration with new weights.

        An official configuration makes an official model, which is then converted unless `model_class` is "native":
        with the same seed both start with the same weights.

        Args:
            fields: of the zoo model's configuration, to change when it is converted.
        """
        model = self.auto_class.from_config(config, dtype=WEIGHTS, trust_remote_code=args.trust_remote_code)
        return tfm_zoo.from_official(model, self.zoo_class, **fields) if args.becomes_zoo(config) else model


def is_zoo(config: PreTrainedConfig) -> bool:
    """Whether a configuration is of the zoo's own models."""
    return config.model_type.startswith("tfm_")


def load_config(args: ModelArguments, name: str, option_name: str = "model_name_or_path") -> PreTrainedConfig:
    """The configuration of a checkpoint; an error names the option that asked for it."""
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=args.trust_remote_code)
    except OSError as error:
        raise OSError(f"{option_name} {name!r}: neither a checkpoint folder nor one the Hub gave") from error


def load_tokenizer(args: ModelArguments) -> PreTrainedTokenizerBase:
    """The tokenizer that the options name, else that of the checkpoint."""
    name = args.tokenizer_name or args.model_name_or_path
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=args.trust_remote_code)
    except OSError as error:
        raise OSError(f"tokenizer_name {name!r}: neither a folder with a tokenizer nor one the Hub gave") from error


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Refuse a tokenizer with ids for which a model has no embeddings."""
    if len(tokenizer) > config.vocab_size:
        raise ValueError(
            f"tokenizer {tokenizer.name_or_path!r} has {len(tokenizer)} tokens, more than the {config.vocab_size} of"
            f" {config.name_or_path!r}"
        )


def longest_input(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """How many tokens model and tokenizer take."""
    return min(positions_of(config) or tokenizer.model_max_length, tokenizer.model_max_length)


def _number(value: Any) -> Any:
    """The number that a text is: YAML reads 1e-3 as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
