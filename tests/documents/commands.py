"""Whether a reader can run a command: a rule for each kind of command."""

import re
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import metadata
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
#: where a recipe begins to work once it has read its options
STARTS = ("start_accelerator", "Accelerator", "set_seed", "corpus_run", "search", "read_pairs")


class Started(BaseException):
    """Not an error: a recipe has read its options, and would train; with its output folder, if that is known."""


def check(words: Sequence[str]) -> Path | None:
    """Fails for a command that its program refuses, or for which there is no rule. The current folder is the
    repository; nothing is trained. Gives the folder that a training would leave a model in."""
    is_right = True
    match words:
        case ["make", *targets]:
            names = {word for word in targets if "=" not in word}  # the others set a variable
            is_right = names <= {*re.findall(r"^([\w-]+):", Path("Makefile").read_text(), re.MULTILINE)}
        case ["pip", "install", *sources]:  # ("-e": the clone is what runs)
            extras = metadata("tfm_zoo").get_all("Provides-Extra")
            is_right = {*sources} <= {"-e", ".", "deepspeed", *(f".[{extra}]" for extra in extras)}
        case ["python", "-m", "benchmarks", name, *arguments]:
            context = command_of(name).make_context(name, arguments)
            case = (name == "speed" and context.params["only"]) or ""
            is_right = name in benchmarks() and any(case.lower() in known.lower() for known in CASES)
        case ["python", "-m", "pytest", *paths]:
            is_right = all(Path(path).exists() for path in paths)
        case ["python", "-m", module, *_]:
            place = Path(*module.split("."))
            is_right = place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()
        case ["python", script] if script.startswith(("docs/", "recipes/notebooks/")):  # they would write files
            is_right = Path(script).is_file()
        case ["python", script, *options]:
            return output_folder(script, options)
        case ["accelerate", "launch", *options]:
            launched = launch_command_parser().parse_args(options)
            assert launched.config_file is None or Path(launched.config_file).is_file()
            return output_folder(launched.training_script, launched.training_script_args)
        case ["curl", "--create-dirs", "-o", path, url] if url.startswith("https://"):
            configs = [config.read_text() for config in Path("recipes/configs").glob("*.yaml")]
            is_right = any(path in config and url in config for config in configs)
        case ["vllm", "serve", _, "--trust-remote-code"]:  # in an environment of its own: `.ci/engines` runs it
            pass
        case ["tfm-zoo", "--install-completion"]:  # it would write to the reader's home
            is_right = any(words[1] in parameter.opts for parameter in typer.main.get_command(app).params)
        case ["tfm-zoo", name, *arguments]:
            known = typer.main.get_command(app).commands[name]
            known.make_context(name, arguments, resilient_parsing=not arguments)
        case _:
            is_right = False
    assert is_right, f"{shlex.join(words)}: a reader cannot run it, or no rule says what it may look like"
    return None


def output_folder(script: str, options: list[str]) -> Path | None:
    """Run a script that uses a model. One that trains, or reads a corpus, only reads its options."""

    def start(*options: TrainingOptions, **_):
        raise Started(*(each.output_dir for each in options if hasattr(each, "output_dir")))

    module = imported(Path(script))
    try:
        with ExitStack() as patches:
            for place, name in [(run, "start_accelerator"), *((module, name) for name in STARTS)]:
                if hasattr(place, name):
                    patches.enter_context(patch.object(place, name, start))
            module.main(options)
    except Started as started:
        return Path(*started.args) if started.args else None
    return None
