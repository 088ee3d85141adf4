"""The pages that are made of the code: `python docs/pages.py` writes them anew."""

import ast
import re
import sys
from collections.abc import Iterable
from dataclasses import Field, fields
from importlib import import_module
from pathlib import Path
from typing import Literal, Union, get_args, get_origin

from tfm_zoo.commands.listing import TITLES, families, head_name, title_of
from tfm_zoo.converters.architecture import FILES_OF_FAMILIES
from tfm_zoo.converters.refused import REFUSED
from tfm_zoo.training.options import MAY_CHANGE, TrainingOptions

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "recipes"))

CONVERTS = """# What converts

Checkpoints of these official architectures become zoo models, and zoo models become official ones again. Jina v2 and
MosaicBERT convert from their files alone, and not back, since their own code no longer loads.

`tfm-zoo list` prints the architectures, `tfm-zoo list bert` the classes of one, `tfm-zoo list --all` the heads of each.
Weights of a class of your own convert by [a table of their names](../recipes/README.md#a-model-of-your-own).
[Add a part](extending.md#adding-an-official-architecture) shows how an architecture is added.
"""
OPTIONS = """# Options of the recipes

Every option of every recipe, as `--help` prints it. An option may stand in a YAML file, too (`--config`), and its name
may have hyphens. *Kept*: a resumed run must have the value with which it began. `finetune_embeddings.py` and
`finetune_reranker.py` also take all options of transformers' [`TrainingArguments`]({url}).

## Of all recipes with the zoo's own loop
"""
FILES = """# Every file in a line

What each file of the package is, by its own first sentence. Rooms stand as in
[CONTRIBUTING](../CONTRIBUTING.md#where-a-thing-lives): each may import from those above it.
"""
URL = "https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments"
TASKS = "tfm_zoo.training.tasks"
#: recipe -> the module and the class of its options
RECIPES = {
    "finetune_classification.py": (f"{TASKS}.classification", "ClassificationOptions"),
    "finetune_token_classification.py": (f"{TASKS}.tagging", "TaggingOptions"),
    "finetune_question_answering.py": (f"{TASKS}.question_answering", "AnsweringOptions"),
    "finetune_summarization.py": (f"{TASKS}.summarization", "SummarizationOptions"),
    "train_translation.py": (f"{TASKS}.translation", "TranslationOptions"),
    "finetune_causal_lm.py": (f"{TASKS}.language_modeling", "LanguageModelingOptions"),
    "pretrain_bert.py": (f"{TASKS}.pretraining", "PretrainingOptions"),
    "pretrain_t5.py": (f"{TASKS}.denoising", "DenoisingOptions"),
    "compare_architectures.py": ("compare_architectures", "ComparisonOptions"),
    "finetune_embeddings.py": ("finetune_embeddings", "EmbeddingOptions"),
    "finetune_reranker.py": ("finetune_reranker", "RerankerOptions"),
}


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *rows])


def architectures() -> str:
    rows = []
    for family, found in families().items():
        heads = dict.fromkeys(head_name(head) for each in found for head in each.heads if not head.is_bare)
        card = f"[{TITLES[family]}](../model_cards/tfm_{FILES_OF_FAMILIES[family]}.md), `{family}...`"
        rows.append([card, ", ".join(map(title_of, found)), ", ".join(heads)])
    reasons: dict[str, list[str]] = {}
    for name, reason in REFUSED.items():
        reasons.setdefault(reason, []).append(f"`{name}`")
    refused = table(["`model_type`", "why"], ([", ".join(names), why] for why, names in reasons.items()))
    parts = [CONVERTS, table(["family", "converts", "heads"], rows), "\n## What is refused\n", refused]
    return "\n".join(parts) + "\n"


def options_of(script: str) -> type:
    module, name = RECIPES[script]
    return getattr(import_module(module), name)


def offered(options_class: type) -> dict[str, Field]:
    """The options of a class that its parser has, by their names."""
    return {each.name: each for each in fields(options_class) if each.init}


def kind(annotation: object) -> str:
    """What values an option takes."""
    parts = [each for each in get_args(annotation) if each is not type(None)]
    if get_origin(annotation) is Literal:
        return ", ".join(map(str, get_args(annotation)))
    if get_origin(annotation) is list:
        return f"{kind(parts[0])} ..."
    if get_origin(annotation) is Union or type(annotation).__name__ == "UnionType":
        return kind(parts[0])
    return {"str": "text", "int": "whole number", "float": "number", "bool": "true, false"}[annotation.__name__]


def row(each: Field) -> list[str]:
    names = ", ".join(f"`{name}`" for name in (each.name, *(a.strip("-") for a in each.metadata.get("aliases", ()))))
    default = "" if each.default is None or each.default == "" else f"`{each.default}`"
    kept = "" if each.name in MAY_CHANGE.split() else "kept"
    text = each.metadata.get("help", "").replace("|", "\\|").replace("<", "\\<")
    return [names, kind(each.type), default, kept, text]


def options() -> str:
    """First those that all recipes with the zoo's own loop share, then what each has of its own."""
    header, shared = ["option", "value", "default", "kept", ""], offered(TrainingOptions)
    parts = [OPTIONS.format(url=URL), table(header, map(row, shared.values()))]
    for script in RECIPES:
        found = offered(options_of(script))
        own = [each for name, each in found.items() if name not in shared or row(each) != row(shared[name])]
        lacks = sorted(shared.keys() - found.keys()) if issubclass(options_of(script), TrainingOptions) else []
        parts += [f"\n## {script}\n", table(header, map(row, own))]
        parts += [f"\nWithout {', '.join(f'`{name}`' for name in lacks)}."] if lacks else []
    return "\n".join(parts) + "\n"


#: file -> what makes it
def first_sentence(file: Path) -> str:
    """Of a file's docstring, on one line."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    text = re.sub(r"\[(`[^`]+`)\]", r"\1", " ".join(text.split("\n\n")[0].split()))
    return re.split(r"(?<=\.)(?<!al\.)\s", text)[0]


def files() -> str:
    package, contributing = ROOT / "tfm_zoo", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = [
        name for line in contributing.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)
    ]
    rooms = [room for name in dict.fromkeys(named) if (room := package / name).is_dir()]
    pages = [FILES]
    for room in [package, *rooms]:
        found = sorted(room.rglob("*.py") if room != package else room.glob("*.py"))
        rows = [[f"`{file.relative_to(room)}`", first_sentence(file)] for file in found if file.name != "__init__.py"]
        pages.append(f"## {room.name}\n\n{table(['file', 'is'], rows)}\n")
    return "\n".join(pages)


PAGES = {
    ROOT / "docs" / "architectures.md": architectures,
    ROOT / "docs" / "files.md": files,
    ROOT / "recipes" / "options.md": options,
}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
