"""The `tfm-zoo` command."""

from typing import Annotated

import typer

from . import __version__
from .commands import conversion, hub, listing, proof, show
from .utils.quiet import silence_control_codes, silence_deepspeed, silence_downloads, silenced_imports

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,  # whose tables say <bool> beside each flag
    pretty_exceptions_enable=False,
)


def show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"tfm-zoo {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Convert official checkpoints to zoo models and back; record and verify any model; push and
    serve zoo models; look inside them."""


# Each with a line that fits into a terminal: a longer first sentence would be cut off.
app.command(short_help="Make a zoo model of an official checkpoint.")(conversion.convert)
app.command(short_help="Make an official checkpoint of a zoo model.")(conversion.export)
app.command("list", short_help="List the architectures that the zoo converts, or show one.")(listing.list_architectures)
app.command(short_help="Write down what any model is and computes now.")(proof.record)
app.command(short_help="Check that a model still is what was saved or recorded.")(proof.verify)
app.command(short_help="Upload a zoo model to the Hub in one commit.")(hub.push)
# `transformers serve` reads all options itself, --help too.
app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)(hub.serve)

pictures = typer.Typer(
    help="Draw a model's attention, positions or block; or masks, learning rates and losses.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
pictures.command(short_help="Which tokens of a text attend to which.")(show.attention)
pictures.command(short_help="From which tokens attention reaches a classifier's decision.")(show.rollout)
pictures.command(short_help="What each head attends to, on average over texts.")(show.heads)
pictures.command(short_help="A model's positions, and how similar they are.")(show.positions)
pictures.command(short_help="The block as it is configured, box by box.")(show.block)
pictures.command(short_help="The kinds of attention masks.")(show.masks)
pictures.command(short_help="Learning rates by optimiser step.")(show.schedule)
pictures.command(short_help="The losses of runs, side by side.")(show.training)
app.add_typer(pictures, name="show", short_help="Draw attention, decisions, positions, blocks, masks, losses.")


def main() -> None:
    silence_deepspeed()  # no command trains
    silence_downloads()
    silence_control_codes()
    with silenced_imports():  # of subcommands
        app(prog_name="tfm-zoo")
