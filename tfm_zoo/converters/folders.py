"""Checkpoint folders: copying what is not a weight."""

import json
import shutil
from pathlib import Path

from transformers import AutoTokenizer

from ..utils.tokenizer_files import VOCABULARIES
from .checkpoint import COMPANIONS, read_json


def copy_companions(source: Path, out: Path) -> None:
    """Copies a checkpoint's tokenizer, generation and sentence-transformers files as they are."""
    for file in {file for pattern in COMPANIONS for file in source.glob(pattern) if file.is_file()}:
        target = out / file.relative_to(source)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, target)


def name_tokenizer_class(source: Path, out: Path, default: str) -> None:
    """Writes a tokenizer's class into the `tokenizer_config.json` of a copy, if it has a vocabulary.

    transformers may choose the class by the `model_type`, and knows no class for the zoo's. So the copy names the one
    that transformers chooses for the official checkpoint `source`. If it cannot load one there, that of the file stays,
    or else it is `default`.
    """
    if not any(any(source.glob(pattern)) for pattern in VOCABULARIES):
        return
    name = "tokenizer_config.json"
    settings = read_json(source / name) if (source / name).exists() else {}
    saved_class = settings.get("tokenizer_class")
    # An `auto_map` names a class of the checkpoint's own code, which is not looked for.
    loaded_class = None if "auto_map" in settings else class_of_tokenizer(source)
    wanted_class = loaded_class or saved_class or default
    # (transformers reads `BertTokenizerFast` as `BertTokenizer`.)
    if wanted_class not in (saved_class, str(saved_class).removesuffix("Fast")):
        (out / name).write_text(json.dumps(settings | {"tokenizer_class": wanted_class}, indent=2) + "\n", "utf-8")


def class_of_tokenizer(source: Path) -> str | None:
    """The tokenizer class that transformers chooses for a checkpoint; `None` if it cannot load one."""
    try:
        name = type(AutoTokenizer.from_pretrained(source, trust_remote_code=False)).__name__
    except Exception:  # a model is converted even if its tokenizer, for whatever reason, does not load
        return None
    return {"TokenizersBackend": "PreTrainedTokenizerFast"}.get(name, name)  # the name that older versions know, too
