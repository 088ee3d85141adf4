"""Learning rates as training has them."""

import pytest
import torch
from transformers import get_scheduler

from tfm_zoo.visualization import plot_schedules, schedule_rates


@pytest.mark.parametrize("name", ["linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "inverse_sqrt"])
def test_as_in_training(name):
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.AdamW([weight], lr=3e-4)
    scheduler = get_scheduler(name, optimizer, num_warmup_steps=7, num_training_steps=30)
    rates = []
    for _ in range(30):
        weight.grad = torch.ones(3)
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert schedule_rates(name, 30, 7, 3e-4) == rates


def test_noam_is_the_papers():
    rates = schedule_rates("noam", 100, 20, hidden_size=64)
    assert rates == pytest.approx([64**-0.5 * min(step**-0.5, step * 20**-1.5) for step in range(1, 101)])
    assert rates.index(max(rates)) == 19
    assert schedule_rates("noam", 100, 20, 2.0, 64) == pytest.approx([2 * rate for rate in rates])


def test_defaults_are_the_recipes():
    assert max(schedule_rates("linear", 10)) == 5e-5
    assert schedule_rates("noam", 1, 1, hidden_size=4) == [0.5]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"names": ["linear", "cosign"]}, "unknown schedule 'cosign'; choose from linear, .*noam"),
        ({"names": []}, "No schedule is named"),
        ({"names": ["reduce_lr_on_plateau"]}, "unknown schedule 'reduce_lr_on_plateau'"),  # it follows the losses
        ({"names": ["linear"], "steps": 0}, "steps 0 should be at least 1"),
        ({"names": ["linear"], "warmup_steps": -1}, "warmup_steps -1 should be at least 0"),
        ({"names": ["noam"], "hidden_size": 0}, "hidden_size 0 should be at least 1"),
    ],
)
def test_bad_input(arguments, complaint, tmp_path):
    with pytest.raises(ValueError, match=complaint):
        plot_schedules(path=tmp_path / "schedule.png", **arguments)
    assert not list(tmp_path.iterdir())
