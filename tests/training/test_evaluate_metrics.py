"""The zoo's metrics compute what the usual libraries do; others are loaded by name, and refused if they do not work."""

import multiprocessing
import os
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import evaluate
import numpy as np
import pytest
import sacrebleu
import torch
from huggingface_hub import constants
from scipy import stats
from sklearn import metrics as sklearn
from transformers import Trainer, TrainingArguments

from tfm_zoo import TfmBertForSequenceClassification
from tfm_zoo.training.metrics import for_trainer, load_metrics, predicted
from tfm_zoo.training.metrics.accuracy.accuracy import accuracy
from tfm_zoo.training.metrics.seqeval.seqeval import entities

from ..recipes.conftest import OWN
from ..tiny import ragged_batch, tiny_model

SENTENCES = ["Zwei Hunde spielen im Schnee.", "Ein Mann fährt Rad.", "Eine Frau singt."]
TRANSLATIONS = ["Zwei Hunde spielen im Gras.", " Ein Mann fährt Rad. ", "Die Frau sang ein Lied."]


def figures(name: str, predictions, references) -> dict[str, float]:
    return load_metrics([name])(predictions, references).figures


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("skew", [0.0, 0.9])
def test_one_label_equals_scikit_learn(classes, skew):
    rng = np.random.default_rng(classes)
    references = np.where(rng.random(200) < skew, 0, rng.integers(0, classes, 200))
    predictions = np.where(rng.random(200) < 0.5, references, rng.integers(0, classes - (skew > 0), 200))
    computed = load_metrics(["accuracy", "f1"])(predictions, references)
    f1 = sklearn.f1_score(references, predictions, average="macro")
    wanted = {"accuracy": sklearn.accuracy_score(references, predictions), "f1": f1}
    assert computed.figures == pytest.approx(wanted, abs=1e-12) and computed.others == {}


def test_several_labels_equal_scikit_learn():
    rng = np.random.default_rng(0)
    references, predictions = rng.integers(0, 2, (2, 50, 4))
    references[:, 3] = predictions[:, 3] = 0  # a label that never occurs
    wanted = {
        "accuracy": sklearn.accuracy_score(references, predictions),
        "f1": sklearn.f1_score(references, predictions, average="macro", zero_division=0),
        "f1_micro": sklearn.f1_score(references, predictions, average="micro"),
    }
    for labels in (references, torch.from_numpy(references).float(), references.tolist()):
        assert load_metrics(["accuracy", "f1"])(predictions, labels).figures == pytest.approx(wanted, abs=1e-12)


