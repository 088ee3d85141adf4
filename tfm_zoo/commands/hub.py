"""`tfm-zoo push` and `serve`: models on the Hub, and behind a server."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from .options import Debug, Token
from .screen import advise, errors_in_one_line, notes, report


def push(
    zoo_dir: Annotated[Path, typer.Argument(help="Folder of a zoo model.")],
    repo_id: Annotated[str, typer.Argument(help="The repository, such as user/name; a new one is created.")],
    private: Annotated[bool | None, typer.Option(help="Whether a new repository is private.")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch; a new one is created. By default main.")] = None,
    commit_message: Annotated[
        str | None, typer.Option(help="The commit's message; by default it names the folder.")
    ] = None,
    max_drop: Annotated[
        str | None,
        typer.Option(
            "--max_drop",
            "--max-drop",
            help="Refuse a quantised model that lost more than this, such as 0.5% of what it had.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the folder, and list what a push sends. Send nothing.")
    ] = False,
    token: Token = None,
    debug: Debug = False,
) -> None:
    """Upload a zoo model to the Hub in one commit: code, weights, tokenizer, card and manifest.

    Exports, a recipe's figures, and what the card links to or shows go along. Checkpoints of a training and the texts
    that a recipe wrote stay behind. So do other files, which are named.
    """
    with errors_in_one_line(debug), notes.status(f"Pushing {zoo_dir}"):
        from ..proof.bill import allowed_drop

        most = None if max_drop is None else allowed_drop(max_drop)
        from .. import hub

        options = {"private": private, "revision": revision, "token": token, "commit_message": commit_message}
        if dry_run:
            sizes = hub.files_to_push(zoo_dir, repo_id, max_drop=most)
            for name, size in sizes.items():
                report(f"{size:>15,}  {name}")
            report(f"{sum(sizes.values()):>15,}  bytes in {len(sizes)} files, which a push sends to {repo_id}")
            return
        commit = hub.push(zoo_dir, repo_id, max_drop=most, **options)
    report(f"{zoo_dir} is at {commit.commit_url}{f', branch {revision}' if revision else ''}")


#: what stands above the help of `transformers serve`
SERVING = """`tfm-zoo serve MODEL` is transformers' server with the zoo's classes. MODEL (FORCE_MODEL below) is a folder
or a Hub id, and needs no --trust-remote-code. /v1/models does not list a folder. Ask it by that name:

curl http://localhost:8000/v1/completions -H 'Content-Type: application/json' \\
     -d '{"model": "MODEL", "prompt": "Once upon a time", "max_tokens": 20}'
"""


def check_served(model: str) -> None:
    """Raises an error for what is not a model, or one that writes nothing; warns of one without a template for
    conversations.

    Without that, the server starts all the same, and answers each request with an error.
    """
    from ..converters.checkpoint import read_json
    from ..converters.sources import check_source
    from ..utils.folder_kinds import check_is_model

    folder, (name, _, revision) = Path(model), model.partition("@")
    if not folder.is_dir():
        return None if ":" in model else check_source(name, revision or None)  # GGUF weights have a colon
    check_is_model(folder, folder)
    names = read_json(folder / "config.json").get("architectures") or []
    if names and not any(name.endswith(("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")) for name in names):
        raise ValueError(
            f"{folder} holds a {', '.join(names)}, which does not generate text. vLLM serves encoders that embed or "
            "classify. In Python, transformers' pipeline runs them."
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
    with suppress(OSError):  # the server lists what is in the Hub's cache, and fails without one
        Path(constants.HF_HUB_CACHE).mkdir(parents=True, exist_ok=True)
    sys.argv = ["transformers", "serve", *context.args]
    transformers_main()
