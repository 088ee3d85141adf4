"""Data sets that are generated, for machines with no data and no network.

Film reviews to classify, sequences to reverse, documents to pre-train on. Each review is a few opinions between neutral
sentences. An opinion is positive or negative by its adjective; "not" turns it over, and after "but" only the second
half counts. Most opinions of a review point the way of its label. A quarter of the adjectives occur in the validation
and test splits alone, so that no model can know every word.
"""

import itertools
import random
import re

from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

NAME = "generated"
SIZES = {"train": 2000, "validation": 400, "test": 400}
LABELS = ["negative", "positive"]

WORDS = {
    "positive": "warm funny brilliant charming moving clever delightful superb touching gripping witty elegant fresh"
    " tender dazzling sincere",
    "negative": "dull lifeless awful clumsy boring shallow tedious wooden predictable messy bland lazy hollow noisy"
    " grating confusing",
    "aspect": "film plot acting script music ending camera dialogue cast pacing opening story lighting",
    "day": "monday tuesday friday saturday sunday",
    "friend": "sister brother neighbour colleague mother",
    "number": "ninety eighty seventy sixty fifty",
    "place": "village harbour hospital desert school factory",
}
WORDS = {kind: words.split() for kind, words in WORDS.items()}
NEUTRAL = (
    "i saw it on a {day} with my {friend} .",
    "it runs for about {number} minutes .",
    "the film is set in a {place} .",
    "my {friend} had read the book .",
    "there is a scene in a {place} with {number} people .",
    "it came out on a {day} .",
)


SEQUENCES = {"train": 60_000, "validation": 500, "test": 1000}
LETTERS = "abcdefghijklmnop"
LENGTHS = (1, 8)


# A subject a line: who is there, what there is, where, and what one does with it.
SUBJECTS = """
cook baker waiter      | soup bread sauce    | oven table pantry      | stirred tasted burnt
sailor captain diver   | boat anchor net     | harbour reef island    | pulled lost painted
teacher pupil student  | book lesson pencil  | library class yard     | read wrote forgot
singer drummer pianist | song violin drum    | stage studio hall      | played sang tuned
"""
SUBJECTS = [[part.split() for part in line.split("|")] for line in SUBJECTS.strip().splitlines()]
SENTENCES = (
    "the {who} {did} the {what} .",
    "the {what} was in the {where} .",
    "in the {where} the {who} saw a {what} and a {what} .",
    "a {who} and a {who} met in the {where} .",
    "the {what} that the {who} {did} was old .",
    "nobody had {did} the {what} before the {who} came .",
)
DOCUMENTS = {"train": 4000, "validation": 200}


def generated_documents(seed: int = 0) -> DatasetDict:
    """Column `text`: documents of four to eight sentences about one subject. Splits train and validation.

    The words of a subject occur with no other, so that sentences of two documents do not fit each other, but for one
    time in four.
    """
    rng = random.Random(seed)
    return DatasetDict(
        {split: Dataset.from_dict({"text": [_document(rng) for _ in range(size)]}) for split, size in DOCUMENTS.items()}
    )


def _document(rng: random.Random) -> str:
    words = dict(zip(("who", "what", "where", "did"), rng.choice(SUBJECTS), strict=True))
    sentences = (rng.choice(SENTENCES) for _ in range(rng.randint(4, 8)))
    return " ".join(re.sub(r"{(\w+)}", lambda slot: rng.choice(words[slot[1]]), sentence) for sentence in sentences)


def reversed_sequences(seed: int = 0) -> DatasetDict:
    """Columns `source`, a few letters, and `target`, the same from the last to the first; no sequence occurs twice.

    Splits train, validation and test, the same for the same seed.
    """
    rng = random.Random(seed)
    sources: dict[str, None] = {}
    while len(sources) < sum(SEQUENCES.values()):
        sources[" ".join(rng.choices(LETTERS, k=rng.randint(*LENGTHS)))] = None
    rest = iter(sources)
    splits = {name: list(itertools.islice(rest, size)) for name, size in SEQUENCES.items()}
    return DatasetDict(
        {
            name: Dataset.from_dict({"source": rows, "target": [row[::-1] for row in rows]})
            for name, rows in splits.items()
        }
    )


def generated_reviews(seed: int = 0) -> DatasetDict:
    """The data set: columns `text` and `label`, splits train, validation and test. The same for the same seed."""
    rng = random.Random(seed)
    features = Features({"text": Value("string"), "label": ClassLabel(names=LABELS)})
    splits = {}
    for split, size in SIZES.items():
        labels = [index % 2 for index in range(size)]
        rng.shuffle(labels)
        texts = [_review(rng, LABELS[label], held_out=split != "train") for label in labels]
        splits[split] = Dataset.from_dict({"text": texts, "label": labels}, features=features)
    return DatasetDict(splits)


def _review(rng: random.Random, label: str, held_out: bool) -> str:
    other = LABELS[1 - LABELS.index(label)]
    sides = [label] * rng.randint(2, 4) + [other] * (rng.random() < 0.3)
    sentences = [_opinion(rng, side, held_out) for side in sides]
    sentences += [_neutral(rng) for _ in range(rng.randint(0, 6))]
    rng.shuffle(sentences)
    return " ".join(sentences)


def _opinion(rng: random.Random, side: str, held_out: bool) -> str:
    other = LABELS[1 - LABELS.index(side)]
    this, that = rng.sample(WORDS["aspect"], 2)
    form = rng.random()
    if form < 0.5:
        return f"the {this} was {_adjective(rng, side, held_out)} ."
    if form < 0.75:
        return f"a {_adjective(rng, side, held_out)} and {_adjective(rng, side, held_out)} {this} ."
    if form < 0.9:
        return f"the {this} was not {_adjective(rng, other, held_out)} ."
    seemed, was = _adjective(rng, other, held_out), _adjective(rng, side, held_out)
    return f"the {this} seemed {seemed} but the {that} was {was} ."


def _adjective(rng: random.Random, side: str, held_out: bool) -> str:
    words = WORDS[side]
    return rng.choice(words if held_out else words[: len(words) * 3 // 4])


def _neutral(rng: random.Random) -> str:
    return rng.choice(NEUTRAL).format(**{kind: rng.choice(words) for kind, words in WORDS.items()})
