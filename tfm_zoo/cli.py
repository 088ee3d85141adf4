"""The `tfm-zoo` command."""

import typer

from .commands import conversion, hub, show
from .quiet import hush_deepspeed, hush_downloads, quiet_imports

app = typer.Typer(
    help="Convert official checkpoints to zoo models and back; push, verify and serve zoo models; look inside them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # whose tables say <bool> beside each flag
    pretty_exceptions_enable=False,
)
app.command()(conversion.convert)
app.command()(conversion.export)
app.command("list")(conversion.list_architectures)
app.command()(hub.verify)
app.command()(hub.push)
# `transformers serve` reads all options itself, --help too.
app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)(hub.serve)

pictures = typer.Typer(
    help="Draw a model's attention, what its decision rests on, its positions, its block; or masks and learning rates.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
pictures.command()(show.attention)
pictures.command()(show.rollout)
pictures.command()(show.heads)
pictures.command()(show.positions)
pictures.command()(show.block)
pictures.command()(show.masks)
pictures.command()(show.schedule)
pictures.command()(show.training)
app.add_typer(pictures, name="show")


def main() -> None:
    hush_deepspeed()  # no command trains
    hush_downloads()
    with quiet_imports():  # of subcommands
        app(prog_name="tfm-zoo")
