"""The `tfm-zoo` command."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import transformers
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table
from transformers import PreTrainedModel

from . import hub
from .converters import ARCHITECTURES, ConversionError, to_official
from .converters.checkpoint import fetch, open_checkpoint, read_json
from .converters.folders import copy_companions, new_folder
from .converters.models import quietly
from .converters.official import architecture_of
from .converters.official import convert as convert_checkpoint
from .hub.cards import write_conversion_card
from .registration import FAMILIES

app = typer.Typer(
    help="Models of the zoo, from official checkpoints and back.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console, notes = Console(), Console(stderr=True)

Source = Annotated[str, typer.Argument(help="A folder or a Hub id, such as google-bert/bert-base-uncased.")]
ZooSource = Annotated[str, typer.Argument(help="Folder or Hub id of a zoo model.")]
Out = Annotated[Path, typer.Argument(help="The folder to write; after an error there is none.")]
ModelClass = Annotated[
    str | None,
    typer.Option(
        "--model-class",
        "--head",
        help="The zoo's class: TfmBertForTokenClassification, or TokenClassification for short. "
        "By default the one for the head that the checkpoint holds.",
    ),
]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16, ...; by default the checkpoint's.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace OUT where it exists.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit; by default the main branch.")]
Token = Annotated[str | None, typer.Option(help="By default the one of `hf auth login`.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command()
def convert(
    source: Source,
    out: Out,
    model_class: ModelClass = None,
    dtype: Dtype = None,
    overwrite: Overwrite = False,
    debug: Debug = False,
) -> None:
    """Convert an official checkpoint to a zoo model that carries its code, with its tokenizer."""
    with errors_in_one_line(debug), new_folder(out, overwrite) as folder:
        origin = fetch(source)
        checkpoint = open_checkpoint(origin)
        architecture = architecture_of(checkpoint)
        chosen = None if model_class is None else find_class(model_class, architecture.family)
        progress = partial(track, description="Converting", console=notes, disable=not notes.is_terminal)
        model = convert_checkpoint(checkpoint, chosen, progress, dtype=dtype)
        save(model, folder, source)
        copy_companions(origin, folder, architecture.tokenizer)
        write_conversion_card(folder, model, source, architecture.title, out.resolve().name)
    console.print(f"{architecture.title} as {type(model).__name__} in {out}", soft_wrap=True, highlight=False)


@app.command()
def export(zoo_dir: ZooSource, out: Out, overwrite: Overwrite = False, debug: Debug = False) -> None:
    """Write a zoo model in the format of the native class that computes the same, with its tokenizer."""
    with errors_in_one_line(debug), new_folder(out, overwrite) as folder:
        origin = fetch(zoo_dir)
        with notes.status("Converting"), quietly():
            official = to_official(load(origin))
        save(official, folder, zoo_dir)
        copy_companions(origin, folder)
    console.print(f"{type(official).__name__} in {out}", soft_wrap=True, highlight=False)


@app.command("list")
def list_architectures() -> None:
    """List the official architectures that the zoo converts, and their heads."""
    table = Table("architecture", "heads that both have", show_lines=True)
    for architecture in ARCHITECTURES.values():
        family = architecture.heads[0].zoo.config_class.__name__.removesuffix("Config")
        names = f"{architecture.title}\n[dim]{architecture.model_type} - {family}[/dim]"
        shared = ", ".join(head.zoo.__name__.partition("For")[2] for head in architecture.heads if not head.is_bare)
        table.add_row(names, shared or "in memory; blocks without a head")
    console.print(table)


@app.command()
def verify(
    zoo_dir: ZooSource,
    revision: Revision = None,
    dtype: Annotated[str, typer.Option(help="Load it in this type; a coarser one allows for more drift.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print all that was found, for programs.")] = False,
    token: Token = None,
    debug: Debug = False,
) -> None:
    """Say whether a model's code, weights and outputs are those it was saved with (exit code 0) or not (1).

    It is loaded in a fresh process, with transformers and its own code, which is run.

    JSON: {"source", "ok", "differences": [...], "warnings": [...], "figures": {...}}; of what could not be checked
    {"source", "ok": false, "error"}, with exit code 1 too.
    """
    with errors_in_one_line(debug):
        try:
            with notes.status("Verifying"):
                verdict = hub.verify(zoo_dir, revision, token, dtype)
        except Exception as error:
            if as_json:
                print(json.dumps({"source": zoo_dir, "ok": False, "error": in_one_line(error)}, indent=1))
            raise
        print(json.dumps({"source": zoo_dir, "ok": verdict.ok} | asdict(verdict), indent=1) if as_json else verdict)
    raise typer.Exit(0 if verdict.ok else 1)


@app.command()
def push(
    zoo_dir: Annotated[Path, typer.Argument(help="Folder of a zoo model.")],
    repo_id: Annotated[str, typer.Argument(help="The repository, such as user/name; it is made where there is none.")],
    private: Annotated[bool | None, typer.Option(help="Whether a new repository is private.")] = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, made where there is none; by default the main one.")
    ] = None,
    commit_message: Annotated[str | None, typer.Option(help="By default it names the folder.")] = None,
    token: Token = None,
    debug: Debug = False,
) -> None:
    """Upload a zoo model to the Hub, in one commit: code, weights, tokenizer, card and manifest."""
    with errors_in_one_line(debug):
        done = hub.push(zoo_dir, repo_id, private, revision, token, commit_message)
    branch = f", branch {revision}" if revision else ""
    console.print(f"{zoo_dir} is at {done.commit_url}{branch}", soft_wrap=True, highlight=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def serve(context: typer.Context) -> None:
    """Serve zoo models with `transformers serve`, whose arguments it takes, to clients of OpenAI's protocol."""
    from transformers.cli.transformers import main as transformers_main

    # The server looks a checkpoint's class up by its name among those of transformers.
    for architecture in ARCHITECTURES.values():
        for head in architecture.heads:
            setattr(transformers, head.zoo.__name__, head.zoo)
    sys.argv = ["transformers", "serve", *context.args]
    transformers_main()


