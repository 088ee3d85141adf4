"""The optimiser of the recipes, and its schedules."""

from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import get_scheduler

from tfm_zoo.training.arguments import LoopArguments
from tfm_zoo.training.depths import depths


def parameter_groups(
    model: nn.Module, learning_rate: float, weight_decay: float, layerwise_lr_decay: float | None = None
) -> list[dict[str, Any]]:
    """Two groups for the optimiser: matrices decay; vectors, which are biases and norms, do not.

    With `layerwise_lr_decay` there are two of each depth, the head's first, and each layer learns at that much of the
    rate of the one above it (discriminative fine-tuning, Howard & Ruder 2018; the factors are those of BEiT).

    Parameters that are frozen now are included, since they may be set free later.
    """
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


def create_optimizer(model: nn.Module, args: LoopArguments) -> torch.optim.AdamW:
    """AdamW, which is Adam where nothing decays."""
    return torch.optim.AdamW(
        parameter_groups(model, args.learning_rate, args.weight_decay, args.layerwise_lr_decay),
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_epsilon,
    )


def create_scheduler(
    args: LoopArguments, optimizer: torch.optim.Optimizer, warmup_steps: int, total_steps: int, d_model: int
) -> LRScheduler:
    """The schedule that `lr_scheduler_type` names; `d_model`, the width of the model, scales "noam" alone."""
    if args.lr_scheduler_type == "noam":
        return noam_schedule(optimizer, d_model, warmup_steps)
    return get_scheduler(args.lr_scheduler_type, optimizer, warmup_steps, total_steps)


def noam_schedule(optimizer: torch.optim.Optimizer, d_model: int, warmup_steps: int) -> LambdaLR:
    """The schedule of *Attention Is All You Need* (section 5.3), counting steps from 1:

        lr(step) = d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)

    It rises linearly to `(d_model * warmup_steps)**-0.5`, and falls with the inverse square root of the step. The
    optimiser's own learning rate multiplies it: 1 for the paper's. (transformers' "inverse_sqrt" has the same shape,
    from 0 at the first step to the optimiser's learning rate at its peak.)
    """
    warmup_steps = max(1, warmup_steps)  # without a warm-up the first step has the highest rate

    def rate(steps_done: int) -> float:
        step = steps_done + 1
        return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)

    return LambdaLR(optimizer, rate)
