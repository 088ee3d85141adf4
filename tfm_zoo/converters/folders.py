"""Checkpoint folders: copying what is not a weight."""

import json
import shutil
from pathlib import Path

from transformers import AutoTokenizer

from ..utils.tokenizer_files import VOCABULARIES
from .checkpoint import COMPANIONS, read_json


def copy_companions(source: Path, out: Path, tokenizer: str | None = None) -> None:
    """Copies a checkpoint's tokenizer, generation and sentence-transformers files as they are.

    transformers may choose a tokenizer's class by the `model_type`, and knows no class for the zoo's. So
    `tokenizer_config.json` in the copy of an official checkpoint, for which `tokenizer` gives the architecture's class,
    names the class that transformers chooses for the source. If it cannot load one, that of the file stays, or else it
    is `tokenizer`.
    """
    files = sorted({file for pattern in COMPANIONS for file in source.glob(pattern) if file.is_file()})
    for file in files:
        target = out / file.relative_to(source)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, target)
    if tokenizer and any(file.match(pattern) for file in files for pattern in VOCABULARIES):
        name = "tokenizer_config.json"
        settings = read_json(source / name) if (source / name).exists() else {}
        saved_class = settings.get("tokenizer_class")
        # An `auto_map` names a class of the checkpoint's own code, which is not looked for.
        loaded_class = None if "auto_map" in settings else class_of_tokenizer(source)
        wanted_class = loaded_class or saved_class or tokenizer
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
