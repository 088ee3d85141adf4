"""`tfm-zoo verify`, `push` and `serve`: zoo models on the Hub, and behind a server."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import Debug, Token, ZooModel
from .screen import errors_in_one_line, in_one_line, notes, printable, report, working

DType = Literal["auto", "float32", "float64", "float16", "bfloat16"]


def verify(
    zoo_dir: ZooModel,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit; by default the main branch.")] = None,
    dtype: Annotated[DType, typer.Option(help="The type to load the model in; a coarser one may drift more.")] = "auto",
    matrix: Annotated[
        str | None,
        typer.Option(help="Under each of these releases, which are installed: transformers==5.12,5.15,latest."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON, for programs.")] = False,
    token: Token = None,
    debug: Debug = False,
) -> None:
    """Check that a model's code, weights and outputs are those it was saved with: exit code 0 if they are, else 1.

    The model is loaded in a fresh process with transformers and its own code. That code runs: verify only what you
    would load.

    JSON: {"source", "ok", "differences": [...], "warnings": [...], "figures": {...}}. If the check itself fails:
    {"source", "ok": false, "error"}, also with exit code 1. With --matrix: {"source", "ok", "matrix": {...}}, for each
    release such a result, with the release that was "installed" and the "seconds" that it took.
    """
    from ..converters.sources import check_folder, download

    with errors_in_one_line(debug):
        try:
            check_folder(zoo_dir, token)
            if not Path(zoo_dir).is_dir():  # asked here, since `hub` takes seconds to import
                download(zoo_dir, ["config.json"], revision, token)
            options = {"revision": revision, "token": token, "dtype": dtype}
            with working(f"Verifying {zoo_dir}: reading its files, then running it in a fresh process"):
                from .. import hub

                found = hub.verify_matrix(zoo_dir, matrix, **options) if matrix else hub.verify(zoo_dir, **options)
        except Exception as error:
            if as_json:
                print(json.dumps({"source": zoo_dir, "ok": False, "error": in_one_line(error)}, indent=1))
            raise
        if as_json:
            print(json.dumps({"source": zoo_dir, "ok": found.ok} | asdict(found), indent=1))
        else:
            print(printable(str(found)))
    raise typer.Exit(0 if found.ok else 1)


def push(
    zoo_dir: Annotated[Path, typer.Argument(help="Folder of a zoo model.")],
    repo_id: Annotated[str, typer.Argument(help="The repository, such as user/name; a new one is created.")],
    private: Annotated[bool | None, typer.Option(help="Whether a new repository is private.")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch; a new one is created. By default main.")] = None,
    commit_message: Annotated[
        str | None, typer.Option(help="The commit's message; by default it names the folder.")
    ] = None,
    token: Token = None,
    debug: Debug = False,
) -> None:
    """Upload a zoo model to the Hub in one commit: code, weights, tokenizer, card and manifest."""
    with errors_in_one_line(debug), notes.status(f"Pushing {zoo_dir}"):
        from .. import hub

        options = {"private": private, "revision": revision, "token": token, "commit_message": commit_message}
        commit = hub.push(zoo_dir, repo_id, **options)
    report(f"{zoo_dir} is at {commit.commit_url}{f', branch {revision}' if revision else ''}")


def serve(context: typer.Context) -> None:
    """Serve zoo models to OpenAI-compatible clients. Takes the arguments of `transformers serve`."""
    from transformers.utils.import_utils import is_serve_available

    with errors_in_one_line(debug=False):
        if not is_serve_available():
            raise ImportError("What serves a model is not installed: pip install 'transformers[serving]'")
        from transformers.cli.transformers import main as transformers_main  # its oldest release needs `requests`
    # After transformers' command, which may replace the module `transformers`, to which the classes are added.
    from ..plugin.patches import add_classes_to_transformers

    add_classes_to_transformers()
    sys.argv = ["transformers", "serve", *context.args]
    transformers_main()
