"""What each part of a model computes, seen by hooks: for fingerprints, and for models side by side.

This file uses no other file of the zoo: see `check.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

#: the end of the name of what a stack's first layer is given
INPUT = " (input)"


def layers_of(model: nn.Module) -> list[str]:
    """The names of a model's layers: what its lists of modules hold, if it has parts, and is in no other layer."""
    layers: list[str] = []
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{layer}.") for layer in layers)
        if isinstance(module, nn.ModuleList | nn.Sequential) and not inside:
            layers += [f"{name}.{i}".lstrip(".") for i, part in enumerate(module) if len(list(part.children()))]
    return layers


@contextmanager
def watched(
    model: nn.Module, keep: Callable[[nn.Module, torch.Tensor], Any], only: set[str] | None = None
) -> Iterator[dict[str, Any]]:
    """While it is open, fills a dict with what the modules of `model` compute, in this order: name -> what `keep` makes
    of the module and its first floating-point tensor. A module that is called again gets a number: `layers.0 #2`.

    The hooks are torch's global ones. A zoo model, which computes padding for other hooks, runs with these as it does
    for users: `SHAPELESS` in `models/batch.py` knows them as "tfm_zoo.watched" or, where `check.py` loads this file,
    "files_of_the_hub.watched". No part of these names may change.

    Args:
        only: the names of the modules that are watched; by default all.
    """
    names = {module: name for name, module in model.named_modules() if name and (only is None or name in only)}
    firsts = {name for name in layers_of(model) if name.endswith(".0") or name == "0"}
    seen: dict[str, Any] = {}

    def note(module: nn.Module, end: str, values: Any) -> None:
        tensor = first_tensor(values)
        if tensor is not None:
            name, calls = names[module] + end, 1
            while name in seen:
                calls += 1
                name = f"{names[module]}{end} #{calls}"
            seen[name] = keep(module, tensor.detach())

    def before(module: nn.Module, inputs: tuple) -> None:
        if names.get(module) in firsts:
            note(module, INPUT, inputs)

    def after(module: nn.Module, inputs: tuple, outputs: Any) -> None:
        if module in names:
            note(module, "", outputs)

    hooks = register_module_forward_pre_hook(before), register_module_forward_hook(after)
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def first_tensor(values: Any) -> torch.Tensor | None:
    """The first floating-point tensor among a module's inputs or outputs."""
    if isinstance(values, torch.Tensor):
        return values if values.is_floating_point() else None
    values = values.values() if isinstance(values, dict) else values if isinstance(values, list | tuple) else ()
    return next((tensor for tensor in map(first_tensor, values) if tensor is not None), None)
