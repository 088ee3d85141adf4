"""Data sets that are generated, for machines with no data and no network.

Film reviews to classify, sequences to reverse, documents to pre-train on, sentences with tagged names, passages with a
question, and passages with a summary. They are the same each time.

A review is a few opinions between neutral sentences. The adjective makes an opinion positive or negative; "not"
reverses it, and of a sentence with "but" only the second half counts. Most opinions of a review agree with its label. A
quarter of the adjectives occur in the validation and test splits alone, so that no model can know every word.
"""

import random
import re
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

NAME = "generated"
FACT = "on {when} the {who} {did} the {what} in the {where} ."
LABELS = ["negative", "positive"]
SIZES = {"train": 2000, "validation": 400, "test": 400}  # of the reviews
SEQUENCES = {"train": 60_000, "validation": 500, "test": 1000}
DOCUMENTS = {"train": 4000, "validation": 200}
SENTENCES = {"train": 3000, "validation": 500, "test": 1000}  # with tags
QUESTIONS = {"train": 6000, "validation": 500, "test": 1000}
PASSAGES = {"train": 10_000, "validation": 300, "test": 500}  # with summaries
LETTERS = "abcdefghijklmnop"  # of a sequence
LENGTHS = (1, 8)  # of a sequence, the shortest and the longest

PARTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
SUBJECTS = [{kind: words.split() for kind, words in subject.items()} for subject in PARTS["subjects"]]
NAMES = {kind: words.split() for kind, words in PARTS["names"].items()}
WORDS = {kind: words.split() for kind, words in PARTS["words"].items()}


def _data_set(
    sizes: Mapping[str, int], make_row: Callable[[random.Random, str], dict[str, Any]], features: Features | None = None
) -> DatasetDict:
    """Splits of these sizes, whose rows `make_row` makes with random numbers."""
    rng = random.Random(0)
    splits = {split: [make_row(rng, split) for _ in range(size)] for split, size in sizes.items()}
    return DatasetDict({split: Dataset.from_list(rows, features=features) for split, rows in splits.items()})


def generated_documents() -> DatasetDict:
    """Column `text`: documents of four to eight sentences about one subject. Splits train and validation."""

    def document(rng: random.Random, split: str) -> dict[str, str]:
        words = rng.choice(SUBJECTS)
        sentences = (rng.choice(PARTS["sentences"]) for _ in range(rng.randint(4, 8)))
        filled = (re.sub(r"{(\w+)}", lambda slot: rng.choice(words[slot[1]]), sentence) for sentence in sentences)
        return {"text": " ".join(filled)}

    return _data_set(DOCUMENTS, document)


def reversed_sequences() -> DatasetDict:
    """Columns `source`, a few letters, and `target`, the same reversed. All rows of all three splits differ."""
    rng = random.Random(0)
    sources: dict[str, None] = {}
    while len(sources) < sum(SEQUENCES.values()):
        sources[" ".join(rng.choices(LETTERS, k=rng.randint(*LENGTHS)))] = None
    rows = ({"source": source, "target": source[::-1]} for source in sources)
    return DatasetDict({split: Dataset.from_list([*islice(rows, size)]) for split, size in SEQUENCES.items()})


