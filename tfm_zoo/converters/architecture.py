"""What a table says about one official architecture."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from .config_rules import ConfigRule, Fields, amended
from .tensor_rules import TensorRule

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class Head:
    """An official class and the zoo's class with the same head, by their names."""

    official: str
    zoo_name: str
    tensors: tuple[TensorRule, ...] = ()  # for the head's tensors, under their full names; a pooler is part of the head
    config: tuple[ConfigRule, ...] = ()  # in place of the architecture's rules for the same zoo fields

    @property
    def is_bare(self) -> bool:
        """Whether the class is the base model, without a head."""
        return "For" not in self.zoo_name

    @property
    def zoo(self) -> type["PreTrainedModel"]:
        """The zoo's class, imported when somebody asks for it."""
        file = next(file for start, file in FILES_OF_FAMILIES.items() if self.zoo_name.startswith(start))
        return getattr(import_module(f"..models.modeling_tfm_{file}", __package__), self.zoo_name)


#: how the names of a family's classes begin -> how the name of its file ends
FILES_OF_FAMILIES = {"TfmBert": "bert", "TfmDeberta": "deberta", "TfmTextTower": "text_tower"}
FILES_OF_FAMILIES |= {"TfmGPT": "gpt", "TfmEncoderDecoder": "encoder_decoder"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Architecture:
    """One official architecture."""

    model_type: str  # its name here: that in `config.json`, but for a variant of another table, which has its own
    variant_of: str | None = None  # the name in `config.json` that a variant shares
    is_variant: Callable[[Fields], bool] = lambda fields: False  # whether a configuration of that name is one of it
    title: str  # its name in messages and lists
    models: tuple[str, ...] = ()  # models that have other names, for lists
    #: the attribute in which official classes with a head hold their base model. (Some of T5's lack it: rules put it
    #: before their names, as before those of a base model.)
    prefix: str
    other_prefixes: tuple[str, ...] = ()  # what some of its classes, or old versions of them, have in place of `prefix`
    #: for fields; one that no rule names has the default of the zoo's family, such as `TfmBertConfig`
    config: tuple[ConfigRule, ...]
    tensors: tuple[TensorRule, ...]  # for the tensors of its base model, under their names in it
    stored: tuple[TensorRule, ...] = ()  # for files whose tensors have other names or pieces
    #: what files call fields of the configuration -> what the official class calls them
    stored_fields: Mapping[str, str] = field(default_factory=dict)
    heads: tuple[Head, ...]  # every head that both sides have; the base model, if both have that, first
    #: the official class of the encoder alone, where sentence-transformers reads nothing else of an encoder-decoder
    #: (T5's stands among the heads, too)
    encoder_half_class: str | None = None
    #: the tokenizer class where neither transformers nor the checkpoint knows one. `None`: a copy names no class that
    #: the checkpoint does not name
    tokenizer: str | None = None
    #: where its classes are: modules of torch have settings, no configuration; of some checkpoints, nowhere
    library: Literal["transformers", "torch", "none"] = "transformers"

    @property
    def official_type(self) -> str:
        """The `model_type` in `config.json`."""
        return self.variant_of or self.model_type

    @property
    def config_class(self) -> type["PreTrainedConfig"]:
        """The official class of its configuration."""
        return import_module("transformers").CONFIG_MAPPING[self.official_type]

    @property
    def family(self) -> str:
        """The `model_type` of the zoo's models."""
        return self.heads[0].zoo.config_class.model_type

    def head(self, zoo_class: type) -> Head | None:
        """The head of a zoo class, by the class's name: a class from a checkpoint's own code is another object."""
        return next((head for head in self.heads if head.zoo_name == zoo_class.__name__), None)

    @property
    def encoder_half(self) -> Head | None:
        """What stands for the encoder alone, if sentence-transformers reads nothing else of the architecture."""
        return self.encoder_half_class and Head(self.encoder_half_class, "TfmEncoderDecoderEncoder")

    def config_rules(self, head: Head | None) -> tuple[ConfigRule, ...]:
        """The rules for a model with this head: the head's, and those of the architecture that they do not replace."""
        return amended(self.config, *(head.config if head else ()))

    def tensor_rules(
        self, heads: Iterable[Head | None], config: "PreTrainedConfig | None" = None
    ) -> tuple[TensorRule, ...]:
        """The rules of these heads and of the base model, under the names that a class with a head has. Those for files
        with other names or pieces (`stored`) are the last. (For such a file, `tensor_matching.match` puts them first.)

        `config`: the zoo's. Without it, rules can be looked up but not run: see `all_tensor_rules`.
        """
        rules = (*(rule for head in heads if head for rule in head.tensors), *self.body, *self.stored_body)
        return rules if config is None else tuple(rule.of(config) for rule in rules)

    @cached_property
    def all_tensor_rules(self) -> tuple[TensorRule, ...]:
        """Those of all heads and of the base model, by which names are looked up."""
        return self.tensor_rules(self.heads)

    @cached_property
    def body(self) -> tuple[TensorRule, ...]:
        """The rules of the base model under full names."""
        return tuple(rule.under(self.prefix, "model") for rule in self.tensors)

    @cached_property
    def stored_body(self) -> tuple[TensorRule, ...]:
        """The rules of the base model as it is stored, under full names."""
        return tuple(rule.under(self.prefix, "model") for rule in self.stored)
