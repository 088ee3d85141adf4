"""Tables of fields, a line each."""

import re
from ast import literal_eval
from contextlib import suppress


def fields_by_name(text: str) -> dict[str, dict]:
    """Fields of configurations, from lines `names: size=32 parent -dropped rope=@other`. An indented line goes on with
    the one above; `parent` and `other` are names above: of the one come all fields, the other is a value."""
    found: dict[str, dict] = {}
    for line in re.sub(r"\n +", " ", text.strip()).splitlines():
        names, words = line.split(": ", 1)
        fields: dict = {}
        for word in words.split():
            key, equals, value = word.partition("=")
            if equals:
                fields[key] = found[value[1:]] if value.startswith("@") else value_of(value)
            elif word.startswith("-"):
                del fields[word[1:]]
            else:
                fields |= found[word]
        found |= dict.fromkeys(names.split(), fields)
    return found


def value_of(text: str) -> object:
    with suppress(ValueError, SyntaxError):
        return literal_eval(text)
    return text
