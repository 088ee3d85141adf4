"""The models of a comparison: variants of one configuration, each with a name and the fields that it changes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from tfm_zoo.training.arguments import LoopArguments, option, read_yaml
from tfm_zoo.training.language_modeling.model import LanguageModelArguments, new_language_model_config
from tfm_zoo.training.models import longest_input
from tfm_zoo.visualization.comparison import STYLES

#: options of training that a variant may set for itself
TRAINING_OPTIONS = ("learning_rate", "warmup_steps")


def without(options: type, *names: str) -> type:
    """A class of these options without those named, which keep their defaults: a recipe does not offer them."""
    kept = [(f.name, f.type, field(default=f.default, init=False)) for f in fields(options) if f.name in names]
    return make_dataclass(f"Fewer{options.__name__}", kept, bases=(options,), frozen=True)


@dataclass(frozen=True)
class VariantArguments(without(LanguageModelArguments, "model_name_or_path", "model_class")):
    """Which new models to compare: zoo models, with new weights."""

    variants: str | None = option(
        None,
        "A mapping of names to the fields of the configuration that each variant changes (YAML or JSON), or a YAML file"
        f" that has such a mapping under 'variants'. {' and '.join(TRAINING_OPTIONS)} may stand among the fields.",
    )
    config_overrides: str | None = option(None, "Fields of the configuration that all variants share.", "base")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.changes()  # so that a mistake shows when the options are read

    def changes(self) -> dict[str, dict[str, Any]]:
        """What each variant changes, by its name."""
        if not self.variants:
            raise ValueError("give variants: a name for each, and the fields that it changes")
        is_file = not self.variants.lstrip().startswith(("{", "["))
        if is_file and not Path(self.variants).is_file():
            raise ValueError(f"variants {self.variants!r}: no such file")
        changes = read_yaml(Path(self.variants).read_text("utf-8") if is_file else self.variants, "variants")
        if is_file and isinstance(changes, dict):
            changes = changes.get("variants")
        if not isinstance(changes, dict) or not changes:
            raise ValueError(f"variants: expected a mapping of names to fields, not {changes!r}")
        if len(changes) > len(STYLES):
            raise ValueError(f"{len(changes)} variants: a picture has room for {len(STYLES)}; compare fewer at once")
        for name, changed in changes.items():
            if Path(str(name)).name != str(name) or name in ("", ".."):
                raise ValueError(f"variant {name!r}: its name should be one that a folder can have")
            if not isinstance(changed, dict | None):
                raise ValueError(f"variant {name!r}: expected a mapping of fields to values, not {changed!r}")
        return {str(name): changed or {} for name, changed in changes.items()}


@dataclass(frozen=True)
class Variant:
    """One of the models to compare, and the options that it is made and trained with."""

    name: str
    changes: Mapping[str, Any]
    config: PreTrainedConfig
    model_args: VariantArguments
    args: LoopArguments

    @property
    def folder(self) -> Path:
        return Path(self.args.output_dir)


def make_variants(
    model_args: VariantArguments, args: LoopArguments, tokenizer: PreTrainedTokenizerBase, block_size: int | None
) -> list[Variant]:
    """The variants, each with its folder in `output_dir` and a valid configuration, one that can read the blocks."""
    variants = []
    for name, changes in model_args.changes().items():
        try:
            options = {key: float(value) for key, value in changes.items() if key in TRAINING_OPTIONS}
            changed = {key: value for key, value in changes.items() if key not in TRAINING_OPTIONS}
            overrides = json.dumps(model_args.overrides() | changed)
            variant_model_args = replace(model_args, config_overrides=overrides)
            variant_args = replace(args, output_dir=str(Path(args.output_dir) / "variants" / name), **options)
            config = new_language_model_config(variant_model_args, tokenizer, block_size)
            room = longest_input(config, tokenizer)
            if block_size and room < block_size:
                raise ValueError(f"block_size {block_size} is more than the {room} tokens that the model takes")
        except (ValueError, TypeError, StrictDataclassError) as error:
            raise ValueError(f"variant {name!r}: {error}") from error
        variants.append(Variant(name, changes, config, variant_model_args, variant_args))
    return variants
