"""Which parameters of a model learn, and how fast: freezing by name, unfreezing from the head down, the optimiser."""

import difflib
import inspect
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import torch
import yaml
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedModel, Trainer
from transformers.training_args import OptimizerNames

from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.utils.schedules import create_schedule

LAYER = re.compile(r"(.*?)\.(\d+)\.")  # "encoder.layer.11.output.dense.weight": number 11 of the stack "encoder.layer"
TORCH_OPTIMIZERS = [name for name, each in vars(torch.optim).items() if isinstance(each, type)]
EMBEDDING = re.compile(r"emb|wte|wpe|shared")  # all but GPT-2 and BART say "emb" somewhere


def freeze_base_model(model: PreTrainedModel, frozen: bool = True) -> None:
    """Freeze the model's body, or let it learn again. A pooler, which serves the head, always learns."""
    for name, parameter in model.base_model.named_parameters():
        parameter.requires_grad_(not frozen or name.startswith("pooler."))


def freeze(model: PreTrainedModel, patterns: Sequence[str]) -> None:
    """Freeze the parameters that shell patterns name.

    A pattern matches whole parts of a dotted name, anywhere in it: `embeddings` means all parameters of the embeddings,
    `layers.[0-3]` those of the first four layers of each stack. A weight that is tied to another is frozen by either
    name. A pattern that matches nothing is refused, and so are patterns that leave nothing to learn.
    """
    named = list(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        frozen = [parameter for name, parameter in named if fnmatchcase(f".{name}.", f"*.{pattern}.*")]
        if not frozen:
            parts = [name.split(".") for name, _ in named]
            known = {".".join(p[start:end]) for p in parts for start, end in combinations(range(len(p) + 1), 2)}
            near = difflib.get_close_matches(pattern.removesuffix(".*"), sorted(known), n=3, cutoff=0)
            raise ValueError(f"freeze {pattern!r}: {type(model).__name__} has no parameter of that name; near: {near}")
        for parameter in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for _, parameter in named):
        raise ValueError(f"freeze {list(patterns)}: nothing is left to learn")


class GradualUnfreezing:
    """Lets a model learn from the head downwards: first the head, then one layer more at a time, the embeddings last.

    From ULMFiT (Howard & Ruder 2018). A parameter that is frozen from the start stays frozen.
    """

    def __init__(self, model: PreTrainedModel, every: str):  # "epoch", or a number of steps
        self.every, self.stage = every, -1
        depth_of = depths(model)
        self.parameters = [(p, depth_of[name]) for name, p in model.named_parameters() if p.requires_grad]
        # If the head is tied to the embeddings, only a norm is left above the last layer. It learns with that layer,
        # since a stage of its own would do little.
        first = min((depth for p, depth in self.parameters if p.ndim >= 2), default=0)
        self.stages = sorted({max(depth, first) for _, depth in self.parameters})  # the depths that learn in turn

    def advance(self, epoch: int, step: int) -> bool:
        """Unfreeze the layers that are due after this many epochs and steps; returns whether anything changed."""
        stage = min(epoch if self.every == "epoch" else step // int(self.every), len(self.stages) - 1)
        if stage == self.stage:
            return False
        self.stage = stage
        for parameter, depth in self.parameters:
            parameter.requires_grad_(depth <= self.stages[stage])
        return True


def depths(model: PreTrainedModel) -> dict[str, int]:
    """How far below the head each parameter is, judged by its name.

    The head, a pooler and a norm after the last layer have depth 0, the last layer 1, and so on down to the first; the
    embeddings are below that. The layers of an encoder and of a decoder count side by side, since the decoder's last
    layer reads the encoder's last. A weight that is tied to the embeddings has their depth.
    """
    body = list(model.base_model.named_parameters(remove_duplicate=False))
    matches = [LAYER.match(name) for name, _ in body]
    layers: dict[str, int] = {}  # stack -> its number of layers
    for match in filter(None, matches):
        layers[match[1]] = max(layers.get(match[1], 0), int(match[2]) + 1)
    lowest = max(layers.values(), default=0) + 1

    depth_of: dict[nn.Parameter, int] = {}
    for (name, parameter), match in zip(body, matches, strict=True):
        outside = lowest if EMBEDDING.search(name) else 0
        depth = layers[match[1]] - int(match[2]) if match else outside
        depth_of[parameter] = max(depth, depth_of.get(parameter, 0))
    return {name: depth_of.get(parameter, 0) for name, parameter in model.named_parameters()}


def what_learns(model: PreTrainedModel) -> str:
    """How many parameters learn now, for the log."""
    return f"{model.num_parameters(only_trainable=True):,} of {model.num_parameters():,} parameters learn"


def parameter_groups(
    model: nn.Module, learning_rate: float, weight_decay: float, layerwise_lr_decay: float | None = None
) -> list[dict[str, Any]]:
    """Two groups for the optimiser: matrices decay; vectors, which are biases and norms, do not.

    With `layerwise_lr_decay` there are two of each depth, the head's first, and each layer learns at that share of the
    rate of the layer above it (discriminative fine-tuning, Howard & Ruder 2018; the factors are those of BEiT). Frozen
    parameters are included, since they may learn later.
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
        given = (pair.partition("=") for pair in (args.optim_args or "").replace(" ", "").split(",") if pair)
        adam = {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
        own = adam if "betas" in inspect.signature(kind).parameters else {}
        return kind, own | {name: yaml.safe_load(value) for name, _, value in given}
    if args.optim.startswith(("apollo", "galore", "lomo", "adalomo", "schedule_free")):
        raise ValueError(
            f"optim {args.optim!r} needs a loop of its own: as_trainer(task, {{'optim': {args.optim!r}}}) has it"
        )
    names = [each.value for each in OptimizerNames]
    if args.optim not in names:
        near = difflib.get_close_matches(args.optim, [*names, *TORCH_OPTIMIZERS], n=3)
        raise ValueError(
            f"optim {args.optim!r} is neither transformers' name of an optimiser nor torch's; near: {near}"
        )
    names = ("optim_args", "learning_rate", "adam_beta1", "adam_beta2", "adam_epsilon")
    settings = SimpleNamespace(optim=OptimizerNames(args.optim), **{name: getattr(args, name) for name in names})
    try:
        return Trainer.get_optimizer_cls_and_kwargs(settings)
    except ImportError as error:
        raise ValueError(f"optim {args.optim!r}: {error}") from error


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
