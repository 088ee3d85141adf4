"""The local metric against scikit-learn."""

import evaluate
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from tfm_zoo.training import metrics


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("skew", [0.0, 0.9])
def test_equals_scikit_learn(classes, skew):
    rng = np.random.default_rng(classes)
    references = np.where(rng.random(200) < skew, 0, rng.integers(0, classes, 200))
    predictions = np.where(rng.random(200) < 0.5, references, rng.integers(0, classes - (skew > 0), 200))
    figures = metrics.classification_metric().compute(predictions=predictions, references=references)
    assert figures["accuracy"] == pytest.approx(accuracy_score(references, predictions), abs=1e-12)
    assert figures["f1"] == pytest.approx(f1_score(references, predictions, average="macro"), abs=1e-12)


def test_batches_add_up():
    metric = metrics.classification_metric()
    metric.add_batch(predictions=[0, 1], references=[0, 0])
    metric.add_batch(predictions=[1, 1], references=[1, 1])
    assert metric.compute() == {"accuracy": 0.75, "f1": pytest.approx((2 / 3 + 4 / 5) / 2)}
    assert metric.compute(predictions=[1], references=[1])["accuracy"] == 1.0  # nothing is left over


def test_no_true_positive_is_zero_not_an_error():
    assert metrics.classification_metric().compute(predictions=[0, 1], references=[1, 0])["f1"] == 0.0


def test_loads_as_an_evaluate_script():
    metric = evaluate.load(metrics.__file__, keep_in_memory=True)
    assert metric.compute(predictions=[0, 1], references=[0, 1])["accuracy"] == 1.0
