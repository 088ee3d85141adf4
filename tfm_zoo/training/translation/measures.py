"""What translations are measured by: sacrebleu's scores."""

from collections.abc import Sequence

from sacrebleu.metrics import BLEU, CHRF

NAMES = ("bleu", "chrf", "exact_match")


def translation_scores(translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU (Papineni et al. 2002), chrF (Popović 2015) and how many translations are the reference, in percent."""
    translations, references = ([text.strip() for text in texts] for texts in (translations, references))
    equal = sum(text == reference for text, reference in zip(translations, references, strict=True))
    return {
        "bleu": BLEU().corpus_score(translations, [references]).score,
        "chrf": CHRF().corpus_score(translations, [references]).score,
        "exact_match": 100 * equal / len(references),
    }


def signatures() -> list[str]:
    """sacrebleu's signatures of the two scores: scores can be compared only if these agree."""
    # A metric has no signature before it has scored something.
    scores = {metric: metric.corpus_score(["a"], [["a"]]) for metric in (BLEU(), CHRF())}
    return [f"{score.name}|{metric.get_signature()}" for metric, score in scores.items()]
