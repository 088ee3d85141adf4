"""Rates follow the schedule that is named, at every step, and steps are those of Adam."""

from dataclasses import replace

import pytest
import torch

from tfm_zoo.schedules import SCHEDULES, create_schedule, noam_schedule
from tfm_zoo.training.optimization import create_optimizer
from tfm_zoo.training.options import TrainingOptions


def optimizer(learning_rate: float = 1.0) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=learning_rate)


def rates(schedule, optimizer, steps: int) -> list[float]:
    """The learning rate of each step."""
    taken = []
    for _ in range(steps):
        taken.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return taken


@pytest.mark.parametrize(("d_model", "warmup", "factor"), [(512, 4000, 1.0), (256, 100, 0.5), (64, 0, 1.0)])
def test_the_papers_schedule_at_every_step(d_model, warmup, factor):
    """Without a warm-up the first step is the largest."""
    adam = optimizer(factor)
    rising = warmup**-1.5 if warmup else 1
    expected = [factor * d_model**-0.5 * min(step**-0.5, step * rising) for step in range(1, 5_001)]
    assert rates(noam_schedule(adam, d_model, warmup), adam, 5_000) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "rate", "steps", "expected"),
    [
        ("noam", 1.0, (10, 30), {9: (64 * 10) ** -0.5}),
        ("inverse_sqrt", 0.1, (10, 50), {0: 0.0, 10: 0.1, 40: 0.05}),
        ("warmup_stable_decay", 0.1, (9, 10), {step: 0.1 * step / 9 for step in range(10)}),  # with a step to fall in
    ],
)
def test_schedules_by_name(name, rate, steps, expected):
    adam = optimizer(rate)
    taken = rates(create_schedule(name, adam, *steps, 64), adam, max(expected) + 1)
    assert {step: taken[step] for step in expected} == pytest.approx(expected)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_takes_steps(schedule):
    adam = optimizer(0.1)
    taken = rates(create_schedule(schedule, adam, 3, 10, 64), adam, 10)
    assert len(taken) == 10 and all(rate >= 0 for rate in taken) and max(taken) > 0


@pytest.mark.parametrize(("schedule", "new", "checkpoint"), [("noam", 1.0, 1.0), ("linear", 1e-3, 5e-5)])
def test_default_learning_rates(schedule, new, checkpoint):
    options = TrainingOptions(lr_scheduler_type=schedule, dataset_name="generated")
    for name, expected in ((None, new), ("bert", checkpoint)):
        assert replace(options, model_name_or_path=name).resolved().learning_rate == expected
    assert replace(options, learning_rate=0.3).resolved().learning_rate == 0.3


def test_without_decay_it_is_adam_with_its_options():
    models = [torch.nn.Linear(5, 3) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    args = TrainingOptions(learning_rate=0.1, weight_decay=0.0, adam_beta1=0.8, adam_beta2=0.98, adam_epsilon=1e-9)
    optimizers = [
        create_optimizer(models[0], args),
        torch.optim.Adam(models[1].parameters(), lr=0.1, betas=(0.8, 0.98), eps=1e-9),
    ]
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    for _ in range(5):
        for model, adam in zip(models, optimizers, strict=True):
            model(x).square().sum().backward()
            adam.step()
            adam.zero_grad()
    assert torch.equal(models[0].weight, models[1].weight) and torch.equal(models[0].bias, models[1].bias)
