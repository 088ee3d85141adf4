"""`tfm-zoo list`: the architectures that the zoo converts, their heads, and the classes of one."""

import re
from difflib import get_close_matches
from typing import Annotated

import typer
from rich import box
from rich.table import Column, Table

from ..converters import ARCHITECTURES
from ..converters.architecture import FILES_OF_FAMILIES, Architecture, Head
from ..converters.refused import REFUSED
from .options import Debug
from .screen import errors_in_one_line, report, results

#: how the names of a family's classes begin -> what the family is
TITLES = {"TfmBert": "Encoders", "TfmDeberta": "Encoders with disentangled attention", "TfmTextTower": "Text towers"}
TITLES |= {"TfmGPT": "Decoders", "TfmEncoderDecoder": "Encoder-decoders"}


def list_architectures(
    name: Annotated[
        str | None, typer.Argument(help="One architecture, such as bert: its classes, or why it is refused.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="A line for each architecture, with its heads.")] = False,
    debug: Debug = False,
) -> None:
    """List the official architectures that the zoo converts, or the classes of one of them."""
    with errors_in_one_line(debug):
        if name is not None:
            results.print(classes_of(find(name)))
            return
        for family, architectures in families().items():
            if every:
                results.print(table_of(family, architectures))
            else:
                results.print(f"{TITLES[family]}: {', '.join(map(title_of, architectures))}", highlight=False)
        report("`tfm-zoo list NAME` shows the classes of one, or why it is refused; with --all, the heads of all.")


def families() -> dict[str, list[Architecture]]:
    """The architectures of each family, by the beginning of its classes' names."""
    found: dict[str, list[Architecture]] = {}
    for architecture in ARCHITECTURES.values():
        found.setdefault(family_of(architecture), []).append(architecture)
    return found


def title_of(architecture: Architecture) -> str:
    """Its name, and in brackets those of models that are called otherwise."""
    models = f" ({', '.join(architecture.models)})" if architecture.models else ""
    return architecture.title + models


def table_of(family: str, architectures: list[Architecture]) -> Table:
    heads = list(dict.fromkeys(head_name(head) for each in architectures for head in each.heads if not head.is_bare))
    caption = ", ".join(f"{initials(head)} {head}" for head in heads)
    name = Column("name", min_width=max(len(each.model_type) for each in architectures))  # which is what one types
    looks = {"title": family, "box": box.SIMPLE_HEAD, "caption": caption, "padding": (0, 1, 0, 0), "pad_edge": False}
    table = Table("architecture", name, *map(initials, heads), **looks)
    for each in architectures:
        has = {head_name(head) for head in each.heads}
        table.add_row(title_of(each), each.model_type, *("●" if head in has else "" for head in heads))
    return table


def classes_of(architecture: Architecture) -> Table:
    """A row for each head: the official class, and the zoo's."""
    title = f"{architecture.title} ({architecture.model_type})"
    table = Table(f"in {architecture.library}", "in tfm_zoo", title=title, box=box.SIMPLE_HEAD)
    for head in architecture.heads:
        table.add_row(head.official, head.zoo_name)
    return table


def find(name: str) -> Architecture:
    """The architecture of a name, however it is written."""
    known = {
        plain(each): architecture
        for key, architecture in ARCHITECTURES.items()
        for each in (*architecture.models, architecture.title, *re.split(r"[()]", architecture.title), key)
        if each
    }
    if reason := {plain(each): reason for each, reason in REFUSED.items()}.get(plain(name)):
        raise ValueError(f"The zoo does not convert {name!r}: {reason}.")
    if plain(name) not in known:
        wanted = plain(name.rpartition("/")[2])  # a Hub id, or a published size, begins with an architecture's name
        near = [each for each in known if wanted.startswith(each)]
        near = near or get_close_matches(wanted, known, n=1, cutoff=0.75)  # fewer letters in common: another model
        hint = f" Did you mean {known[max(near, key=len)].model_type!r}?" if near else ""
        raise ValueError(
            f"The zoo has no architecture named {name!r}.{hint} `tfm-zoo list` prints those that it converts."
        )
    return known[plain(name)]


def plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def family_of(architecture: Architecture) -> str:
    return next(start for start in FILES_OF_FAMILIES if architecture.heads[0].zoo_name.startswith(start))


def head_name(head: Head) -> str:
    return head.zoo_name.partition("For")[2]


def initials(name: str) -> str:
    """`"MLM"` of `"MaskedLM"`."""
    return "".join(filter(str.isupper, name))
