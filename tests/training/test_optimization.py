"""Schedules, optimisers and smoothed losses are those that are named; what is frozen never moves."""

import re
from contextlib import nullcontext

import pytest
import torch
from torch import nn, optim
from torch.nn import functional as F
from transformers import Adafactor

import tfm_zoo
from tfm_zoo.training.learning_parts import freeze
from tfm_zoo.training.loop import create_optimizer
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.tasks.text_to_text import label_smoothed_loss
from tfm_zoo.utils.schedules import SCHEDULES, create_schedule

from ..tiny import tiny_model
from .conftest import classifier

MODEL = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))


def options(**values) -> TrainingOptions:
    return TrainingOptions(**{"learning_rate": 0.5, "warmup_steps": 0} | values)


def rates(name: str, rate: float, warmup: int, steps: int, taken: int, d_model: int = 64) -> list[float]:
    """The learning rates of the first steps."""
    optimizer = optim.SGD([nn.Parameter(torch.zeros(1))], lr=rate)
    schedule, found = create_schedule(name, optimizer, warmup, steps, d_model), []
    for _ in range(taken):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize(("d_model", "warmup", "factor"), [(512, 400, 0.5), (64, 0, 1.0)])
def test_the_papers_schedule_at_every_step(d_model, warmup, factor):
    """Without a warm-up the first step is the largest."""
    rising = warmup**-1.5 if warmup else 1
    expected = [factor * d_model**-0.5 * min(step**-0.5, step * rising) for step in range(1, 501)]
    assert rates("noam", factor, warmup, 500, 500, d_model) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_by_name(name):
    taken = rates(name, 0.1, 3, 10, 10)
    assert all(rate >= 0 for rate in taken) and max(taken) > 0


def test_arguments_of_a_schedule(loop):
    def factors(**values) -> list[float]:
        return [loop(max_train_steps=8, warmup_steps=0, **values).scheduler.lr_lambdas[0](step) for step in range(9)]

    restarts = factors(lr_scheduler_type="cosine_with_restarts", lr_scheduler_kwargs='{"num_cycles": 2}')
    assert (restarts[4], factors(lr_scheduler_type="cosine_with_restarts")[4]) == pytest.approx((1, 0.5))
    with pytest.raises(ValueError, match=r"lr_scheduler_kwargs .* for 'noam'"):
        factors(lr_scheduler_type="noam", lr_scheduler_kwargs="{cycles: 2}")


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "expected"),
    [
        ("adamw_torch", None, optim.AdamW, {"betas": (0.8, 0.99), "eps": 1e-7, "lr": 0.5}),
        ("adafactor", None, Adafactor, {"scale_parameter": False, "lr": 0.5}),
        ("SGD", "momentum=0.9, nesterov=True", optim.SGD, {"momentum": 0.9, "nesterov": True}),
        ("RAdam", None, optim.RAdam, {"betas": (0.8, 0.99), "eps": 1e-7}),
        ("adamw_troch", None, "optim 'adamw_troch' .*adamw_torch", None),
        ("lr_scheduler", None, "optim 'lr_scheduler' .*adamw_torch", None),  # a module of torch.optim
        ("schedule_free_adamw", None, "optim 'schedule_free_adamw' ", None),
        ("SGD", "momentun=0.9", "optim_args 'momentun=0.9': .*momentun", None),
    ],
)
def test_optimisers_are_named_as_in_transformers_or_torch(name, arguments, kind, expected):
    args = options(optim=name, optim_args=arguments, adam_beta1=0.8, adam_beta2=0.99, adam_epsilon=1e-7)
    if expected is None:
        with pytest.raises(ValueError, match=kind):
            create_optimizer(MODEL, args)
        return
    optimizer = create_optimizer(MODEL, args)
    assert type(optimizer) is kind
    for group, decay in zip(optimizer.param_groups, (0.01, 0.0), strict=True):
        assert group["weight_decay"] == decay and {name: group[name] for name in expected} == expected


@pytest.mark.parametrize("epsilon", [0.0, 0.4])
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


@pytest.mark.parametrize(
    ("patterns", "frozen", "refused"),
    [
        (["embeddings.*", "classifier"], r"model\.embeddings\..*|classifier\..*", None),
        (["layers.1"], r"model\.layers\.1\..*", None),  # and not the tenth
        (["lm_head"], r"model\.embeddings\.embed_tokens\.weight", None),  # a tied weight by its other name
        (["embedings.*"], "", r"freeze 'embedings\.\*': Tfm.* has no parameter of that name"),
        (["model", "classifier"], "", r"freeze \['model', 'classifier'\]: nothing is left to learn"),
    ],
    ids=str,
)
def test_names_that_are_frozen(patterns, frozen, refused):
    model = tiny_model(tfm_zoo.TfmGPTForCausalLM) if "embed_tokens" in frozen else classifier(num_hidden_layers=11)
    with pytest.raises(ValueError, match=refused) if refused else nullcontext():
        freeze(model, patterns)
        learns = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
        assert learns == {name: not re.fullmatch(frozen, name) for name in learns} and not all(learns.values())


def test_matrices_alone_decay_and_what_is_frozen_never_moves(loop):
    made = loop(freeze=["embeddings"], num_train_epochs=1)
    start, names = classifier().state_dict(), {parameter: name for name, parameter in made.model.named_parameters()}
    of = {names[p]: group["weight_decay"] for group in made.optimizer.param_groups for p in group["params"]}
    assert of == {name: 0 if name.endswith("bias") or "norm" in name else 0.01 for name in names.values()}
    made.train()
    end = made.model.state_dict()
    assert {name: end[name].equal(start[name]) for name in start} == {name: "embeddings" in name for name in start}
