"""`python -m benchmarks`: which benchmarks there are. `python -m benchmarks NAME --help`: the options of one."""

import sys
from importlib import import_module
from pathlib import Path

import typer

PAGE = Path(__file__).with_name("README.md")


def benchmarks() -> list[str]:
    """The names in the table of README.md."""
    return [line.split("`")[1] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]


def command_of(name: str) -> typer.core.TyperCommand:
    """The command line of a benchmark: its module's `app`, or its `main`."""
    module = import_module(f"{__package__}.{name}")
    app = getattr(module, "app", typer.Typer())
    if not app.registered_commands:
        app.command()(module.main)
    return typer.main.get_command(app)


if __name__ == "__main__":
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in benchmarks():
        command_of(name)(arguments, prog_name=f"python -m benchmarks {name}")
    print(PAGE.read_text("utf-8"))
    sys.exit(0 if name == "--help" else f"unknown benchmark {name!r}; choose from {', '.join(benchmarks())}")
