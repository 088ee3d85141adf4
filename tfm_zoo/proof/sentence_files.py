"""What the files of sentence-transformers beside a model say of its embeddings: read as data, without that library."""

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils import cached_file

from .reading import Reading

MODULES, PROMPTS, TRANSFORMER = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
#: what a module of an embedding model may be, by the last part of its class's name
KINDS = ("Transformer", "Pooling", "Normalize")
#: the names of poolings that differ from ours, and those of old files
POOLINGS = {
    "lasttoken": "last",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "last",
}


class SentenceSettings(NamedTuple):
    """What these files say.

    Args:
        reading: how a text becomes a vector, with the prompt that is taken unasked.
        prompts: texts to put before each text, by their names.
        similarity: how vectors are compared.
    """

    reading: Reading = Reading()
    prompts: dict[str, str] = {}
    similarity: str = "cosine"

    def prompt(self, name: str | None) -> str:
        """The prompt of this name, or else the one that is taken unasked; a `ValueError` for an unknown name."""
        if name is not None and name not in self.prompts:
            known = f"those of the model are {', '.join(self.prompts)}" if self.prompts else "the model has no prompts"
            raise ValueError(f"prompt_name {name!r}: no such prompt; {known}")
        return self.reading.prompt if name is None else self.prompts[name]


def sentence_settings(source: str, **options: Any) -> SentenceSettings:
    """The settings of a folder or a Hub id, whose files may be missing. `options` are those of `cached_file`.

    Raises:
        FileNotFoundError: if the file of a pooling that the model has is missing.
        ValueError: if the model has a part that is not read here, such as a dense layer over the vectors.
    """

    def read(name: str, default: Any) -> Any:
        path = cached_file(source, name, _raise_exceptions_for_missing_entries=False, **options)
        return json.loads(Path(path).read_text(encoding="utf-8")) if path else default

    modules = [(each["type"].rpartition(".")[2], each["path"]) for each in read(MODULES, [])]
    if not modules:
        return SentenceSettings()
    unread = [kind for kind, _ in modules if kind not in KINDS] + [path for kind, path in modules[:1] if path]
    if unread:
        raise ValueError(
            f"{source}: {MODULES} names {', '.join(unread)}, which is not read; only {', '.join(KINDS)} are"
        )
    files = {f"{path}/config.json": read(f"{path}/config.json", None) for kind, path in modules if kind == "Pooling"}
    if missing := [name for name, content in files.items() if content is None]:
        raise FileNotFoundError(f"{source} lacks {missing[0]}, where its {MODULES} says that its pooling is.")
    poolings = [*files.values()]
    if any(not pooling.get("include_prompt", True) for pooling in poolings):
        raise ValueError(f"{source}: its pooling leaves out the prompt (include_prompt: false), which is not read")
    transformer, of_all = read(TRANSFORMER, {}), read(PROMPTS, {})
    prompts = {name: prompt for name, prompt in (of_all.get("prompts") or {}).items() if prompt}
    reading = Reading(
        prompt=prompts.get(of_all.get("default_prompt_name"), ""),
        lower_case=transformer.get("do_lower_case", False),
        max_length=transformer.get("max_seq_length"),
        pooling="+".join(name for pooling in poolings for name in poolings_of(pooling)),
        normalize=any(kind == "Normalize" for kind, _ in modules),
        size=of_all.get("truncate_dim"),
    )
    return SentenceSettings(reading, prompts, of_all.get("similarity_fn_name") or "cosine")


def reading_in(folder: Path) -> dict[str, Any] | None:
    """What the files in a folder say, for a manifest. `None`: the folder lacks them, or they name parts that are not
    read here."""
    with suppress(FileNotFoundError, ValueError):
        if (folder / MODULES).is_file():
            settings = sentence_settings(str(folder))
            # (Prompts and similarity are of searches.)
            return asdict(settings.reading) | {"prompts": settings.prompts, "similarity": settings.similarity}
    return None


def poolings_of(config: dict[str, Any]) -> list[str]:
    """The poolings that a file names, in their order, in today's form or in that of old files."""
    named = config.get("pooling_mode") or [name for name in POOLINGS if config.get(name) is True] or ["mean"]
    return [POOLINGS.get(name, name) for name in ([named] if isinstance(named, str) else named)]
