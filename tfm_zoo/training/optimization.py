"""The optimiser of the recipes."""

from typing import Any

import torch
from torch import nn

from tfm_zoo.training.arguments import LoopArguments
from tfm_zoo.training.freezing import depths


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
    groups = parameter_groups(model, args.learning_rate, args.weight_decay, args.layerwise_lr_decay)
    return torch.optim.AdamW(groups, betas=(args.adam_beta1, args.adam_beta2), eps=args.adam_epsilon)
