"""The `tfm-zoo` command."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated

import transformers
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from . import hub
from .converters import ARCHITECTURES, ConversionError, from_official, to_official
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
show = typer.Typer(help="Draw what a model does: its attention, its positions; and schedules.", no_args_is_help=True)
app.add_typer(show, name="show")
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
Model = Annotated[str, typer.Argument(help="Folder or Hub id of a model, of the zoo or official.")]
Text = Annotated[str, typer.Argument(help="What the model reads.")]
Picture = Annotated[Path, typer.Option("--out", "-o", help="The picture: .png, .svg or .pdf.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run the code of its tokenizer that a checkpoint brings along.")
]
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


@show.command("attention")
def show_attention(
    model: Model,
    text: Text,
    target: Annotated[
        str | None, typer.Option(help="What an encoder-decoder writes; by default what it makes of the text, greedily.")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Counted from 0; by default all.")] = None,
    head: Annotated[int | None, typer.Option(help="Counted from 0; by default all.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="Of an encoder-decoder: encoder, decoder or cross; by default cross.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="A page to look through all maps (.html), or a picture: .png, .svg, .pdf."),
    ] = Path("attention.html"),
    trust_remote_code: TrustRemoteCode = False,
    debug: Debug = False,
) -> None:
    """Who attends to whom in a text: by layer and head, with the tokens."""
    with errors_in_one_line(debug):
        pictures = drawing()
        is_page = pictures.check_suffix(out, pictures.PAGES + pictures.IMAGES).suffix.lower() in pictures.PAGES
        with notes.status("Reading"):
            maps = pictures.attention_maps(*load_with_tokenizer(model, trust_remote_code), text, target)
            if is_page:
                pictures.attention_page(maps, out, kind, layer, head)
            else:
                pictures.plot_attention(pictures.choose(maps, kind), out, layer, head)
    console.print(f"Attention of {model} in {out}", soft_wrap=True, highlight=False)


@show.command("rollout")
def show_rollout(
    model: Model,
    text: Text,
    out: Picture = Path("rollout.png"),
    trust_remote_code: TrustRemoteCode = False,
    debug: Debug = False,
) -> None:
    """Which tokens a classifier's decision is made of, by attention rollout."""
    with errors_in_one_line(debug):
        pictures = drawing()
        pictures.check_suffix(out)
        with notes.status("Reading"):
            rollout = pictures.decision_rollout(*load_with_tokenizer(model, trust_remote_code), text)
            pictures.plot_rollout(rollout, out)
    console.print(f"{rollout.decision}: what it is made of in {out}", soft_wrap=True, highlight=False)


@show.command("positions")
def show_positions(
    model: Model,
    length: Annotated[int | None, typer.Option(help="How many; by default all, but at most 512.")] = None,
    out: Picture = Path("positions.png"),
    debug: Debug = False,
) -> None:
    """How a model tells positions apart: a heat map, and their similarity by distance."""
    with errors_in_one_line(debug):
        pictures = drawing()
        pictures.check_suffix(out)
        with notes.status("Drawing"):
            pictures.plot_positions(load_any(model), out, length)
    console.print(f"Positions of {model} in {out}", soft_wrap=True, highlight=False)


@show.command("schedule")
def show_schedule(
    names: Annotated[list[str], typer.Argument(help="Schedules of transformers, such as linear and cosine, and noam.")],
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 10_000,
    warmup_steps: Annotated[int, typer.Option(help="Those of them that the rate rises in.")] = 1_000,
    learning_rate: Annotated[
        float | None, typer.Option(help="The highest; by default 5e-5. Of noam a factor; by default 1.")
    ] = None,
    hidden_size: Annotated[int, typer.Option(help="Width of the model, which noam alone reads.")] = 512,
    out: Picture = Path("schedule.png"),
    debug: Debug = False,
) -> None:
    """Learning rates by the step."""
    with errors_in_one_line(debug):
        drawing().plot_schedules(names, out, steps, warmup_steps, learning_rate, hidden_size)
    console.print(f"{', '.join(names)} in {out}", soft_wrap=True, highlight=False)


def drawing() -> ModuleType:
    """`tfm_zoo.visualization`; what it draws with is not among what the package requires."""
    try:
        from . import visualization
    except ModuleNotFoundError as error:
        lacking = str(error.name).partition(".")[0]
        needed = f"`tfm-zoo show` needs {lacking}, which is not installed: it comes with tfm_zoo's extra 'recipes'."
        raise ModuleNotFoundError(needed, name=lacking) from error
    return visualization


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


def load_any(source: str) -> PreTrainedModel:
    """A zoo model, or an official checkpoint as one, with the name by which it was asked for."""
    folder = fetch(source)
    is_zoo = str(read_json(folder / "config.json").get("model_type")).startswith("tfm_")
    with quietly():
        model = load(folder) if is_zoo else from_official(folder)
    model.name_or_path = source
    return model


def load_with_tokenizer(
    source: str, trust_remote_code: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """[`load_any`], and a tokenizer. Models are always of the classes that are installed: the zoo's own."""
    model = load_any(source)
    folder = source if trust_remote_code else fetch(source, weights=False)  # which fetches no code
    try:
        return model, AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        reason = str(error).replace("`trust_remote_code=True`", "--trust-remote-code")
        raise ConversionError(f"{source} holds no tokenizer that can be loaded: {reason}") from error


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
