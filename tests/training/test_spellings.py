"""Options under the names that people know from transformers, and bars while a recipe reads and evaluates."""

import sys

import datasets
import pytest
import torch
from torch import nn
from transformers import Adafactor

from tfm_zoo.training import models, task
from tfm_zoo.training.optimization import create_optimizer, create_schedules
from tfm_zoo.training.options import TrainingOptions, parse_options
from tfm_zoo.training.tasks.classification import HEAD, ClassificationOptions
from tfm_zoo.utils.quiet import shown_bars

from ..recipes.conftest import *  # noqa: F403, its fixtures

MODEL = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))


def options(**values) -> TrainingOptions:
    return TrainingOptions(**{"learning_rate": 0.5, **values})


@pytest.mark.parametrize(
    ("optim", "optim_args", "kind", "expected"),
    [
        ("adamw_torch", None, torch.optim.AdamW, {"betas": (0.8, 0.99), "eps": 1e-7, "lr": 0.5}),
        ("adamw_torch_fused", None, torch.optim.AdamW, {"fused": True, "eps": 1e-7}),
        ("adafactor", None, Adafactor, {"scale_parameter": False, "lr": 0.5}),
        ("sgd", "momentum=0.9", torch.optim.SGD, {"momentum": 0.9}),
        ("SGD", "momentum=0.9, nesterov=True", torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        ("RAdam", None, torch.optim.RAdam, {"betas": (0.8, 0.99), "eps": 1e-7}),
        ("Adagrad", None, torch.optim.Adagrad, {"eps": 1e-10}),
    ],
)
def test_optimisers_are_named_as_in_transformers_or_torch(optim, optim_args, kind, expected):
    adam = {"adam_beta1": 0.8, "adam_beta2": 0.99, "adam_epsilon": 1e-7}
    optimizer = create_optimizer(MODEL, options(optim=optim, optim_args=optim_args, **adam))
    assert type(optimizer) is kind
    for group, decay in zip(optimizer.param_groups, (0.01, 0.0), strict=True):
        assert group["weight_decay"] == decay and {name: group[name] for name in expected} == expected


def test_arguments_of_a_schedule():
    def rates(**values) -> list[float]:
        args = options(warmup_steps=0, **values)
        optimizer = create_optimizer(MODEL, args)
        schedule = create_schedules(optimizer, args, [(0.5, 8)], 4)
        return [schedule.lr_lambdas[0](step) for step in range(9)]

    restarts = rates(lr_scheduler_type="cosine_with_restarts", lr_scheduler_kwargs='{"num_cycles": 2}')
    assert restarts[4] == pytest.approx(1) and rates(lr_scheduler_type="cosine_with_restarts")[4] == pytest.approx(0.5)
    for name in ("cosine", "noam"):
        with pytest.raises(ValueError, match=f"lr_scheduler_kwargs .* for '{name}'"):
            rates(lr_scheduler_type=name, lr_scheduler_kwargs="{cycles: 2}")


@pytest.mark.parametrize(
    ("argv", "precision"),
    [
        (["--bf16"], "bf16"),
        (["--fp16", "true"], "fp16"),
        (["--bf16", "false"], None),
        (["--bf16", "--mixed_precision", "bf16"], "bf16"),
        (["--mixed_precision", "no"], "no"),
    ],
)
def test_precision_has_two_spellings(argv, precision):
    assert parse_options(ClassificationOptions, argv).as_launched().mixed_precision == precision


def test_a_metric_may_be_named_as_in_the_log():
    args = options(metric_for_best_model="eval_f1").with_best_metric(["loss", "f1"])
    assert args.metric_for_best_model == "f1" and args.higher_is_better


def test_the_name_of_a_run_reaches_the_trackers(recipe):
    seen = {}
    loop = recipe("classification").prepare(run_name="the third", max_train_steps=1)
    loop.accelerator.init_trackers = lambda *args: seen.update(args[2])
    loop.open()
    assert seen["wandb"] == {"name": "the third"} and seen["mlflow"] == {"run_name": "the third"}


@pytest.mark.parametrize("model_class", ["zoo", "native"])
def test_a_revision_of_a_checkpoint(checkpoint, monkeypatch, model_class):
    asked = []

    def download(name, patterns, revision=None):
        asked.append((name, revision))
        return checkpoint

    monkeypatch.setattr(models, "download", download)
    load = {"AutoConfig": models.AutoConfig, "AutoTokenizer": models.transformers.AutoTokenizer}
    for name, kind in load.items():
        place = models if name == "AutoConfig" else models.transformers
        monkeypatch.setattr(place, name, Local(kind, checkpoint))
    args = ClassificationOptions(model_name_or_path="user/model", model_revision="v2", model_class=model_class)
    model, _ = HEAD.load_with_labels(args, ["a", "b"])
    assert {*asked} == {("user/model", "v2")} and model.config.hidden_size == 32


class Local:
    """An Auto class that finds a Hub's model in a folder."""

    def __init__(self, kind, folder):
        self.kind, self.folder = kind, folder

    def from_pretrained(self, name, revision=None, **options):
        assert (name, revision) == ("user/model", "v2")
        return self.kind.from_pretrained(self.folder, **options)


def test_bars_are_shown_where_somebody_looks(monkeypatch):
    for is_terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        with shown_bars():
            assert datasets.are_progress_bars_disabled() is not is_terminal
        assert datasets.are_progress_bars_disabled()
        with shown_bars(is_main_process=False):
            assert datasets.are_progress_bars_disabled()


def test_an_evaluation_has_a_bar(recipe, monkeypatch):
    seen = []
    monkeypatch.setattr(task, "tqdm", lambda batches, **options: seen.append(options) or batches)
    loop = recipe("classification").prepare()
    loop.task.evaluate(loop.model)
    assert seen == [{"desc": "evaluating, validation", "leave": False, "disable": None}]
