"""Rates follow the schedule that is named, steps are those of Adam, and losses are those of smoothed labels."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from tfm_zoo.training.optimization import create_optimizer
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.tasks.text_to_text import label_smoothed_loss
from tfm_zoo.utils.schedules import SCHEDULES, create_schedule


def rates(name: str, rate: float, warmup: int, steps: int, taken: int, d_model: int = 64) -> list[float]:
    """The learning rates of the first steps."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    schedule, found = create_schedule(name, optimizer, warmup, steps, d_model), []
    for _ in range(taken):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize(("d_model", "warmup", "factor"), [(512, 4000, 1.0), (256, 100, 0.5), (64, 0, 1.0)])
def test_the_papers_schedule_at_every_step(d_model, warmup, factor):
    """Without a warm-up the first step is the largest."""
    rising = warmup**-1.5 if warmup else 1
    expected = [factor * d_model**-0.5 * min(step**-0.5, step * rising) for step in range(1, 5_001)]
    assert rates("noam", factor, warmup, 5_000, 5_000, d_model) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "steps", "expected"),
    [
        ("inverse_sqrt", (10, 50), {0: 0.0, 10: 0.1, 40: 0.05}),
        ("warmup_stable_decay", (9, 10), {step: 0.1 * step / 9 for step in range(10)}),  # with a step to fall in
        *((name, (3, 10), {}) for name in SCHEDULES),
    ],
)
def test_schedules_by_name(name, steps, expected):
    taken = rates(name, 0.1, *steps, max(expected, default=9) + 1)
    assert {step: taken[step] for step in expected} == pytest.approx(expected)
    assert all(rate >= 0 for rate in taken) and max(taken) > 0


@pytest.mark.parametrize(("schedule", "new", "checkpoint"), [("noam", 1.0, 1.0), ("linear", 1e-3, 5e-5)])
def test_default_learning_rates(schedule, new, checkpoint):
    options = TrainingOptions(lr_scheduler_type=schedule, dataset_name="generated")
    for name, expected in ((None, new), ("bert", checkpoint)):
        assert replace(options, model_name_or_path=name).with_defaults().learning_rate == expected
    assert replace(options, learning_rate=0.3).with_defaults().learning_rate == 0.3


def test_without_decay_it_is_adam_with_its_options():
    one, other = (torch.nn.Linear(5, 3) for _ in range(2))
    other.load_state_dict(one.state_dict())
    args = TrainingOptions(learning_rate=0.1, weight_decay=0.0, adam_beta1=0.8, adam_beta2=0.98, adam_epsilon=1e-9)
    adam = torch.optim.Adam(other.parameters(), lr=0.1, betas=(0.8, 0.98), eps=1e-9)
    x = torch.randn(4, 5)
    for model, optimizer in ((one, create_optimizer(one, args)), (other, adam)):
        for _ in range(5):
            model(x).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert torch.equal(one.weight, other.weight) and torch.equal(one.bias, other.bias)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_the_loss_of_smoothed_labels_equals_its_definition(epsilon):
    """The cross-entropy with the distribution of each label, which what is ignored has no part in."""
    labels, logits = torch.tensor([3, -100, 0, 6, -100, 6]), (3 * torch.randn(6, 7)).requires_grad_()
    is_labelled = labels != -100
    is_right = F.one_hot(labels[is_labelled], 7).double()
    masses = (1 - epsilon) * is_right + epsilon * (1 - is_right) / 6
    expected = (-masses * logits[is_labelled].double().log_softmax(-1)).sum(dim=1).tolist()
    each = label_smoothed_loss(logits, labels, epsilon)
    assert each[is_labelled].tolist() == pytest.approx(expected, rel=1e-6) and not each[~is_labelled].any()
    each.sum().backward()
    assert [bool(row.any()) for row in logits.grad] == is_labelled.tolist()
