"""Options of a recipe: how they are declared and checked, and how YAML files and the command line set them."""

import difflib
import json
import operator
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, NoReturn, TypeVar, get_args, get_type_hints

import yaml
from transformers import HfArgumentParser

from tfm_zoo.data.row_files import read_text
from tfm_zoo.utils.errors import in_one_line

AnyOptions = TypeVar("AnyOptions")
#: comparisons by the name of a bound (`at_least=1`); errors use the same names
COMPARISONS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le, "below": operator.lt}
#: the bounds of each option, found by the very object that `option` made, which `fields` returns. (They are not in its
#: metadata: `HfArgumentParser` passes all of these on to argparse.)
BOUNDS: dict[Field, dict[str, float]] = {}


def option(default: Any, help: str, *aliases: str, **more: Any) -> Any:
    """A field with a help text, further names (for YAML, too), bounds (`at_least=1`), and arguments of argparse."""
    others = {name: value for name, value in more.items() if name not in COMPARISONS}
    made = field(default=default, metadata={"help": help, "aliases": [f"--{alias}" for alias in aliases], **others})
    BOUNDS[made] = {name: value for name, value in more.items() if name in COMPARISONS}
    return made


@dataclass(frozen=True)
class Options:
    """Options, whose bounds are checked when they are made."""

    either_or: ClassVar[Sequence[tuple[str, ...]]] = ()  # two options each, which exclude each other; and perhaps why
    #: option -> options of the YAML file that are dropped if it is typed
    replaces: ClassVar[Mapping[str, str]] = {}
    #: option of several fields -> options that prevent joining. With "a=1" in the file and "b=2" typed, both count. If
    #: an option that prevents it is typed, too, only "b=2" counts
    joins: ClassVar[Mapping[str, str]] = {}
    #: options that people know from elsewhere and that are not here -> what to do
    needless: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("--do_train", "--do_eval", "--do_predict"), "a recipe trains, evaluates and tests without it"),
        "--load_best_model_at_end": "a recipe keeps the best model without it",
        **dict.fromkeys(("--eval_strategy", "--evaluation_strategy"), "--eval_steps says when; default: each epoch"),
        "--save_strategy": "--checkpointing_steps says when, a number of steps or 'epoch'",
    }

    def __post_init__(self) -> None:
        for each in fields(self):
            value, bounds = getattr(self, each.name), BOUNDS.get(each, {})  # None is always allowed
            if value is not None and not all(COMPARISONS[name](value, bound) for name, bound in bounds.items()):
                expected = " and ".join(f"{name.replace('_', ' ')} {bound}" for name, bound in bounds.items())
                raise ValueError(f"{each.name} must be {expected}, not {value}")
        for one, other, *why in self.either_or:
            if getattr(self, one, None) and getattr(self, other, None):
                raise ValueError(": ".join([f"give either {one} or {other}, not both", *why]))


def parse_options(
    options_class: type[AnyOptions], argv: Sequence[str] | None = None, default_config: Path | None = None
) -> AnyOptions:
    """Read a recipe's options, of one class, as [`parse_several`] does."""
    return parse_several([options_class], argv, default_config)[0]


def parse_several(
    classes: Sequence[type], argv: Sequence[str] | None = None, default_config: Path | None = None, **defaults: Any
) -> list[Any]:
    """Read options of several classes, perhaps with other `defaults`: from a YAML file (`--config`), and over that from
    the command line. An option that does not exist ends the program, with the nearest one that does."""
    parser = OneLineParser(classes, allow_abbrev=False)
    parser.set_defaults(**defaults)
    if resuming := parser._option_string_actions.get("--resume_from_checkpoint"):  # alone, it means "auto"
        resuming.nargs, resuming.const = "?", "auto"
    parser.add_argument("--config", default=default_config, help="YAML file of options; the command line overrides it")
    argv = sys.argv[1:] if argv is None else list(argv)
    offered = [each for options_class in classes for each in fields(options_class) if each.init]
    spellings = {name: each for each in offered for name in (f"--{each.name}", *each.metadata.get("aliases", ()))}
    try:
        words = with_words_of_file(parser, classes, spellings, argv)
        reading = {"return_remaining_strings": True, "look_for_args_file": False}
        *options, _, unknown = parser.parse_args_into_dataclasses(words, **reading)  # `_` has --config
    except ValueError as error:
        parser.error(str(error))
    if unknown:
        name = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(name, spellings, n=1)
        known = [each.needless[name] for each in classes if name in getattr(each, "needless", {})]
        pattern = "; a pattern of files has to stand in quotes" if os.path.isfile(name) else ""
        hint = f": {known[0]}" if known else f"; did you mean {near[0]}?" if near else pattern
        parser.error(f"unknown option {unknown[0]}{hint}")
    return options


