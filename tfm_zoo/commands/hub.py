"""`tfm-zoo record`, `verify`, `push` and `serve`: models on the Hub, and behind a server."""

import json
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer

from .options import Debug, Model, Revision, Token, TrustRemoteCode
from .screen import advise, as_typed, errors_in_one_line, in_one_line, notes, printable, report, working

DType = Literal["auto", "float32", "float64", "float16", "bfloat16"]


def verify(
    model: Model,
    revision: Revision = None,
    dtype: Annotated[DType, typer.Option(help="The type to load the model in; a coarser one may drift more.")] = "auto",
    matrix: Annotated[
        str | None,
        typer.Option(help="Under each of these releases, which are installed: transformers==5.12,5.15,latest."),
    ] = None,
    manifest: Annotated[Path | None, typer.Option(help="The manifest, if it is not in the folder.")] = None,
    code_only: Annotated[
        bool, typer.Option("--code-only", help="Say whose code it is, and whether it was changed.")
    ] = False,
    trust_remote_code: TrustRemoteCode = False,
    run_changed: Annotated[
        bool, typer.Option("--run-changed", help="With --trust-remote-code: run code that was changed since, too.")
    ] = False,
    card: Annotated[
        bool, typer.Option("--card", help="If all is well, say so in the folder's card (README.md).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON, for programs.")] = False,
    token: Token = None,
    debug: Debug = False,
) -> None:
    """Check that a model is what it was when its manifest was written: exit code 0 if it is, else 1.

    It says first whose code the checkpoint carries: that of a release of tfm_zoo, file by file, or somebody's own.
    Then it compares all files, loads the model in a fresh process, and compares what it computes: outputs, and the
    states after each layer, of which it names the first that differs. No code of the checkpoint runs: the classes of
    transformers or of tfm_zoo load it. With --trust-remote-code its own code does, if it is as it was recorded.

    A manifest shows accidents and drift. It cannot show a forger's work, who writes a new one: that takes a signature,
    such as those of OpenSSF model signing (model_signing sign FOLDER).

    JSON: {"source", "ok", "code", "differences": [...], "warnings": [...], "figures": {...}}. If the check itself
    fails: {"source", "ok": false, "error"}, also with exit code 1. With --matrix: {"source", "ok", "matrix": {...}},
    for each release such a result, with the release that was "installed" and the "seconds" that it took.
    """
    from ..converters.sources import MANIFEST, check_source, without_manifest

    with errors_in_one_line(debug):
        try:  # what is wrong shows before `hub` is imported, which takes seconds
            check_source(model, revision, token)
            if card and (matrix or not Path(model).is_dir()):
                raise ValueError("--card writes into the README.md of a folder: give one, and no --matrix")
            if manifest is None and Path(model).is_dir() and not Path(model, MANIFEST).is_file():
                raise FileNotFoundError(without_manifest(model))
            options = {"revision": revision, "token": token, "dtype": dtype, "manifest": manifest}
            options |= {"trust_remote_code": trust_remote_code, "run_changed": run_changed, "code_only": code_only}
            what = "reading its code" if code_only else "reading its files, then running it in a fresh process"
            with working(f"Verifying {model}: {what}"):
                from .. import hub

                found = hub.verify_matrix(model, matrix, **options) if matrix else hub.verify(model, **options)
        except Exception as error:
            if as_json:
                print(json.dumps({"source": model, "ok": False, "error": in_one_line(error)}, indent=1))
            raise
        if as_json:
            print(json.dumps({"source": model, "ok": found.ok} | asdict(found), indent=1))
        else:
            print(printable(as_typed(str(found) if matrix else f"{model}: {found.code}\n{found}")))
        if card and found.ok and not matrix:
            from ..hub.card_line import write_line

            write_line(Path(model), found)
    raise typer.Exit(0 if found.ok else 1)


