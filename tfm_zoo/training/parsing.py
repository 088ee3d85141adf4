"""How a recipe reads its options: from YAML, and over that from the command line."""

import difflib
import json
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml
from transformers import HfArgumentParser

from tfm_zoo.data.row_files import read_text

AnyOptions = TypeVar("AnyOptions")
#: what other scripts call an option whose name has other words
USUAL = {
    **{"lr": "learning_rate", "epochs": "num_train_epochs", "model": "model_name_or_path", "data": "dataset_name"},
    "save_steps": "checkpointing_steps",
    **{"max_length": "block_size", "max_seq_length": "block_size", "hidden_size": "config_overrides"},
}


class UniqueKeys(yaml.SafeLoader):
    """Refuses a mapping that names a key twice; PyYAML would take the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise yaml.constructor.ConstructorError(None, None, f"{twice[0]!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


class OneLineParser(HfArgumentParser):
    """Says what is wrong in one line, without listing a hundred options first."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def parse_options(
    options_class: type[AnyOptions], argv: Sequence[str] | None = None, default_config: Path | None = None
) -> AnyOptions:
    """Read a recipe's options, of one class, as [`parse_several`] does."""
    return parse_several([options_class], argv, default_config)[0]


def parse_several(
    classes: Sequence[type], argv: Sequence[str] | None = None, default_config: Path | None = None, **defaults: Any
) -> list[Any]:
    """Read options of several classes, perhaps with other `defaults`, from the command line and from a YAML file.

    The file is the one that `--config` names, else `default_config`; the command line overrides it. Options that do not
    exist end the program with an error that names them all, and for each the nearest one that does.
    """
    parser = OneLineParser(classes, allow_abbrev=False)
    parser.set_defaults(**defaults)
    parser.add_argument("--config", default=default_config, help="YAML file of options; the command line overrides it")
    argv = sys.argv[1:] if argv is None else list(argv)
    offered = [each for options_class in classes for each in fields(options_class) if each.init]
    names = [name.lstrip("-") for each in offered for name in (each.name, *each.metadata.get("aliases", ()))]
    config = parser.parse_known_args(argv)[0].config
    try:
        words = [*(_yaml_as_argv(config, names) if config else ()), *argv]
        parsing = {"return_remaining_strings": True, "look_for_args_file": False}
        *options, _, unknown = parser.parse_args_into_dataclasses(words, **parsing)
    except ValueError as error:
        parser.error(str(error))
    if unknown:
        given = [
            word.partition("=")[0] for word in unknown if word.startswith("-") and word.lstrip("-")[:1].isalpha()
        ] or unknown[:1]
        near = nearest(given, names, prefix="--")
        parser.error(f"unknown option{'s' * (len(given) > 1)} {', '.join(given)}{near}")
    return options


def read_yaml(text: str, source: str) -> Any:
    """The values in a text of YAML or JSON; an error names its source."""
    try:
        return yaml.load(text, UniqueKeys)
    except yaml.YAMLError as error:
        raise ValueError(f"{source}: not YAML: {' '.join(str(error).split())}") from None


def _yaml_as_argv(path: str | Path, names: Collection[str]) -> list[str]:
    """The options of a YAML file as words of a command line."""
    if not Path(path).is_file():
        raise ValueError(f"--config {path}: no such file")
    values = read_yaml(read_text(path), f"--config {path}")
    values = {} if values is None else values  # an empty file
    if not isinstance(values, dict):
        raise ValueError(f"--config {path}: expected `option: value` lines, found a {type(values).__name__}")
    if unknown := [str(key) for key in values if key not in names]:
        keys = f"key{'s' * (len(unknown) > 1)} {', '.join(map(repr, unknown))}"
        raise ValueError(f"--config {path}: unknown {keys}{nearest(unknown, names)}")
    argv = []
    for key, value in values.items():
        if isinstance(value, list):
            if not value or any(item is None or isinstance(item, list | dict) for item in value):
                raise ValueError(f"--config {path}: {key} takes one value or more, not {json.dumps(value)}")
            argv += [f"--{key}", *map(str, value)]
        elif isinstance(value, dict):
            argv.append(f"--{key}={json.dumps(value)}")
        elif value is not None:
            argv.append(f"--{key}={value}")
    return argv


def nearest(given: Iterable[str], names: Collection[str], prefix: str = "") -> str:
    """The end of an error about unknown names: "; did you mean ...?" with the known names that `USUAL` has for them,
    that have all their words, or else that are spelt nearly so, each after `prefix`. Empty if there are no such names.
    """
    near: dict[str, None] = {}
    for name in (name.lstrip("-").replace("-", "_") for name in given):
        usual, words = [USUAL[name]] if USUAL.get(name) in names else [], {*name.split("_")}
        longer = [known for known in names if words <= {*known.split("_")}][:3]
        near |= dict.fromkeys(usual or longer or difflib.get_close_matches(name, names, n=1))
    return f"; did you mean {', '.join(repr(prefix + name) for name in near)}?" if near else ""
