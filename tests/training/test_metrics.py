"""The zoo's metrics compute what the usual libraries do; others are loaded by name, and refused if they do not work."""

import evaluate
import numpy as np
import pytest
import sacrebleu
import torch
from scipy import stats
from sklearn import metrics as sklearn

from tfm_zoo.metrics import load_metrics
from tfm_zoo.metrics.of_tags import entities

from ..recipes.conftest import OWN

SENTENCES = ["Zwei Hunde spielen im Schnee.", "Ein Mann fährt Rad.", "Eine Frau singt."]
TRANSLATIONS = ["Zwei Hunde spielen im Gras.", " Ein Mann fährt Rad. ", "Die Frau sang ein Lied."]


def figures(names: str, predictions, references) -> dict[str, float]:
    return load_metrics(names.split())(predictions, references).numbers


def test_figures_equal_those_of_scikit_learn_and_scipy():
    rng = np.random.default_rng(0)
    for classes, skew in ((2, 0.0), (2, 0.9), (5, 0.0), (5, 0.9)):
        right = np.where(rng.random(200) < skew, 0, rng.integers(0, classes, 200))
        given = np.where(rng.random(200) < 0.5, right, rng.integers(0, classes - (skew > 0), 200))
        wanted = {"accuracy": sklearn.accuracy_score(right, given)}
        wanted["f1"] = sklearn.f1_score(right, given, average="macro")
        assert figures("accuracy f1", given, right) == pytest.approx(wanted, abs=1e-12)
    right, given = rng.integers(0, 2, (2, 50, 4))
    right[:, 3] = given[:, 3] = 0  # a label that never occurs
    wanted = {"accuracy": sklearn.accuracy_score(right, given)}
    for name, average in (("f1", "macro"), ("f1_micro", "micro")):
        wanted[name] = sklearn.f1_score(right, given, zero_division=0, average=average)
    for labels in (torch.from_numpy(right).float(), right.tolist()):
        assert figures("accuracy f1", given, labels) == pytest.approx(wanted, abs=1e-12)
    right = rng.integers(0, 5, 40).astype(float)  # with ties
    given = right + rng.normal(size=40)
    wanted = {"mse": sklearn.mean_squared_error(right, given), "mae": sklearn.mean_absolute_error(right, given)}
    wanted |= {"pearsonr": stats.pearsonr(given, right).statistic, "spearmanr": stats.spearmanr(given, right).statistic}
    assert figures("mse mae pearsonr spearmanr", given, right) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "predictions", "references", "wanted"),
    [
        ("f1", [0, 1], [1, 0], [0]),  # no true positive is not an error
        ("mse", [[1, 2], [3, 4]], [[1, 2], [3, 6]], [1]),
        # What never changes correlates with nothing.
        ("pearsonr", [0.1] * 3, [1, 2, 3], [0]),
        ("spearmanr", [0.1] * 3, [1, 2, 3], [0]),
        ("seqeval", [["O"]], [["O"]], [0, 0, 0, 1]),
        # Exact matches and F1: a prediction counts by the best of its answers; without any, "" is right.
        ("squad", ["Cat.", "in 1990", ""], [["dog", "a cat"], ["1990"], []], [200 / 3, 100 * (1 + 2 / 3 + 1) / 3]),
        ("squad", [" The  U.S. — an a-b "], [["us — ab"]], [100, 100]),
        # Figures of rouge_score 0.1.2
        ("rouge", ["The cat sat; on a mat."], ["on the mat sat the black cat"], [1000 / 13, 0, 400 / 13]),
        ("rouge", ["a b c d", "x", ""], ["a c b d e", "x", "y"], [(800 / 9 + 100) / 3, 0, (600 / 9 + 100) / 3]),
    ],
)
def test_known_figures(name, predictions, references, wanted):
    assert list(figures(name, predictions, references).values()) == pytest.approx(wanted)


def test_entities_and_their_scores():
    """As seqeval 1.2.2 counts them; tags without a mark, which it misreads, aside."""
    for tags, found in {
        "O B-a I-a O": [("a", 1, 2)],
        "I-a I-a": [("a", 0, 1)],  # without a B
        "B-a I-b": [("a", 0, 0), ("b", 1, 1)],
        "B-a I-a E-a I-a": [("a", 0, 2), ("a", 3, 3)],
        "S-a I-a": [("a", 0, 0), ("a", 1, 1)],
        "B I O B": [("", 0, 1), ("", 3, 3)],
        "noun noun verb": [("noun", 0, 1), ("verb", 2, 2)],
    }.items():
        assert entities(tags.split()) == set(found), tags
    given, right = [["B-a", "O", "O", "B-b"], ["B-b", "B-a"]], [["B-a", "I-a", "O", "B-b"], ["O", "B-a"]]
    computed = load_metrics(["seqeval"])(given, right)
    wanted = {"precision": 2 / 4, "recall": 2 / 3, "f1": 4 / 7, "accuracy": 4 / 6}
    assert computed.numbers == pytest.approx(wanted, abs=1e-12)
    assert computed.others["by_kind"]["b"] == pytest.approx((1 / 2, 1, 2 / 3, 1))


