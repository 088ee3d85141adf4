"""Exact match and F1 of answers, as SQuAD counts them."""

import re
import string
from collections import Counter
from collections.abc import Sequence

from datasets import Features, List, Value

from tfm_zoo.training.metrics.loading import metric

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")


def squad(answers: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Exact match and F1 (Rajpurkar et al. 2016), in percent: the mean over questions, each with its best reference.

    A question without references has no answer, and "" is right (Rajpurkar et al. 2018).
    """
    pairs = [(answer, right or [""]) for answer, right in zip(answers, references, strict=True)]
    exact = [max(normalised(answer) == normalised(each) for each in right) for answer, right in pairs]
    f1 = [max(word_f1(answer, each) for each in right) for answer, right in pairs]
    return {"exact_match": 100 * sum(exact) / len(exact), "f1": 100 * sum(f1) / len(f1)}


def word_f1(answer: str, reference: str) -> float:
    """F1 of the words of an answer; 1 if both lack words, 0 if one lacks words."""
    given, right = normalised(answer).split(), normalised(reference).split()
    if not given or not right:
        return float(given == right)
    return 2 * (Counter(given) & Counter(right)).total() / (len(given) + len(right))


def normalised(text: str) -> str:
    """A text in small letters, without punctuation and English articles, with single blanks."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


Squad = metric(squad, Features(predictions=Value("string"), references=List(Value("string"))))
