"""The optimiser, and the schedule of its rate."""

import difflib
import inspect
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from transformers import Trainer
from transformers.training_args import OptimizerNames

from tfm_zoo.training.options import TrainingOptions, as_mapping
from tfm_zoo.utils.schedules import create_schedule


def create_optimizer(model: nn.Module, args: TrainingOptions) -> torch.optim.Optimizer:
    """The optimiser that `optim` names. Matrices decay, and vectors, which are biases and norms, do not."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": args.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    kind, options = optimizer_named(args)
    try:
        return kind(groups, **options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"optim {args.optim!r} with optim_args {args.optim_args!r}: {error}") from error


def optimizer_named(args: TrainingOptions) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """The class and the arguments of an optimiser, by torch's name or one of transformers'."""
    kind = getattr(torch.optim, args.optim, None)
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer):
        adam = {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
        own = adam if "betas" in inspect.signature(kind).parameters else {}
        return kind, own | as_mapping("optim_args", args.optim_args) | {"lr": args.learning_rate}
    names = [each.value for each in OptimizerNames]
    if args.optim not in names:
        near = difflib.get_close_matches(args.optim, [*names, *dir(torch.optim)], n=3)
        raise ValueError(
            f"optim {args.optim!r} is neither transformers' name of an optimiser nor torch's; near: {near}"
        )
    names = ("optim_args", "learning_rate", "adam_beta1", "adam_beta2", "adam_epsilon")
    settings = SimpleNamespace(optim=OptimizerNames(args.optim), **{name: getattr(args, name) for name in names})
    try:
        return Trainer.get_optimizer_cls_and_kwargs(settings)
    except (AttributeError, ImportError) as error:  # one that needs the Trainer's own loop, or a library
        raise ValueError(f"optim {args.optim!r}: {error}; as_trainer trains with it, if it is installed") from error


def create_scheduler(
    optimizer: torch.optim.Optimizer, args: TrainingOptions, steps: int, hidden_size: int
) -> LRScheduler:
    """The schedule of the learning rate, as the options name it."""
    more = as_mapping("lr_scheduler_kwargs", args.lr_scheduler_kwargs)
    return create_schedule(args.lr_scheduler_type, optimizer, args.warmup_of(steps), steps, hidden_size, **more)