def test_numbers_equal_scipy_and_scikit_learn():
    rng = np.random.default_rng(0)
    references = rng.integers(0, 5, 40).astype(float)  # with ties
    predictions = references + rng.normal(size=40)
    computed = load_metrics(["mse", "mae", "pearsonr", "spearmanr"])(predictions, references).figures
    wanted = {
        "mse": sklearn.mean_squared_error(references, predictions),
        "mae": sklearn.mean_absolute_error(references, predictions),
        "pearsonr": stats.pearsonr(predictions, references).statistic,
        "spearmanr": stats.spearmanr(predictions, references).statistic,
    }
    assert computed == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "predictions", "references", "wanted"),
    [
        ("f1", [0, 1], [1, 0], [0]),  # no true positive is no error
        ("mse", [[1, 2], [3, 4]], [[1, 2], [3, 6]], [1]),
        # What never changes correlates with nothing.
        ("pearsonr", [0.1] * 3, [1, 2, 3], [0]),
        ("pearsonr", [1, 2, 3], [0.1] * 3, [0]),
        ("spearmanr", [0.1] * 3, [1, 2, 3], [0]),
        ("spearmanr", [1, 2, 3], [0.1] * 3, [0]),
        ("seqeval", [["O"]], [["O"]], [0, 0, 0, 1]),
        # Exact matches and F1: a prediction counts by the best of its answers; without any, "" is right.
        ("squad", ["Cat.", "in 1990", ""], [["dog", "a cat"], ["1990"], []], [200 / 3, 100 * (1 + 2 / 3 + 1) / 3]),
        ("squad", ["", "a b"], [[], ["c"]], [50, 50]),
        ("squad", [" The  U.S. — an a-b "], [["us — ab"]], [100, 100]),
        ("squad", ["the big cat"], [["Big cats"]], [0, 50]),
        ("squad", ["the", "the", "a cat"], [[""], ["x"], [""]], [100 / 3, 100 / 3]),
        # Figures of rouge_score 0.1.2
        ("rouge", ["The cat sat; on a mat."], ["on the mat sat the black cat"], [1000 / 13, 0, 400 / 13]),
        ("rouge", ["a b c d", "x", ""], ["a c b d e", "x", "y"], [(800 / 9 + 100) / 3, 0, (600 / 9 + 100) / 3]),
        ("rouge", ["one two three"], ["one two four"], [200 / 3, 50, 200 / 3]),
    ],
)
def test_known_figures(name, predictions, references, wanted):
    assert list(figures(name, predictions, references).values()) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("O B-a I-a O", [("a", 1, 2)]),
        ("B-a B-a", [("a", 0, 0), ("a", 1, 1)]),
        ("I-a I-a", [("a", 0, 1)]),  # without a B
        ("B-a I-b", [("a", 0, 0), ("b", 1, 1)]),
        ("I-a O I-a", [("a", 0, 0), ("a", 2, 2)]),
        ("B-a I-a E-a I-a", [("a", 0, 2), ("a", 3, 3)]),
        ("S-a I-a", [("a", 0, 0), ("a", 1, 1)]),
        ("B I O B", [("", 0, 1), ("", 3, 3)]),
        ("noun noun verb", [("noun", 0, 1), ("verb", 2, 2)]),
        ("O", []),
    ],
)
def test_entities(tags, found):
    """As seqeval 1.2.2 counts them; tags without a mark, which it misreads, aside."""
    assert entities(tags.split()) == set(found)


def test_scores_of_entities():
    """Figures of seqeval 1.2.2."""
    right = [["B-a", "I-a", "O", "B-b"], ["O", "B-a"]]
    given = [["B-a", "O", "O", "B-b"], ["B-b", "B-a"]]
    computed = load_metrics(["seqeval"])(given, right)
    wanted = {"precision": 2 / 4, "recall": 2 / 3, "f1": 4 / 7, "accuracy": 4 / 6}
    assert computed.figures == pytest.approx(wanted, abs=1e-12)
    by_kind = computed.others["by_kind"]
    assert by_kind["a"] == pytest.approx((1 / 2, 1 / 2, 1 / 2, 2))
    assert by_kind["b"] == pytest.approx((1 / 2, 1, 2 / 3, 1))
    assert (by_kind["a"].number, by_kind["b"].recall) == (2, 1)


def test_translations_equal_sacrebleu():
    names = ["sacrebleu", "chrf", "exact_match"]
    computed, others = load_metrics(names)(TRANSLATIONS, SENTENCES)
    stripped = [text.strip() for text in TRANSLATIONS]
    assert list(computed) == ["bleu", "chrf", "exact_match"]
    assert computed["bleu"] == pytest.approx(sacrebleu.corpus_bleu(stripped, [SENTENCES]).score)
    assert computed["chrf"] == pytest.approx(sacrebleu.corpus_chrf(stripped, [SENTENCES]).score)
    assert computed["exact_match"] == pytest.approx(100 / 3)
    assert 0 < computed["bleu"] < 100 and 0 < computed["chrf"] < 100
    bleu, chrf = others["bleu_signature"], others["chrf_signature"]
    assert bleu.startswith("BLEU|nrefs:1|") and f"version:{sacrebleu.__version__}" in bleu and "tok:13a" in bleu
    assert chrf.startswith("chrF2|nrefs:1|")
    assert load_metrics(names)(SENTENCES, SENTENCES).figures == pytest.approx(dict.fromkeys(computed, 100))
    assert load_metrics(names)([""] * 3, SENTENCES).figures == dict.fromkeys(computed, 0)


