"""`docs/architectures.md`, made of the tables of conversion: `python -m tests.documents.architectures` writes it."""

from collections.abc import Iterable
from pathlib import Path

from tfm_zoo.commands.listing import TITLES, families, head_name, title_of
from tfm_zoo.converters.architecture import FAMILIES
from tfm_zoo.converters.refused import REFUSED

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"
HEAD = """# What converts

Checkpoints of these official architectures become zoo models, and zoo models become official ones again. Jina v2 and
MosaicBERT convert from their files alone, and not back, since their own code no longer loads.

`tfm-zoo list` prints the architectures, `tfm-zoo list bert` the classes of one, `tfm-zoo list --all` the heads of each.
Weights of a class of your own convert by [a table of their names](../recipes/README.md#a-model-of-your-own).
[Add a part](extending.md#adding-an-official-architecture) shows how an architecture is added.
"""


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [header, ["---"] * len(list(header)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    rows = []
    for family, architectures in families().items():
        heads = dict.fromkeys(head_name(head) for each in architectures for head in each.heads if not head.is_bare)
        card = f"[{TITLES[family]}](../model_cards/tfm_{FAMILIES[family]}.md), `{family}...`"
        rows.append([card, ", ".join(map(title_of, architectures)), ", ".join(heads)])
    reasons: dict[str, list[str]] = {}
    for name, reason in REFUSED.items():
        reasons.setdefault(reason, []).append(f"`{name}`")
    refused = [[", ".join(names), reason] for reason, names in reasons.items()]
    parts = [HEAD, table(["family", "converts", "heads"], rows), "\n## What is refused\n"]
    return "\n".join([*parts, table(["`model_type`", "why"], refused)]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