def test_translations_equal_sacrebleu():
    names, stripped = "sacrebleu chrf exact_match", [text.strip() for text in TRANSLATIONS]
    computed, others = load_metrics(names.split())(TRANSLATIONS, SENTENCES)
    wanted = {"bleu": sacrebleu.corpus_bleu(stripped, [SENTENCES]).score}
    wanted |= {"chrf": sacrebleu.corpus_chrf(stripped, [SENTENCES]).score, "exact_match": 100 / 3}
    assert computed == pytest.approx(wanted)
    assert "tok:13a" in others["bleu_signature"] and others["chrf_signature"].startswith("chrF2|nrefs:1|")
    assert figures(names, [""] * 3, SENTENCES) == dict.fromkeys(computed, 0)


def test_metrics_of_a_users_own(own, tmp_path, monkeypatch):
    """By a folder or a file, as it is now. Results of one name are told apart; only numbers are figures."""
    folder = own("mine")
    monkeypatch.chdir(tmp_path)
    for name in (folder, "mine", "./mine", "mine/", "mine/mine.py"):
        assert figures(name, [0, 1, 1, 1], [0, 0, 0, 0]) == {"ones": 0.75}
    (tmp_path / "mine" / "mine.py").write_text(OWN.replace("{RESULTS}", '{"ones": 5}'))
    assert figures("mine", [0], [0]) == {"ones": 5}
    own("accuracy", '{"accuracy": -1}')
    assert figures("accuracy", [1], [1]) == {"accuracy": 1} and figures("./accuracy", [1], [1]) == {"accuracy": -1}

    results = '{"f1": 7, "ones": np.float32(0.5), "of_each": [1, 2]}'
    computed = load_metrics(["accuracy", "f1", own("other", results)])([0, 1, 1], [1, 1, 1])
    assert computed.numbers == {"accuracy": 2 / 3, "f1": 0.4, "other_f1": 7, "ones": 0.5}
    assert [*map(type, computed.numbers.values())] == [float] * 4 and computed.others == {"of_each": [1, 2]}


ZERO_ONE = [0, 1], [1, 0]
DECORATED = "from tfm_zoo.metrics.loading import NUMBERS\nfrom tfm_zoo.metrics.loading import metric\n"
IMPORTS = f"import json, evaluate\n{OWN}"
#: names beside "mine", the text of its file, what it is given, and what is said
REFUSED = [
    # before anything is loaded
    ("acuracy", None, ZERO_ONE, "no metric 'acuracy': give accuracy, "),
    ("empty", None, ZERO_ONE, r"no metric 'empty': .* a file of its own name \(mine/mine.py\)"),
    ("user/space", None, ZERO_ONE, "no metric 'user/space': .* with trust_remote_code, a space of the Hub"),
    ("other/mine", None, ZERO_ONE, "metrics other/mine, mine: two have the same last name"),
    # what does not work
    ("", "def compute(): ...", ZERO_ONE, "loaded: TypeError.*; it needs an evaluate.Metric"),
    ("", "import no_such_package", ZERO_ONE, "cannot be loaded: .*pip install no_such_package"),
    ("", OWN.replace(", references)", ")"), ZERO_ONE, "cannot be loaded: .*unexpected keyword argument 'references'"),
    ("", f"{DECORATED}Mine = metric(lambda predictions: {{}}, NUMBERS)", ZERO_ONE, "cannot be loaded: .*too many pos"),
    ("", IMPORTS, ZERO_ONE, "cannot be loaded: .*'json,'"),
    ("", OWN.replace("{RESULTS}", "1 / 0"), ZERO_ONE, r"'mine' does not work with .*\[0, 1\].*: division by zero"),
    ("", OWN, ([ZERO_ONE[0]], [ZERO_ONE[1]]), r"with .*expected format.*'predictions': Value\('int64'\)"),
]


@pytest.mark.parametrize(("names", "text", "given", "message"), REFUSED)
def test_metrics_that_are_not_there_or_do_not_work_are_named(names, text, given, message, own, tmp_path, monkeypatch):
    own("mine"), own("other/mine"), (tmp_path / "empty").mkdir()
    (tmp_path / "mine" / "mine.py").write_text(text or "raise SystemExit('it ran')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        load_metrics([*names.split(), "mine"])(*given)
    assert "\n" not in str(caught.value)


def test_a_space_of_the_hub_runs_if_it_is_trusted(own, monkeypatch):
    """Without a network from where it was kept. evaluate knows a variable of its own alone."""
    folder, load, asked = own("ones"), evaluate.load, []

    def from_hub(source: str, **options: object) -> evaluate.EvaluationModule:
        asked.append((source, evaluate.config.HF_EVALUATE_OFFLINE))
        return load(f"{folder}/ones.py", **options)

    monkeypatch.setattr(evaluate.config, "HF_EVALUATE_OFFLINE", False)
    monkeypatch.setattr(evaluate, "load", from_hub)
    with pytest.raises(ValueError, match="with trust_remote_code, a space"):
        load_metrics(["user/ones"])
    assert not asked and load_metrics(["user/ones"], trust_remote_code=True)([0, 1], [0, 0]).numbers == {"ones": 0.5}
    assert asked == [("user/ones", True)]
