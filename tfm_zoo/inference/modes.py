"""How an official model is used, which its twin follows: training, dropout, gradient checkpointing."""

import re

from torch import nn

from .twins import Twin

LAYER = re.compile(r"(?:^|\.)(?:layer|layers|h|block|blocks|albert_layers|albert_layer_groups)\.(\d+)(?:\.|$)")


class UnfollowedError(Exception):
    """Why the official forward computes."""


class Modes:
    """What of a twin follows how the official model is used."""

    def __init__(self, owner: nn.Module, fresh: nn.Module, twin: Twin):
        self.modules = [*owner.named_modules()]
        self.rates = {path: rates_of(module) for path, module in fresh.named_modules()}
        self.twin = twin
        self.dropouts = [(each, each.p) for each in twin.modules if isinstance(each, nn.Dropout)]
        self.layers = [*twin.model.layers] if hasattr(twin.model, "layers") else []

    def follow(self) -> None:
        """Puts the twin into the mode of the official model.

        Raises:
            UnfollowedError: if its parts are in modes that the twin has no counterpart for.
        """
        drops = [(path, module, rates_of(module)) for path, module in self.modules]
        drops = [(path, module, rates) for path, module, rates in drops if rates]
        if any(module.training and rates.get("layerdrop") for _, module, rates in drops):
            raise UnfollowedError("layerdrop leaves out whole layers")
        active = [(path, rates) for path, module, rates in drops if module.training and any(rates.values())]
        states = {module.training for _, module in self.modules}
        is_training = True in states
        if not active:
            rate = 0.0
        elif all(rates == self.rates.get(path) for path, _, rates in drops) and states == {True}:
            rate = None
        else:
            rate = None
            self.check_parts(drops)
        for module in self.twin.modules:
            module.training = is_training
        for dropout, own in self.dropouts:
            dropout.p = own if rate is None else rate
        if active and states != {True}:
            self.follow_layers()
        self.follow_checkpointing()

    def check_parts(self, drops: list) -> None:
        """Raises [`UnfollowedError`] unless the rates are the configuration's, and layers are in one mode each."""
        for path, module, rates in drops:
            if module.training and rates != self.rates.get(path):
                raise UnfollowedError(
                    f"{path or 'it'} drops {rates}, and its configuration says {self.rates.get(path)}"
                )
        modes: dict[str | None, set[bool]] = {}
        for path, module, _ in drops:
            modes.setdefault(number_of(path), set()).add(module.training)
        if any(len(states) > 1 for states in modes.values()) or len(modes) - 1 != len(self.layers):
            raise UnfollowedError("some parts of a layer are in training mode, and others are not")

    def follow_layers(self) -> None:
        """Puts each layer of the twin into the mode of the official layer with its number."""
        modes = {number_of(path): module.training for path, module in self.modules if rates_of(module)}
        own = {*self.twin.modules}
        for module in self.twin.modules:
            module.training = modes.get(None, False)
        for number, layer in enumerate(self.layers):
            for module in layer.modules():
                if module in own:
                    module.training = modes[str(number)]
        self.twin.model.training = True

    def follow_checkpointing(self) -> None:
        """Has each layer of the twin run a second time in a backward pass if the official one does."""
        holders = [(path, each) for path, each in self.modules if hasattr(each, "_gradient_checkpointing_func")]
        by_layer = {number_of(path): each for path, each in holders if number_of(path) is not None}
        is_whole = len(by_layer) == len(self.layers)
        for number, layer in enumerate(self.layers):
            holder = by_layer[str(number)] if is_whole else holders[0][1] if holders else None
            layer.gradient_checkpointing = holder is not None and holder.gradient_checkpointing
            if holder is not None:
                layer._gradient_checkpointing_func = holder._gradient_checkpointing_func
        if not is_whole and len({each.gradient_checkpointing for _, each in holders}) > 1:
            raise UnfollowedError("some of its layers checkpoint gradients, and others do not")


def rates_of(module: nn.Module) -> dict[str, float]:
    """The numbers that say how much of its input or output a module drops in training."""
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return {"p": module.p}
    return {name: value for name, value in vars(module).items() if "drop" in name and isinstance(value, float | int)}


def number_of(path: str) -> str | None:
    """The number of the layer that a module is a part of."""
    found = LAYER.search(path)
    return found and found[1]
