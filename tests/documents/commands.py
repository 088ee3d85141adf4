"""Whether a reader can run a command: a rule for each kind of command."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from importlib.metadata import metadata
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import typer
from accelerate.commands.launch import launch_command_parser

from benchmarks.__main__ import benchmarks, command_of
from benchmarks.speed import CASES
from tfm_zoo.cli import app
from tfm_zoo.training import run
from tfm_zoo.training.options import TrainingOptions

from ..recipes.conftest import imported

#: the beginnings of commands in prose
PROGRAMS = ("accelerate launch ", "make ", "pip ", "python ", "tfm-zoo ")


class BadCommandError(Exception):
    """A command that a reader cannot run."""


class Started(BaseException):
    """Not an error: a recipe has read its options, and would train; with its output folder, if that is known."""


def check(words: Sequence[str]) -> Path | None:
    """Check a command by the rule for its kind. The current folder is the repository; nothing is trained.

    Returns:
        The folder that a training would leave a model in.

    Raises:
        BadCommandError: saying what is wrong with it, or that there is no rule for it.
    """
    match words:
        case _ if any(re.fullmatch("[();<>|&]+", word) for word in words):
            raise BadCommandError(f"not one command: {shlex.join(words)}")
        case ["make", *targets] if targets:
            known = re.findall(r"^([\w-]+):", Path("Makefile").read_text(), re.MULTILINE)
            expect("target", targets, known.__contains__)
        case ["pip", "install", *sources] if sources:
            extras = [f".[{extra}]" for extra in metadata("tfm_zoo").get_all("Provides-Extra")]
            expect("source", sources, [".", *extras, "deepspeed"].__contains__)
        case ["python", "-m", "pytest", *paths]:
            expect("path", paths, lambda path: Path(path).exists())
        case ["python", "-m", "tests.hub.server"] | ["python", "-m", "benchmarks"]:
            pass
        case ["python", "-m", "benchmarks", name, *arguments]:
            expect("benchmark", [name], benchmarks().__contains__)
            with complaints():
                context = command_of(name).make_context(name, arguments)
            if name == "speed" and (only := context.params["only"]):
                expect("case", [only], lambda case: any(case.lower() in known.lower() for known in CASES))
        case ["python", "-m", module, *_] if module.startswith(("tests.", "tfm_zoo.")):
            expect("module", [module], lambda name: Path(*name.split(".")).with_suffix(".py").is_file())
        case ["python", script, *options]:
            return run_script(script, options)
        case ["accelerate", "launch", *options]:
            with complaints():
                launched = launch_command_parser().parse_args(options)
            expect("file", filter(None, [launched.config_file]), lambda path: Path(path).is_file())
            return run_script(launched.training_script, launched.training_script_args)
        case ["curl", "--create-dirs", "-o", path, url] if url.startswith("https://"):
            configs = [config.read_text() for config in Path("recipes/configs").glob("*.yaml")]
            expect("file", [path], lambda path: any(path in config and url in config for config in configs))
        case ["vllm", "serve", _, "--trust-remote-code"]:  # in an environment of its own: `.ci/engines` runs it
            pass
        case ["tfm-zoo", "--install-completion"]:  # it would write to the reader's home
            known = {option for each in typer.main.get_command(app).params for option in each.opts}
            expect("option", words[1:], known.__contains__)
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
    """Turn an exception, or a message before an exit, into a `BadCommandError`."""
    said = StringIO()
    try:
        with redirect_stderr(said):
            yield
    except (Exception, SystemExit) as error:
        raise BadCommandError(f"{said.getvalue()}{error}") from None


def run_script(script: str, options: list[str]) -> Path | None:
    """Run a script that uses a model; one that trains, or reads a corpus, only reads its options, for its output
    folder."""

    def start(args: TrainingOptions | None = None, *_, **__):
        raise Started(*([args.output_dir] if args else []))

    expect("script", [script], lambda path: Path(path).is_file())
    module = imported(Path(script))
    names = ("start_accelerator", "Accelerator", "TrainingArguments", "SFTConfig", "corpus_run", "search")
    starts = [(run, "start_accelerator"), *((module, name) for name in names)]
    try:
        with ExitStack() as patches, complaints():
            for place, name in starts:
                if hasattr(place, name):
                    patches.enter_context(patch.object(place, name, start))
            module.main(options)
    except Started as started:
        return Path(*started.args) if started.args else None