def find_class(name: str, family: str | None = None) -> type[PreTrainedModel]:
    """A class of the zoo (of one family) by its name, or by the part of it that names the head, in any spelling."""
    classes = {
        name: getattr(module, name)
        for module, config_class in FAMILIES.items()
        for auto, name in config_class.auto_classes.items()
        if family in (None, config_class.model_type) and auto != "AutoConfig"
    }
    wanted = name.replace("-", "").replace("_", "").lower()
    for known, model_class in classes.items():
        if wanted in (known.lower(), known.partition("For")[2].lower()):
            return model_class
    of = "the zoo" if family is None else f"the zoo's family {family}"
    raise ConversionError(f"{name!r} is no class of {of}; those there are: {', '.join(classes)}.")


def load(folder: Path) -> PreTrainedModel:
    """A zoo model, by the class that its `config.json` names."""
    config = read_json(folder / "config.json")
    if not str(config.get("model_type")).startswith("tfm_"):
        raise ConversionError(f"{folder} holds a model of type {config.get('model_type')!r}, not one of the zoo.")
    return find_class((config.get("architectures") or ["None"])[0]).from_pretrained(folder)


def save(model: PreTrainedModel, folder: Path, source: str) -> None:
    model.name_or_path = model.config.name_or_path = source
    with notes.status("Saving"), quietly():
        model.save_pretrained(folder)


@contextmanager
def errors_in_one_line(debug: bool) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if debug:
            raise
        notes.print(f"[bold red]error:[/] {escape(in_one_line(error))}", soft_wrap=True, highlight=False)
        raise typer.Exit(1) from None


def in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def main() -> None:
    app(prog_name="tfm-zoo")
