"""Both definitions of smoothed labels give the losses of their distributions, written out."""

import pytest
import torch

from tfm_zoo.training.tasks.text_to_text import label_smoothed_loss

VOCABULARY = 7
LABELS = torch.tensor([3, -100, 0, 6, -100, 6])


@pytest.fixture
def logits() -> torch.Tensor:
    return 3 * torch.randn(len(LABELS), VOCABULARY, generator=torch.Generator().manual_seed(0))


def by_hand(logits: torch.Tensor, epsilon: float, over: str) -> list[float]:
    """The cross-entropy of each labelled position, with the distribution of its label as the definition has it."""
    is_labelled = LABELS != -100
    is_right = torch.nn.functional.one_hot(LABELS[is_labelled], VOCABULARY).double()
    others = 1 - is_right if over == "others" else torch.ones_like(is_right)
    masses = (1 - epsilon) * is_right + epsilon * others / others.sum(dim=1, keepdim=True)
    return (-masses * logits[is_labelled].double().log_softmax(-1)).sum(dim=1).tolist()


@pytest.mark.parametrize("over", ["others", "all"])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_equals_the_definition(logits, epsilon, over):
    expected = by_hand(logits, epsilon, over)
    assert len(expected) == 4
    loss = label_smoothed_loss(logits, LABELS, epsilon, over)
    assert loss.item() == pytest.approx(sum(expected) / 4, rel=1e-6)
    assert label_smoothed_loss(logits, LABELS, epsilon, over, "sum").item() == pytest.approx(sum(expected), rel=1e-6)
    each = label_smoothed_loss(logits, LABELS, epsilon, over, "none")
    assert each[LABELS != -100].tolist() == pytest.approx(expected, rel=1e-6)
    assert each[LABELS == -100].tolist() == [0, 0]
    if over == "all":
        assert loss.item() == torch.nn.functional.cross_entropy(logits, LABELS, label_smoothing=epsilon).item()


@pytest.mark.parametrize("over", ["others", "all"])
def test_what_is_ignored_has_no_gradient(logits, over):
    logits.requires_grad_()
    label_smoothed_loss(logits, LABELS, 0.1, over).backward()
    assert [bool(row.any()) for row in logits.grad] == (LABELS != -100).tolist()


@pytest.mark.parametrize(
    ("epsilon", "over", "message"),
    [
        (-0.1, "others", r"epsilon=-0.1 cannot be spread over 7 classes"),
        (0.9, "others", r"epsilon=0.9 cannot be spread over 7 classes \('others'\)"),
        (1.1, "all", r"epsilon=1.1 cannot be spread"),
        (0.1, "rest", "over must be 'others' or 'all', not 'rest'"),
    ],
)
def test_what_is_no_distribution_is_refused(logits, epsilon, over, message):
    with pytest.raises(ValueError, match=message):
        label_smoothed_loss(logits, LABELS, epsilon, over)
