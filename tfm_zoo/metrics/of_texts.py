"""Metrics of texts, in percent: of translations, summaries and answers."""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")


def bleu(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float | str]:
    """BLEU (Papineni et al. 2002), as sacrebleu computes it, and its signature."""
    return corpus_score("bleu", BLEU(), predictions, references)


def chrf(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float | str]:
    """chrF (Popović 2015), as sacrebleu computes it, and its signature."""
    return corpus_score("chrf", CHRF(), predictions, references)


def corpus_score(
    name: str, scorer: BLEU | CHRF, predictions: Sequence[str], references: Sequence[str]
) -> dict[str, float | str]:
    """The score of texts, and its signature: scores can be compared only if their signatures agree."""
    texts, right = ([text.strip() for text in texts] for texts in (predictions, references))
    score = scorer.corpus_score(texts, [right])
    return {name: score.score, f"{name}_signature": f"{score.name}|{scorer.get_signature()}"}


def exact_match(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """The share of texts that are their references; white space around them does not count."""
    equal = [text.strip() == reference.strip() for text, reference in zip(predictions, references, strict=True)]
    return {"exact_match": 100 * sum(equal) / len(equal)}


def rouge(summaries: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """ROUGE-1, ROUGE-2 and ROUGE-L of summaries (Lin 2004): the mean F1.

    Words are runs of a to z and digits, in lower case and not stemmed, as in the library rouge_score. Texts in other
    alphabets have no such words.
    """
    words = ([re.findall("[a-z0-9]+", text.lower()) for text in texts] for texts in (summaries, references))
    pairs = zip(*words, strict=True)
    scores = [(n_gram_f1(*pair, 1), n_gram_f1(*pair, 2), subsequence_f1(*pair)) for pair in pairs]
    return dict(zip(("rouge1", "rouge2", "rougeL"), 100 * np.mean(scores, axis=0), strict=True))


def n_gram_f1(summary: Sequence[str], reference: Sequence[str], n: int) -> float:
    """F1 of the runs of `n` words that two texts have in common."""
    given, right = (Counter(zip(*(words[i:] for i in range(n)), strict=False)) for words in (summary, reference))
    return f1_of((given & right).total(), given.total(), right.total())


def subsequence_f1(summary: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of the longest sequence of words that both have in this order, whatever stands between."""
    lengths = [0] * (len(reference) + 1)  # lengths[n]: the longest so far in the reference's first n words
    for word in summary:
        before = lengths.copy()
        for place, reference_word in enumerate(reference):
            lengths[place + 1] = before[place] + 1 if word == reference_word else max(lengths[place], before[place + 1])
    return f1_of(lengths[-1], len(summary), len(reference))


def f1_of(common: int, given: int, right: int) -> float:
    return 2 * common / max(given + right, 1)


def squad(answers: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Exact match and F1 of answers (Rajpurkar et al. 2016): the mean over questions, each with its best reference.

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
    return f1_of((Counter(given) & Counter(right)).total(), len(given), len(right))


def normalised(text: str) -> str:
    """A text in small letters, without punctuation and English articles, with single blanks."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())
