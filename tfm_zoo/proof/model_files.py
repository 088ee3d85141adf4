"""Which files of a folder belong to its model: a push sends these alone, and `verify` only warns of new others."""

import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote

from ..converters.sources import OF_SENTENCES
from ..utils.folder_kinds import MANIFEST
from ..utils.tokenizer_files import OF_TOKENIZERS
from .contents import CARD, GENERATE, SETTINGS, code_in, files_but, weight_names_in

#: what a run leaves in a folder beside its model, and formats that may run code when they are read
UNSENT = ("events.out.*", "training_run.json", "*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt")
#: names of files that transformers, sentence-transformers, PEFT, other engines and the recipes give them, in any folder
NAMES = (
    *("model*.safetensors", "model.safetensors.index.json", "adapter_model*.safetensors", MANIFEST),
    *(*SETTINGS, "config.[0-9]*.json", "*processor_config.json", "quant*_config.json", "adapter_config.json"),
    *(*OF_TOKENIZERS, "*.jinja", "chat_template.json"),
    *(*(name for name in OF_SENTENCES if "/" not in name), "router_config.json"),
    *("*.onnx", "*.onnx_data", "ort_config.json", "openvino*.xml", "openvino*.bin", "openvino_config.json", "*.gguf"),
    *("tf_model*.h5", "flax_model*.msgpack", "rust_model.ot"),
    *(CARD, "LICENSE*", "NOTICE*", *(f"{of}_results.json" for of in ("all", "train", "eval", "test", "predict"))),
    *("trainer_state.json", "training_curves.png"),
)
#: what code that generates needs
REQUIRED = f"{posixpath.dirname(GENERATE)}/requirements.txt"
#: what a card links to or shows: in Markdown, and in HTML
LINKS = re.compile(r"\]\(\s*<?([^\s)>]+)|\b(?:src|href)\s*=\s*[\"']([^\"']+)")


def files_of_model(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """The files of a folder that belong to its model, by name; and the names of the others, but for hidden files, those
    that match `UNSENT`, and what runs leave.

    A file belongs to it by its name (`NAMES`), or if it is code that loading runs, if an index of weights names it, if
    the card links to it, or if it lies in the folder of a module of sentence-transformers.
    """
    files = files_but(folder, ())
    named = {*code_in(folder), *weight_names_in(folder), *linked_in(folder / CARD), REQUIRED}
    modules = {*modules_in(folder)}

    def belongs(name: str) -> bool:
        return name in named or any(parent.as_posix() in modules for parent in Path(name).parents)

    unsent = {name for name in files if is_like(name, UNSENT)}
    sent = {name for name in files if is_like(name, NAMES) or (name not in unsent and belongs(name))}
    return {name: files[name] for name in sorted(sent)}, sorted(files.keys() - sent - unsent)


def is_like(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(posixpath.basename(name), pattern) for pattern in patterns)


def linked_in(card: Path) -> Iterator[str]:
    """The names, relative to its folder, that a card links to or shows."""
    if card.is_file():
        for links in LINKS.findall(card.read_text(encoding="utf-8", errors="replace")):
            yield posixpath.normpath(unquote("".join(links).partition("#")[0]))


def modules_in(folder: Path) -> Iterator[str]:
    """The folders of modules of sentence-transformers inside a model's folder."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        paths = [posixpath.normpath(module["path"]) for module in modules if module["path"]]
    except (OSError, ValueError, RecursionError, TypeError, KeyError):  # whoever loads the folder is told so
        return
    yield from (path for path in paths if path != ".")