def generated_reviews() -> DatasetDict:
    """Columns `text` and `label`, splits train, validation and test."""
    rng = random.Random(0)
    features = Features({"text": Value("string"), "label": ClassLabel(names=LABELS)})
    known = {side: WORDS[side][: len(WORDS[side]) * 3 // 4] for side in LABELS}  # adjectives of the training split
    splits = {}
    for split, size in SIZES.items():
        labels = [index % 2 for index in range(size)]
        rng.shuffle(labels)
        texts = [_review(rng, LABELS[label], known if split == "train" else WORDS) for label in labels]
        splits[split] = Dataset.from_dict({"text": texts, "label": labels}, features=features)
    return DatasetDict(splits)


def _review(rng: random.Random, label: str, adjectives: dict[str, list[str]]) -> str:
    """Two to four opinions of this label, perhaps one of the other label, and neutral sentences."""
    other = LABELS[1 - LABELS.index(label)]
    sides = [label] * rng.randint(2, 4) + [other] * (rng.random() < 0.3)
    sentences = [_opinion(rng, side, adjectives) for side in sides]
    for _ in range(rng.randint(0, 6)):
        sentence = rng.choice(PARTS["neutral"])
        sentences.append(sentence.format(**{kind: rng.choice(words) for kind, words in WORDS.items()}))
    rng.shuffle(sentences)
    return " ".join(sentences)


def _opinion(rng: random.Random, side: str, adjectives: dict[str, list[str]]) -> str:
    """A sentence on this side, positive or negative."""
    same, other = adjectives[side], adjectives[LABELS[1 - LABELS.index(side)]]
    aspect, second = rng.sample(WORDS["aspect"], 2)
    form = rng.random()
    if form < 0.5:
        return f"the {aspect} was {rng.choice(same)} ."
    if form < 0.75:
        return f"a {rng.choice(same)} and {rng.choice(same)} {aspect} ."
    if form < 0.9:
        return f"the {aspect} was not {rng.choice(other)} ."
    return f"the {aspect} seemed {rng.choice(other)} but the {second} was {rng.choice(same)} ."


def tagged_sentences() -> DatasetDict:
    """Columns `tokens` and `ner_tags`: words, and which of them name persons, places and companies.

    Some names are of persons and of places alike, so that only the words around them tell. A quarter of the names
    occur in the validation and test splits alone.
    """
    tags = ClassLabel(names=["O", *(f"{mark}-{kind}" for kind in ("person", "place", "company") for mark in "BI")])
    features = Features({"tokens": List(Value("string")), "ner_tags": List(tags)})
    known = {kind: words[: len(words) * 3 // 4] for kind, words in NAMES.items()}  # those of the training split

    def tagged_sentence(rng: random.Random, split: str) -> dict[str, list[str]]:
        words, tags, names = [], [], known if split == "train" else NAMES
        for word in rng.choice(PARTS["about_names"]).split():
            kind = word.strip("{}")
            parts = [word if kind == word else rng.choice(names[kind])]
            if word == "{person}" and rng.random() < 0.6:
                parts.append(rng.choice(names["family"]))
            if word == "{company}":
                parts.append(rng.choice(WORDS["trade"]))
            words += parts
            tags += ["O"] if kind == word else [f"B-{kind}", *[f"I-{kind}"] * (len(parts) - 1)]
        return {"tokens": words, "ner_tags": tags}

    return _data_set(SENTENCES, tagged_sentence, features)


def questions_on_passages() -> DatasetDict:
    """Columns `context`, sentences, and one tells who did what, where and when; `question`, about that one; and
    `answers`, lists `text` and `answer_start` with the one answer and its place in the context."""
    lists = {"text": List(Value("string")), "answer_start": List(Value("int32"))}
    features = Features({"question": Value("string"), "context": Value("string"), "answers": lists})

    def question_on_passage(rng: random.Random, split: str) -> dict[str, Any]:
        (fact,) = _facts(rng, 1)
        context, (kind, question) = _told(rng, [fact], rng.randint(1, 5)), rng.choice(list(PARTS["questions"].items()))
        before = FACT.partition(f"{{{kind}}}")[0].format(**fact)
        answers = {"text": [fact[kind]], "answer_start": [context.index(FACT.format(**fact)) + len(before)]}
        return {"question": question.format(**fact), "context": context, "answers": answers}

    return _data_set(QUESTIONS, question_on_passage, features)


def summarised_passages() -> DatasetDict:
    """Columns `text`, sentences, and some tell who did what, where and when; and `summary`, who did what."""

    def summarised_passage(rng: random.Random, split: str) -> dict[str, str]:
        facts = _facts(rng, rng.randint(1, 3))
        summary = " and ".join("the {who} {did} the {what}".format(**fact) for fact in facts)
        return {"text": _told(rng, facts, rng.randint(1, 3)), "summary": summary}

    return _data_set(PASSAGES, summarised_passage)


def _facts(rng: random.Random, count: int) -> list[dict[str, str]]:
    """Who did what, where and when; each about another subject."""
    facts = ({kind: rng.choice(words) for kind, words in subject.items()} for subject in rng.sample(SUBJECTS, count))
    return [{"when": rng.choice(WORDS["day"]), **fact} for fact in facts]


def _told(rng: random.Random, facts: list[dict[str, str]], remarks: int) -> str:
    """A sentence for each fact, in their order, with this many remarks among them."""
    sentences = [FACT.format(**fact) for fact in facts]
    for _ in range(remarks):
        words = {kind: rng.choice(words) for kind, words in WORDS.items()}
        sentences.insert(rng.randrange(len(sentences) + 1), rng.choice(PARTS["remarks"]).format(**words))
    return " ".join(sentences)