def with_words_of_file(
    parser: HfArgumentParser, classes: Sequence[type], spellings: Mapping[str, Field], argv: Sequence[str]
) -> list[str]:
    """The words of the YAML file that the command line names; then its own words, which win by coming later; and last,
    options that join fields of both. An option without a value in the file becomes `None` in the parser, and is refused
    where it cannot be."""
    alone, of_file, joined = parser.parse_known_args(argv)[0], [], []  # the command line, without the file
    options = [f"--{word[2:].partition('=')[0].replace('-', '_')}" for word in argv if word.startswith("--")]
    typed = {spellings[option].name for option in options if option in spellings}
    replaced = [getattr(each, "replaces", {}).get(name, "").split() for each in classes for name in typed]
    dropped = {*chain.from_iterable(replaced)}
    joins = chain.from_iterable(getattr(each, "joins", {}).items() for each in classes)
    joining = {name for name, preventing in joins if name in typed and typed.isdisjoint(preventing.split())}
    hints = {name: hint for options_class in classes for name, hint in get_type_hints(options_class).items()}
    for name, value in options_in(alone.config).items() if alone.config else ():
        meant = spellings.get(f"--{name}")
        if meant and meant.name in dropped:
            continue
        if value is None and meant:
            # (In recipes/pairs.py, learning_rate is None by default, though its type does not name None.)
            if NoneType not in get_args(hints[meant.name]) and parser.get_default(meant.name) is not None:
                raise ValueError(f"--config {alone.config}: {name} has no value: give one, or leave the line out")
            parser.set_defaults(**{meant.name: None})
        elif isinstance(value, list):
            of_file += [f"--{name}", *map(str, value)]
        else:
            text = json.dumps(value) if isinstance(value, dict) else str(value)
            of_file.append(f"--{name}={text}")
            if meant and meant.name in joining:
                both = as_mapping(name, text) | as_mapping(name, getattr(alone, meant.name))
                joined.append(f"--{meant.name}={json.dumps(both)}")
    return [*of_file, *argv, *joined]


class OneLineParser(HfArgumentParser):
    """Says what is wrong in one line, without listing a hundred options first."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def options_in(path: str | Path) -> dict[str, Any]:
    """The names and values in a YAML file of options."""
    if not Path(path).is_file():
        raise ValueError(f"--config {path}: no such file")
    values = read_yaml(read_text(path), f"--config {path}") or {}  # an empty file
    if not isinstance(values, dict):
        raise ValueError(f"--config {path}: expected `option: value` lines, found a {type(values).__name__}")
    return {str(name).replace("-", "_"): value for name, value in values.items()}


def as_mapping(name: str, text: str | None) -> dict[str, Any]:
    """The names and values in an option's text: 'a=1,b=x', or a mapping in YAML or JSON."""
    text = (text or "").strip()
    if not text.startswith("{"):
        pairs = [pair.replace("=", ": ", 1) for pair in text.split(",") if pair.strip()]
        if not all(": " in pair for pair in pairs):
            raise ValueError(f"{name} {text!r}: expected field=value,field=value")
        text = f"{{{', '.join(pairs)}}}"
    return {key: _number(value) for key, value in read_yaml(text, f"{name} {text!r}").items()}


def _number(value: Any) -> Any:
    """The value, as a number if it is a number's text: YAML reads 1e-3 as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def read_yaml(text: str, source: str) -> Any:
    """The values in a text of YAML or JSON; an error names its source."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{source}: not YAML: {in_one_line(error)}") from None
