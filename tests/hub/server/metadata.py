"""What the Hub accepts at the head of a README.md."""

import re

import yaml

ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
LANGUAGE = re.compile(r"[a-z]{2,3}(-\w+)*|code|multilingual")
#: fields that hold a word, and fields that hold one or several, with what each has to look like
WORD = {"license": None, "library_name": None, "pipeline_tag": None}
WORDS = {"language": LANGUAGE, "base_model": ID, "datasets": ID, "metrics": None, "tags": None}
#: of every result of a `model-index`: its parts, and what each has to say
RESULT = {"task": ("type",), "dataset": ("type", "name"), "metrics": ("type", "value")}


def read(card: str) -> dict | None:
    """The metadata of a card; None if it has none.

    Raises:
        ValueError: if they are not a YAML mapping.
    """
    head = re.match(r"\s*---\s*\n(.*?)\n---\s*(\n|$)", card, re.DOTALL)
    try:
        metadata = yaml.safe_load(head[1]) if head else None
    except yaml.YAMLError as error:
        raise ValueError(f"bad YAML: {error}") from None
    if not isinstance(metadata, dict | None):
        raise ValueError("the metadata should be a mapping")
    return metadata


def errors(metadata: dict) -> list[str]:
    """One line for each field that the Hub would refuse."""
    found = []
    for name, shape in (WORD | WORDS).items():
        values = metadata.get(name, [])
        values = values if isinstance(values, list) and name in WORDS else [values] if values != [] else []
        bad = [value for value in values if not (isinstance(value, str) and (shape is None or shape.fullmatch(value)))]
        found += [f'"{name}" with value {value!r} is not valid' for value in bad]
    for model in metadata.get("model-index", []):
        found += [] if isinstance(model.get("name"), str) else ['"model-index" needs a name']
        for result in model.get("results", []):
            for part, fields in RESULT.items():
                given = result.get(part) or {}
                for item in given if isinstance(given, list) else [given]:
                    found += [f'"model-index": {part}.{name} is required' for name in fields if name not in item]
    return found
