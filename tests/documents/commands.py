"""What a command has to be for a reader to be able to run it: a rule for each kind of command."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from importlib import import_module
from importlib.metadata import metadata
from io import StringIO
from pathlib import Path

import torch
import typer
from accelerate.commands.launch import launch_command_parser

from tfm_zoo.cli import app
from tfm_zoo.training.arguments import LoopArguments

from ..benchmarks import decoder, encoder, encoder_decoder
from ..benchmarks.settings import Settings
from ..recipes.conftest import imported

#: how a command in the midst of prose begins
PROGRAMS = ("accelerate launch ", "make ", "pip ", "python ", "tfm-zoo ")


class BadCommandError(Exception):
    """A command that a reader cannot run."""


class Started(BaseException):
    """Not an error: a recipe has read its options, and would train."""


def check(words: Sequence[str]) -> Path | None:
    """Holds a command against the rule for its kind. The current folder is the repository; nothing is trained.

    Returns:
        The folder that a training would leave a model in.

    Raises:
        BadCommandError: saying what is wrong with it, or that there is no rule for it.
    """
    match words:
        case _ if any(re.fullmatch("[();<>|&]+", word) for word in words):
            raise BadCommandError(f"not one command: {shlex.join(words)}")
        case ["make", *targets] if targets:
            expect("target", targets, re.findall(r"^(\w+):", Path("Makefile").read_text(), re.MULTILINE).__contains__)
        case ["pip", "install", *sources] if sources:
            extras = [f".[{extra}]" for extra in metadata("tfm_zoo").get_all("Provides-Extra")]
            expect("source", sources, [".", *extras].__contains__)
        case ["python", "-m", "pytest", *paths]:
            expect("path", paths, lambda path: Path(path).exists())
        case ["python", "-m", "tests.benchmarks"]:
            pass
        case ["python", "-m", "tests.benchmarks", "--only", name]:
            expect("benchmark", [name], lambda name: any(name.lower() in known.lower() for known in benchmarks()))
        case ["python", "-m", module, *arguments] if module.startswith("tests.benchmarks."):
            expect("benchmark", [module], lambda name: Path(*name.split(".")).with_suffix(".py").is_file())
            benchmark = typer.Typer()
            benchmark.command()(import_module(module).main)
            with complaints():
                typer.main.get_command(benchmark).make_context(module, arguments)
        case ["python", script, *options]:
            return run_script(script, options)
        case ["accelerate", "launch", *options]:
            with complaints():
                launched = launch_command_parser().parse_args(options)
            expect("file", filter(None, [launched.config_file]), lambda path: Path(path).is_file())
            return run_script(launched.training_script, launched.training_script_args)
        case ["tfm-zoo", name, *arguments]:
            commands = typer.main.get_command(app).commands
            expect("command", [name], commands.__contains__)
            with complaints():
                commands[name].make_context(name, arguments, resilient_parsing=not arguments)
        case _:
            raise BadCommandError(f"no rule for {shlex.join(words)}")


def expect(kind: str, names: Iterable[str], is_known: Callable[[str], bool]) -> None:
    for name in names:
        if not is_known(name):
            raise BadCommandError(f"no {kind} {name!r}")


@contextmanager
def complaints() -> Iterator[None]:
    """What is raised, or said before the end, becomes an error."""
    said = StringIO()
    try:
        with redirect_stderr(said):
            yield
    except (Exception, SystemExit) as error:
        raise BadCommandError(f"{said.getvalue()}{error}") from None


def run_script(script: str, options: list[str]) -> Path | None:
    """A script that loads a model runs; one that trains reads its options, and gives its output folder."""

    def start(args: LoopArguments, *_, **__):
        raise Started(args.output_dir)

    expect("script", [script], lambda path: Path(path).is_file())
    module = imported(Path(script))
    module.start_accelerator = start
    try:
        with complaints():
            module.main(options)
    except Started as started:
        return Path(*started.args)


def benchmarks() -> set[str]:
    settings = Settings("cpu", torch.float32, "sdpa", rounds=1, layers=1)
    return {name for family in (encoder, decoder, encoder_decoder) for name in family.benchmarks(settings)}