def test_results_of_one_name_are_told_apart_and_what_is_no_number_is_no_figure(own):
    results = '{"f1": 7, "ones": np.float32(0.5), "of_each": [1, 2], "all": np.ones(2), "say": "yes"}'
    metrics = load_metrics(["accuracy", "f1", own("mine", results)])
    assert metrics.result_names([0, 1], [1, 1]) == ["accuracy", "f1", "mine_f1", "ones"]
    computed = metrics([0, 1, 1], [1, 1, 1])
    assert computed.figures == {"accuracy": 2 / 3, "f1": 0.4, "mine_f1": 7, "ones": 0.5}
    assert [*map(type, computed.figures.values())] == [float] * 4
    assert computed.others.keys() == {"of_each", "all", "say"} and computed.others["of_each"] == [1, 2]


def test_a_folder_or_a_file_of_a_users_own(own, tmp_path, monkeypatch):
    folder = own("mine")
    monkeypatch.chdir(tmp_path)
    for name in (folder, "mine", "./mine", "mine/", "mine/mine.py"):
        assert figures(name, [0, 1, 1, 1], [0, 0, 0, 0]) == {"ones": 0.75}
    (tmp_path / "mine" / "mine.py").write_text(OWN.replace("{RESULTS}", '{"ones": 5}'))
    assert figures("mine", [0], [0]) == {"ones": 5}  # the file as it is now
    own("accuracy", '{"accuracy": -1}')
    assert figures("accuracy", [1], [1]) == {"accuracy": 1} and figures("./accuracy", [1], [1]) == {"accuracy": -1}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["mine", "acuracy"], "no metric 'acuracy': did you mean 'accuracy'"),
        (["mine", "F1s"], "did you mean 'f1'"),
        (["mine", "bananas"], "the zoo has accuracy, chrf, .*; else name a folder, or a space of the Hub"),
        (["mine", "./nothing"], "no metric './nothing'"),
        (["mine", "empty"], "metric 'empty': a folder has to hold a file of its own name, empty.py"),
        (["mine", "user/space"], "metric 'user/space' is no folder here; .* give trust_remote_code"),
        (["mine", "other/mine"], "another one is called 'mine', too"),
        (["mine", "f1", "f1"], "another one is called 'f1', too"),
    ],
)
def test_wrong_names_are_refused_before_anything_is_loaded(names, message, own, tmp_path, monkeypatch):
    own("mine"), own("other/mine"), (tmp_path / "empty").mkdir()
    (tmp_path / "mine" / "mine.py").write_text("raise SystemExit('it ran')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        load_metrics(names)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def compute(predictions, references): ...", "cannot be loaded: TypeError.*, unlike .*accuracy.py"),
        ("import no_such_package", "cannot be loaded: .*pip install no_such_package"),
        (f"import json, evaluate\n{OWN}", "takes 'import json, evaluate' for one module: write a line for each"),
        (OWN.replace("{RESULTS}", "1 / 0"), r"metric 'mine' does not work with .*\[0, 1\].*: division by zero"),
        (OWN.replace("{RESULTS}", "0.5"), "metric 'mine' does not work with .*: its results are no dict, but 0.5"),
        (OWN.replace('predictions=Value("int64")', 'sources=Value("string")'), "'mine' does not work with .*sources"),
    ],
)
def test_a_metric_that_does_not_work_is_named(text, message, own, tmp_path):
    folder = own("mine")
    (tmp_path / "mine" / "mine.py").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_metrics(["accuracy", folder]).result_names([0, 1], [1, 0])
    with pytest.raises(ValueError, match=r"(?s)'labels' does not work with .*lists, which .*mae\.py takes"):
        load_metrics([own("labels")]).result_names([[0, 1], [1, 0]], [[1, 0], [1, 1]])


