"""Sentences of running text, by a few rules."""

import re

# Where a sentence may end: at a line break, after the full stop of a language that puts no space behind it, and after
# other such marks (and the quotes and brackets that they stand in) where what follows does not go on in lower case. A
# mark that stands apart, as in tokenized text, ends a sentence whatever follows.
BOUNDARY = re.compile(
    r"""
      \n
    | (?<=[\u3002\uff01\uff1f])
    | (?<=\s[.!?])\s+
    | (?: (?<=[.!?…]) | (?<=[.!?…]["'\u201d\u2019»)\]]) )
      (?<!\b[A-Z]\.)
      (?<!\b(?:Mr|Ms|Dr|St|Jr|Sr|vs)\.)(?<!\b(?:Mrs|Rev|Gen|Col)\.)(?<!\b(?:Prof|Capt)\.)(?<!\b[ei]\.[ge]\.)
      (?: \s+ (?![a-zà-öø-ÿ,;:)]) | (?=<) )
    """,
    re.VERBOSE,
)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text in their order, without the white space between them.

    Line breaks end sentences. An abbreviation that the rules do not know ends one too soon, which does no harm where
    sentences are put together again.
    """
    return [sentence for part in BOUNDARY.split(text) if (sentence := part.strip())]