def record(
    model: Model,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file to write.")] = None,
    create_pr: Annotated[
        bool, typer.Option("--create-pr", help="Open a pull request on the Hub that adds the manifest.")
    ] = False,
    trust_remote_code: TrustRemoteCode = False,
    revision: Revision = None,
    token: Token = None,
    debug: Debug = False,
) -> None:
    """Write the manifest of any model that an Auto class loads, by which `verify` finds later what has changed.

    It holds digests of all files and tensors, settings, and what the model computes for fixed inputs, layer by layer.
    It is written to zoo_manifest.json in the model's folder, or to --output. Look at a model before you record it: what
    it computes now is what verify takes for right.
    """
    from ..converters.sources import MANIFEST, check_folder

    with errors_in_one_line(debug), TemporaryDirectory() as place:
        check_folder(model, token)
        with working(f"Recording {model}: reading its files, then running it in a fresh process"):
            from .. import hub
            from ..hub.recording import propose

            kept = output or (Path(place, MANIFEST) if create_pr else None)
            options = {"trust_remote_code": trust_remote_code, "revision": revision, "token": token}
            path = hub.record(model, output=kept, **options)
            address = propose(path, model, token, revision) if create_pr else path
    report(f"{model} is recorded in {address}")


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


#: what stands above the help of `transformers serve`
SERVING = """`tfm-zoo serve MODEL` is transformers' server with the zoo's classes. MODEL, which transformers calls
FORCE_MODEL, is a folder or a Hub id, and needs no --trust-remote-code. It answers to that name, which /v1/models does
not list where it is a folder. Ask it:

curl http://localhost:8000/v1/completions -H 'Content-Type: application/json' \\
     -d '{"model": "MODEL", "prompt": "Once upon a time", "max_tokens": 20}'
"""


def check_served(model: str) -> None:
    """Raises an error for what is no model, or one that writes nothing; warns of one without a template for
    conversations.

    Without that, the server starts all the same, and answers each request with an error.
    """
    from ..converters.checkpoint import read_json
    from ..converters.sources import check_source

    folder, (name, _, revision) = Path(model), model.partition("@")
    if not folder.is_dir():
        return None if ":" in model else check_source(name, revision or None)  # GGUF weights have a colon
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    lacking = [] if "model_type" in config else ["config.json with a model_type"]
    if not [*folder.glob("*.safetensors"), *folder.glob("*.bin")]:
        lacking.append("weights (*.safetensors)")
    if lacking:
        raise FileNotFoundError(f"{folder} is no folder of a model: it has no {', no '.join(lacking)}.")
    names = config.get("architectures") or []
    if names and not any(name.endswith(("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")) for name in names):
        raise ValueError(
            f"{folder} holds a {', '.join(names)}, which writes nothing that a client could ask for. vLLM serves "
            "encoders that embed or classify; in Python, transformers' pipeline does."
        )
    settings = folder / "tokenizer_config.json"
    templates = [*folder.glob("chat_template*"), *folder.glob("additional_chat_templates/*")]
    if not templates and not (settings.is_file() and read_json(settings).get("chat_template")):
        advise(f"{folder} has no chat template: ask /v1/completions. /v1/chat/completions answers with an error.")


def serve(context: typer.Context) -> None:
    """Serve zoo models to OpenAI-compatible clients. Takes the arguments of `transformers serve`."""
    from huggingface_hub import constants
    from transformers.utils.import_utils import is_serve_available

    with errors_in_one_line(debug=False):
        for place, argument in enumerate(context.args):  # one that follows an option may be its value
            if Path(argument).is_dir() or (place == 0 and not argument.startswith("-")):
                check_served(argument)
        if "--help" in context.args:
            report(SERVING)
        if not is_serve_available():
            raise ImportError("What serves a model is not installed: pip install 'transformers[serving]'")
        from transformers.cli.transformers import main as transformers_main  # its oldest release needs `requests`
    # After transformers' command, which may replace the module `transformers`, to which the classes are added.
    from ..plugin.patches import add_classes_to_transformers

    add_classes_to_transformers()
    with suppress(OSError):  # the server lists what is in the Hub's cache, and fails where there is none
        Path(constants.HF_HUB_CACHE).mkdir(parents=True, exist_ok=True)
    sys.argv = ["transformers", "serve", *context.args]
    transformers_main()
