"""Arguments and options that several subcommands take."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str, typer.Argument(help="Folder or Hub id of a model.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit; by default the main branch.")]
TrustRemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run the checkpoint's own code.")]
Out = Annotated[Path, typer.Argument(help="The folder to write. If there is an error, nothing is written.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")]
Token = Annotated[str | None, typer.Option(help="Token for the Hub; by default the one that `hf auth login` saved.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