@pytest.fixture
def hub(own, tmp_path, monkeypatch):
    """A Hub on loopback, which holds the space `user/ones_of_hub`; returns the requests that it has had."""
    own("spaces/user/ones_of_hub/resolve/main/ones_of_hub")
    served = tmp_path / "spaces/user/ones_of_hub/resolve/main"
    (served / "ones_of_hub" / "ones_of_hub.py").rename(served / "ones_of_hub.py")
    requests = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            requests.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path)))
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    template = f"http://127.0.0.1:{server.server_port}/spaces/{{path}}/resolve/{{revision}}/{{name}}"
    monkeypatch.setattr(evaluate.config, "HUB_EVALUATE_URL", template)
    monkeypatch.setattr(evaluate.config, "HF_EVALUATE_OFFLINE", False)
    monkeypatch.setattr(evaluate.config, "HF_UPDATE_DOWNLOAD_COUNTS", False)
    monkeypatch.setattr(evaluate.config, "DOWNLOADED_EVALUATE_PATH", tmp_path / "downloads")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield requests
    server.shutdown()
    server.server_close()


def test_a_space_runs_if_it_is_trusted_and_later_without_a_network(hub, monkeypatch, capfd):
    with pytest.raises(ValueError, match="give trust_remote_code"):
        load_metrics(["user/ones_of_hub"])
    assert hub == []
    asked = None
    for is_offline, unknown in ((False, "the Hub has no such space"), (True, "the Hub has no such space, or cannot")):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", is_offline)
        metrics = load_metrics(["accuracy", "user/ones_of_hub"], trust_remote_code=True)
        assert metrics([0, 1], [0, 0]).figures == {"accuracy": 0.5, "ones": 0.5}
        with pytest.raises(ValueError, match=f"'user/unseen' cannot be loaded: {unknown}"):
            load_metrics(["user/unseen"], trust_remote_code=True)
        assert asked in (None, len(hub))
        asked = len(hub)
    assert capfd.readouterr() == ("", "")


def computed_here(folder: str, number: int) -> dict[str, float]:
    """The figures of a process of which so many predictions of 9 are right."""
    return load_metrics(["accuracy", folder])([1] * number + [0] * (9 - number), [1] * 9).figures


@pytest.mark.slow
def test_processes_at_the_same_time(own):
    """They share the cache of a machine: neither waits for another, nor has its rows."""
    folder = own(f"at_once_{os.getpid()}")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        results = pool.starmap_async(computed_here, [(folder, number) for number in range(8)], chunksize=1).get(60)
    assert results == [{"accuracy": pytest.approx(n / 9), "ones": pytest.approx(n / 9)} for n in range(8)]


@pytest.mark.parametrize(
    ("problem_type", "names", "labels", "right"),
    [
        ("single_label_classification", ["accuracy", "f1"], [0, 2, 1, 2], lambda logits: logits.argmax(1)),
        (
            "multi_label_classification",
            ["accuracy", "f1"],
            [[0.0, 1, 1], [1, 0, 0], [0, 0, 1], [1, 1, 1]],
            lambda logits: (logits.sigmoid() > 0.5).int(),
        ),
        ("regression", ["mse", "spearmanr"], [0.5, 2, -1, 0], lambda logits: logits.squeeze(1)),
    ],
)
def test_the_trainer_gives_what_a_plain_call_gives(problem_type, names, labels, right, tmp_path):
    labels, metrics = torch.tensor(labels), load_metrics(names)
    model = tiny_model(TfmBertForSequenceClassification, num_labels=1 if problem_type == "regression" else 3)
    batch = ragged_batch(TfmBertForSequenceClassification)
    data = [{name: values[row] for name, values in batch.items()} | {"labels": labels[row]} for row in range(4)]
    settings = TrainingArguments(output_dir=tmp_path, use_cpu=True, report_to=[], disable_tqdm=True)
    shown = Trainer(model, settings, eval_dataset=data, compute_metrics=for_trainer(metrics)).evaluate()
    with torch.no_grad():
        logits = model.eval()(**batch).logits
    torch.testing.assert_close(predicted(logits, problem_type), right(logits), check_dtype=False)
    wanted = metrics(right(logits), labels).figures
    assert {name: shown[f"eval_{name}"] for name in wanted} == pytest.approx(wanted, abs=1e-6)
    if problem_type == "multi_label_classification":
        assert shown["eval_accuracy"] == accuracy(right(logits), labels)["accuracy"]
