"""Variants of an architecture: a base, and names for what is changed in it."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from tfm_zoo.training.arguments import LoopArguments, UniqueKeys, fixed, option
from tfm_zoo.training.language_models import LanguageModelArguments, new_language_model_config
from tfm_zoo.training.models import longest_input
from tfm_zoo.visualization.comparison import STYLES

#: options of training that a variant may have of its own
OWN = ("learning_rate", "warmup_steps")
FOLDER = "variants"


@dataclass
class VariantArguments(LanguageModelArguments):
    """Which new models to compare."""

    variants: str | None = option(
        None,
        "Names, and of each the fields of the configuration that it changes: a mapping (in YAML, JSON), or a YAML file"
        f" with such a mapping under 'variants'. {' and '.join(OWN)} may stand among the fields.",
    )
    config_overrides: str | None = option(
        None, "Fields of the configuration that all variants share, as in the other recipes.", "base"
    )
    # Every variant starts from nothing, and is what its configuration says.
    model_name_or_path: str | None = fixed(None)
    model_class: str = fixed("zoo")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.changes()

    def changes(self) -> dict[str, dict[str, Any]]:
        """What each variant changes, by its name.

        Raises:
            ValueError: for a file or a mapping that is no such thing.
        """
        if not self.variants:
            raise ValueError("give variants: a name for each, and the fields that it changes")
        found = _parse(self.variants)
        if not isinstance(found, dict) or not found:
            raise ValueError(f"variants: expected a mapping of names to fields, not {found!r}")
        if len(found) > len(STYLES):
            raise ValueError(f"{len(found)} variants: a picture has room for {len(STYLES)}; compare fewer at once")
        for name, fields in found.items():
            if Path(str(name)).name != str(name) or name in ("", ".."):
                raise ValueError(f"variant {name!r}: its name is to be that of a folder")
            if not isinstance(fields, dict | None):
                raise ValueError(f"variant {name!r}: expected a mapping of fields to values, not {fields!r}")
        return {str(name): fields or {} for name, fields in found.items()}


@dataclass(frozen=True)
class Variant:
    """One of the models to compare, and how it is trained."""

    name: str
    changes: dict[str, Any]
    config: PreTrainedConfig
    model_args: VariantArguments
    args: LoopArguments

    @property
    def folder(self) -> Path:
        return Path(self.args.output_dir)


def make_variants(
    model_args: VariantArguments, args: LoopArguments, tokenizer: PreTrainedTokenizerBase, block_size: int | None
) -> list[Variant]:
    """The variants, each with a configuration that has passed its checks, and a folder of its own in `output_dir`.

    Args:
        block_size: tokens that each of them has to take; `None`: as many as it does.

    Raises:
        ValueError: naming the variant, and what is wrong with it.
    """
    variants = []
    for name, changes in model_args.changes().items():
        try:
            own = {key: float(value) for key, value in changes.items() if key in OWN}
            fields = {key: value for key, value in changes.items() if key not in OWN}
            overrides = json.dumps(model_args.overrides() | fields)
            its_model_args = replace(model_args, config_overrides=overrides)
            its_args = replace(args, output_dir=str(Path(args.output_dir) / FOLDER / name), **own)
            config = new_language_model_config(its_model_args, tokenizer, block_size)
            room = longest_input(config, tokenizer)
            if block_size and room < block_size:
                raise ValueError(f"block_size {block_size} is more than the {room} tokens that it takes")
        except (ValueError, TypeError, StrictDataclassError) as error:
            raise ValueError(f"variant {name!r}: {error}") from error
        variants.append(Variant(name, changes, config, its_model_args, its_args))
    return variants


def _parse(text: str) -> Any:
    """A mapping, or what the file of this name has under 'variants'."""
    is_file = not text.lstrip().startswith(("{", "["))
    if is_file and not Path(text).is_file():
        raise ValueError(f"variants {text!r}: no such file")
    try:
        found = yaml.load(Path(text).read_text(encoding="utf-8") if is_file else text, UniqueKeys)
    except yaml.YAMLError as error:
        raise ValueError(f"variants: not YAML: {' '.join(str(error).split())}") from None
    return found.get("variants") if is_file and isinstance(found, dict) else found
