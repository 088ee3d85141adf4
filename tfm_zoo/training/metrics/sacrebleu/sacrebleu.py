"""BLEU (Papineni et al. 2002) of texts, in percent, as sacrebleu computes it."""

from collections.abc import Sequence

from sacrebleu.metrics import BLEU, CHRF

from tfm_zoo.training.metrics.loading import TEXTS, metric


def bleu(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float | str]:
    """BLEU, in percent, and its signature."""
    return corpus_score("bleu", BLEU(), predictions, references)


def corpus_score(
    name: str, scorer: BLEU | CHRF, predictions: Sequence[str], references: Sequence[str]
) -> dict[str, float | str]:
    """The score of texts, in percent, and its signature: scores can be compared only if their signatures agree."""
    texts, right = ([text.strip() for text in texts] for texts in (predictions, references))
    score = scorer.corpus_score(texts, [right])
    return {name: score.score, f"{name}_signature": f"{score.name}|{scorer.get_signature()}"}


Sacrebleu = metric(bleu, TEXTS)
