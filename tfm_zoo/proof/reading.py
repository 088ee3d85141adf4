"""How a text becomes a vector: all that vectors depend on besides texts and model."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

#: poolings that are not in [`POOLINGS`]: the output of the model's own pooler, and what all modules of
#: sentence-transformers make of a text together
POOLER, MODULES = "pooler", "modules"
#: a length from which on texts are cut nowhere (transformers writes 1e30 for a tokenizer without a limit)
NO_LIMIT = 10**20
#: inputs as some other programs make them -> how errors and verdicts call it
ODDITIES = {
    "positions_from_zero": "positions that count from 0, not from behind the padding's",
    "positions_behind_padding": "positions that count from behind the padding's, not from 0",
    "no_special_tokens": "no special tokens",
}


@dataclass(frozen=True)
class Reading:
    """How a text becomes a vector.

    Args:
        prompt: a text that stands before each.
        lower_case: whether texts are made lower case before they are tokenized.
        max_length: tokens to which texts are cut; `None`: as many as the model takes.
        pooling: names of poolings, whose vectors are joined, with `+` between them; empty if nothing says it.
        normalize: whether vectors have length 1.
        size: numbers of a vector that are kept, the first ones; `None`: all.
        normalize_shortened: whether vectors are given length 1 again, after all but `size` numbers were cut off.
        oddity: one of `ODDITIES`, which no file says, or nothing.
    """

    prompt: str = ""
    lower_case: bool = False
    max_length: int | None = None
    pooling: str = ""
    normalize: bool = False
    size: int | None = None
    normalize_shortened: bool = False
    oddity: str = ""

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Reading":
        """What a proof or a folder of results holds; fields that are not of a reading are passed over."""
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})

    def cut(self, longest: int | None) -> "Reading":
        """The same; where nothing says to how many tokens texts are cut, to the `longest` that the model takes."""
        return self if self.max_length else replace(self, max_length=longest)

    @property
    def inputs(self) -> tuple:
        """What the model's inputs depend on."""
        return self.prompt, self.lower_case, self.max_length, self.oddity

    def changes(self, other: "Reading") -> Iterator[tuple[str, Any, Any]]:
        """The fields that `other` has otherwise: the name, the value here, and the value there."""
        there = asdict(other)
        yield from ((name, value, there[name]) for name, value in asdict(self).items() if value != there[name])


#: field of a reading -> what it is called
NAMES = {
    "prompt": "the prompt",
    "lower_case": "lower_case",
    "max_length": "truncation",
    "pooling": "pooling",
    "normalize": "normalisation",
    "size": "the size of a vector",
    "normalize_shortened": "normalisation of shortened vectors",
    "oddity": "the model's inputs",
}


def shown(name: str, value: Any) -> str:
    """A field's value, for a sentence."""
    if name == "max_length":
        return "all that fit" if value is None or value >= NO_LIMIT else f"{value} tokens"
    if name in ("normalize", "normalize_shortened"):
        return "on" if value else "off"
    if name == "size":
        return "that of the model" if value is None else f"{value} numbers"
    if name == "oddity":
        return ODDITIES.get(value, "as the model makes them")
    return repr(value) if value not in ("", None) else "none"


def sentences(before: Reading, now: Reading) -> list[str]:
    """A sentence for each field that has changed."""
    return [f"{NAMES[name]} was {shown(name, old)} and is {shown(name, new)}" for name, old, new in before.changes(now)]


def named(says: Reading, found: Reading) -> str:
    """The fields that were found by trying and are not as the model's files say, for the end of a sentence."""
    changes = says.changes(found)
    return " and ".join(
        f"{NAMES[name]} {shown(name, value)} (its files say {shown(name, said)})" for name, said, value in changes
    )


def made_otherwise(proof: dict[str, Any]) -> str | None:
    """What is said of vectors that were not made as the model's files said then, if they were not. (What the files do
    not say is as it was found.)"""
    says, found = Reading.of(proof["files_say"]), Reading.of(proof["reading"])
    says = replace(says, size=found.size, normalize_shortened=found.normalize_shortened)
    says = says if says.pooling else replace(says, pooling=found.pooling, normalize=found.normalize)
    if says == found:
        return None
    is_query_other = replace(says, prompt=found.prompt) != found  # (a query may have a prompt of its own)
    queries = "; sentence-transformers embeds queries as its files say, which does not fit" * is_query_other
    return f"the vectors were made with {named(says, found)}{queries}"
