"""What the command writes to the screen: results to stdout; progress and errors to stderr."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import typer
from rich.console import Console
from rich.markup import escape

from ..utils.quiet import printable

results, notes = Console(), Console(stderr=True)


def working(stage: str) -> AbstractContextManager:
    """Says what takes a while: in a terminal as long as it lasts, in a log once."""
    if notes.is_terminal:
        return notes.status(stage)
    advise(f"{stage} ...")
    return nullcontext()


def report(result: str) -> None:
    """Prints a result on one line, however long, so that programs can read it."""
    results.print(printable(result), soft_wrap=True, highlight=False, markup=False)


def advise(text: str) -> None:
    """Prints what is not a result, such as a warning or the next step, on one line of stderr."""
    notes.print(printable(text), soft_wrap=True, highlight=False, markup=False)


@contextmanager
def errors_in_one_line(debug: bool) -> Iterator[None]:
    """Turns an error into one line on stderr and exit code 1; with `debug`, into its traceback."""
    try:
        yield
    except Exception as error:
        if debug:
            raise
        notes.print(f"[bold red]error:[/] {escape(in_one_line(error))}", soft_wrap=True, highlight=False)
        raise typer.Exit(1) from None


def in_one_line(error: Exception) -> str:
    return printable(as_typed(" ".join(str(error).split()))) or type(error).__name__


def as_typed(text: str) -> str:
    """A text that names arguments of Python, with the command's options in their place."""
    for name in ("text_column_name", "vector_column_name", "texts", "prompt", "max_length"):
        text = text.replace(f"({name})", f"(--{name})")
    return text.replace("trust_remote_code=True", "--trust-remote-code").replace("run_changed=True", "--run-changed")
