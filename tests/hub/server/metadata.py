"""What the Hub accepts at the head of a README.md."""

import re

import yaml

ID = r"[\w.-]+(/[\w.-]+)?"
#: what the value of a field, or each of its values, looks like
WORDS = {"license": r"[a-z0-9.-]+", "base_model": ID, "datasets": ID, "tags": r".+"}
WORDS["language"] = r"[a-z]{2,3}(-\w+)*|multilingual|code"
#: what each part of a `model-index` result has to say
RESULT = {"task": ["type"], "dataset": ["type", "name"], "metrics": ["type", "value"]}


def read(card: str) -> dict | None:
    """The metadata of a card, None without any.

    Raises:
        ValueError: if they are not a mapping in YAML.
    """
    head = re.match(r"\s*---[ \t]*\n(.*?)\n---[ \t]*(\n|$)", card, re.DOTALL)
    try:
        metadata = yaml.safe_load(head[1]) if head else None
    except yaml.YAMLError as error:
        raise ValueError(f"bad YAML: {error}") from None
    if not isinstance(metadata, dict | None):
        raise ValueError("no mapping")
    return metadata


def errors(metadata: dict) -> list[str]:
    """A line for each value that the Hub would refuse."""

    def listed(value) -> list:
        return value if isinstance(value, list) else [value]

    words = [(name, word) for name in WORDS if name in metadata for word in listed(metadata[name])]
    found = [f"{name}: {word!r} is not valid" for name, word in words if not re.fullmatch(WORDS[name], str(word), re.A)]
    results = [result for model in metadata.get("model-index", []) for result in model["results"]]
    parts = [(name, part or {}) for result in results for name in RESULT for part in listed(result.get(name))]
    lacks = [f"{name}.{field}" for name, part in parts for field in RESULT[name] if part.get(field) is None]
    return found + [f"model-index: {field} is required" for field in lacks]
