"""Accuracy and F1 against scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

from tfm_zoo.training.tasks.classification import accuracy_and_f1


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("skew", [0.0, 0.9])
def test_equals_scikit_learn(classes, skew):
    rng = np.random.default_rng(classes)
    references = np.where(rng.random(200) < skew, 0, rng.integers(0, classes, 200))
    predictions = np.where(rng.random(200) < 0.5, references, rng.integers(0, classes - (skew > 0), 200))
    figures = accuracy_and_f1(torch.from_numpy(predictions), torch.from_numpy(references))
    assert figures["accuracy"] == pytest.approx(accuracy_score(references, predictions), abs=1e-12)
    assert figures["f1"] == pytest.approx(f1_score(references, predictions, average="macro"), abs=1e-12)


def test_known_figures():
    figures = accuracy_and_f1(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 1, 1]))
    assert figures == {"accuracy": 0.75, "f1": pytest.approx((2 / 3 + 4 / 5) / 2)}


def test_no_true_positive_is_zero_not_an_error():
    assert accuracy_and_f1(torch.tensor([0, 1]), torch.tensor([1, 0]))["f1"] == 0.0
