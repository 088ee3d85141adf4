"""What cards say of this machine: commands and names, without its folders and without tokens."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path


def hub_id(name: str | None) -> str | None:
    """The name, unless it is a path on this machine."""
    return None if name is None or Path(name).exists() else name


def shortened(name: str) -> str:
    """The last part of an absolute path, whose folders mean nothing on another machine; other names as they are."""
    path = Path(name)
    return path.name if path.is_absolute() or name.startswith("~") else name


def command_line(argv: Sequence[str] | None = None) -> str:
    """The command that was given, fit for publication: without the Hub token and the folders of absolute paths, which
    are called local. Without `--resume_from_checkpoint`, too: it was given because the run had begun already."""
    script, *words = sys.argv if argv is None else argv
    command, local, option = ["accelerate", "launch", f"recipes/{Path(script).name}"], [], ""
    for word in words:
        name, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        option = name.lstrip("-").replace("-", "_") or option  # a value is of the option before it
        if option == "resume_from_checkpoint":
            continue
        said = "..." if value and option == "hub_token" else shortened(value)
        command.append(name + equals + said)
        if said not in (value, "...", *local):
            local.append(said)
    return shlex.join(command) + (f"  # local: {', '.join(local)}" if local else "")
