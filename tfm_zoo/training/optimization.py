"""The optimiser, with its groups of parameters, and the schedule of its rate."""

import difflib
import inspect
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import Trainer
from transformers.training_args import OptimizerNames

from tfm_zoo.training.freezing import depths
from tfm_zoo.training.options import TrainingOptions, as_mapping
from tfm_zoo.utils.schedules import create_schedule


def parameter_groups(
    model: nn.Module, learning_rate: float, weight_decay: float, layerwise_lr_decay: float | None = None
) -> list[dict[str, Any]]:
    """Two groups for the optimiser: matrices decay; vectors, which are biases and norms, do not. With
    `layerwise_lr_decay` there are two of each depth, the head's first, and a layer learns at that share of the rate of
    the layer above it (Howard & Ruder 2018, BEiT). Frozen parameters are included: they may learn later."""
    depth_of = depths(model) if layerwise_lr_decay else {}
    groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        groups.setdefault((depth_of.get(name, 0), parameter.ndim < 2), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": learning_rate * (layerwise_lr_decay or 1) ** depth,
            "weight_decay": 0.0 if are_vectors else weight_decay,
        }
        for (depth, are_vectors), parameters in sorted(groups.items())
    ]


def create_optimizer(model: nn.Module, args: TrainingOptions) -> torch.optim.Optimizer:
    """The optimiser that `optim` names, by default AdamW, which is Adam where nothing decays."""
    groups = parameter_groups(model, args.learning_rate, args.weight_decay, args.layerwise_lr_decay)
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
        return kind, own | as_mapping("optim_args", args.optim_args)
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


def create_schedules(
    optimizer: torch.optim.Optimizer, args: TrainingOptions, phases: Sequence[tuple[float, int]], hidden_size: int
) -> LambdaLR:
    """One schedule for a run of phases, `(highest rate, steps)`: in each the schedule of `args` begins anew."""
    parts, begin = [], 0
    for rate, steps in phases:
        schedule = create_schedule(
            args.lr_scheduler_type, optimizer, args.warmup_of(steps), steps, hidden_size, **args.scheduler_kwargs()
        )
        parts.append((begin, rate / args.learning_rate, schedule.lr_lambdas[0]))
        begin += steps

    def factor(step: int) -> float:
        begin, scale, schedule = next(part for part in reversed(parts) if part[0] <= step)
        return scale * schedule(step - begin)

    return LambdaLR(optimizer, factor)
