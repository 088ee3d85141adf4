"""Scores of translations against sacrebleu's own functions."""

import pytest
import sacrebleu

from tfm_zoo.training.metrics import Results, load_metrics
from tfm_zoo.training.tasks.translation import TranslationOptions

REFERENCES = ["Zwei Hunde spielen im Schnee.", "Ein Mann fährt Rad.", "Eine Frau singt."]
TRANSLATIONS = ["Zwei Hunde spielen im Gras.", " Ein Mann fährt Rad. ", "Die Frau sang ein Lied."]


NAMES = ("bleu", "chrf", "exact_match")


def scored(translations: list[str], references: list[str]) -> Results:
    return load_metrics(TranslationOptions.usual_metrics)(translations, references)


def test_equals_sacrebleu():
    scores = scored(TRANSLATIONS, REFERENCES).figures
    stripped = [text.strip() for text in TRANSLATIONS]
    assert tuple(scores) == NAMES
    assert scores["bleu"] == pytest.approx(sacrebleu.corpus_bleu(stripped, [REFERENCES]).score)
    assert scores["chrf"] == pytest.approx(sacrebleu.corpus_chrf(stripped, [REFERENCES]).score)
    assert scores["exact_match"] == pytest.approx(100 / 3)
    assert 0 < scores["bleu"] < 100 and 0 < scores["chrf"] < 100


def test_perfect_and_hopeless():
    assert scored(REFERENCES, REFERENCES).figures == pytest.approx(dict.fromkeys(NAMES, 100))
    assert scored([""] * 3, REFERENCES).figures == dict.fromkeys(NAMES, 0)


def test_another_number_of_references_is_refused():
    with pytest.raises(ValueError):
        scored(TRANSLATIONS, REFERENCES[:2])


def test_signatures_name_tokenisation_and_version():
    bleu, chrf = scored(["a"], ["a"]).others.values()
    assert bleu.startswith("BLEU|nrefs:1|") and f"version:{sacrebleu.__version__}" in bleu and "tok:13a" in bleu
    assert chrf.startswith("chrF2|nrefs:1|")
