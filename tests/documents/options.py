"""`recipes/options.md`, made of the options of all recipes: `python -m tests.documents.options` writes it."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Literal, Union, get_args, get_origin

from tfm_zoo.training.options import MAY_CHANGE, TrainingOptions

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "recipes" / "options.md"
sys.path.append(str(ROOT / "recipes"))

HEAD = """# Options of the recipes

Every option of every recipe, as `--help` prints it. An option may stand in a YAML file, too (`--config`), and its name
may have hyphens. *Kept*: a resumed run must have the value with which it began. `finetune_embeddings.py` and
`finetune_reranker.py` also take all options of transformers' [`TrainingArguments`]({url}).
"""
URL = "https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments"


def classes() -> dict[str, type]:
    """Each recipe's class of options."""
    from compare_architectures import ComparisonOptions
    from finetune_embeddings import EmbeddingOptions
    from finetune_reranker import RerankerOptions

    from tfm_zoo.training.tasks.classification import ClassificationOptions
    from tfm_zoo.training.tasks.denoising import DenoisingOptions
    from tfm_zoo.training.tasks.language_modeling import LanguageModelingOptions
    from tfm_zoo.training.tasks.pretraining import PretrainingOptions
    from tfm_zoo.training.tasks.question_answering import AnsweringOptions
    from tfm_zoo.training.tasks.summarization import SummarizationOptions
    from tfm_zoo.training.tasks.tagging import TaggingOptions
    from tfm_zoo.training.tasks.translation import TranslationOptions

    return {
        "finetune_classification.py": ClassificationOptions,
        "finetune_token_classification.py": TaggingOptions,
        "finetune_question_answering.py": AnsweringOptions,
        "finetune_summarization.py": SummarizationOptions,
        "train_translation.py": TranslationOptions,
        "finetune_causal_lm.py": LanguageModelingOptions,
        "pretrain_bert.py": PretrainingOptions,
        "pretrain_t5.py": DenoisingOptions,
        "compare_architectures.py": ComparisonOptions,
        "finetune_embeddings.py": EmbeddingOptions,
        "finetune_reranker.py": RerankerOptions,
    }


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


def row(each: Field) -> str:
    names = ", ".join(f"`{name}`" for name in (each.name, *(a.strip("-") for a in each.metadata.get("aliases", ()))))
    default = "" if each.default is None or each.default == "" else f"`{each.default}`"
    kept = "" if each.name in MAY_CHANGE.split() else "kept"
    text = each.metadata.get("help", "").replace("|", "\\|").replace("<", "\\<")
    return f"| {names} | {kind(each.type)} | {default} | {kept} | {text} |"


def table(options: Iterable[Field]) -> str:
    return "\n".join(["| option | value | default | kept | |", "|---|---|---|---|---|", *map(row, options)])


def page(classes: Mapping[str, type]) -> str:
    """The page: first the options that all recipes with the zoo's own loop share, then what each has of its own."""
    shared = offered(TrainingOptions)
    parts = [HEAD.format(url=URL), "## Of all recipes with the zoo's own loop\n", table(shared.values())]
    for script, options_class in classes.items():
        found = offered(options_class)
        own = [each for name, each in found.items() if name not in shared or row(each) != row(shared[name])]
        lacks = sorted(shared.keys() - found.keys()) if issubclass(options_class, TrainingOptions) else []
        parts += [f"\n## {script}\n", table(own)]
        parts += [f"\nWithout {', '.join(f'`{name}`' for name in lacks)}."] if lacks else []
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(classes()), encoding="utf-8")
