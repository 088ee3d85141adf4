"""Which official models a thing holds: its modules, or what its attributes hold."""

import sys
from collections.abc import Iterator
from typing import NamedTuple

from torch import nn
from transformers import PreTrainedModel

from ..converters.architecture import Architecture, Head
from ..converters.choosing import table_for

#: the attributes in which libraries keep a model in an object that is not a module: pipelines and trainers, SetFit
ATTRIBUTES = ("model", "model_body", "model_head", "auto_model", "base_model", "transformer")
PARTS = ("encoder", "decoder")


class Found(NamedTuple):
    """A base model, or a stack of an encoder-decoder, that the zoo can compute.

    Args:
        owner: the module whose `forward` computes it.
        holder: the official model that the table describes: the owner itself, or what holds both stacks.
        part: the owner's name in the holder; empty where they are one.
        head: the head whose tensors the table has for the holder.
        around: official models that hold the owner, the innermost last.
    """

    owner: nn.Module
    holder: PreTrainedModel
    part: str
    architecture: Architecture
    head: Head
    around: tuple[PreTrainedModel, ...] = ()

    @property
    def is_stack(self) -> bool:
        """Whether the owner is one of the two stacks of an encoder-decoder."""
        return self.architecture.family == "tfm_encoder_decoder"

    @property
    def title(self) -> str:
        """The owner's class, and that of the outermost model that holds it."""
        around = type((*self.around, self.holder)[0])
        name = type(self.owner).__name__
        return name if around is type(self.owner) else f"{name} of {around.__name__}"


def modules_of(thing: object, depth: int = 3) -> Iterator[nn.Module]:
    """A module itself; of another object, the modules in its `ATTRIBUTES`."""
    if isinstance(thing, nn.Module):
        yield thing
    elif depth and not isinstance(thing, type):
        for name in ATTRIBUTES:
            yield from modules_of(getattr(thing, name, None), depth - 1)


def find(thing: object) -> list[Found]:
    """Every part of a thing that has a table, the outermost first."""
    found: dict[int, Found] = {}
    for module in modules_of(thing):
        for each in parts_of(module, (), set()):
            found.setdefault(id(each.owner), each)
    return [*found.values()]


def parts_of(module: nn.Module, around: tuple[PreTrainedModel, ...], seen: set[int]) -> Iterator[Found]:
    if id(module) in seen:
        return
    seen.add(id(module))
    if is_official(module):
        own = [*found_in(module, around)]
        yield from own
        if own:
            return
        around = (*around, module)
    for child in module.children():
        yield from parts_of(child, around, seen)


def found_in(model: PreTrainedModel, around: tuple[PreTrainedModel, ...]) -> Iterator[Found]:
    """What of a model itself the zoo computes: all of a base model, or the stacks of an encoder-decoder."""
    architecture = table_for(model.config.to_dict())
    if architecture is None or architecture.library != "transformers":
        return
    name = type(model).__name__
    head = next((head for head in architecture.heads if head.official == name), None)
    if architecture.family != "tfm_encoder_decoder":
        if head is not None and head.is_bare:
            inner = model._modules.get("decoder")  # of OPT, whose heads call it
            part = "decoder" if isinstance(inner, PreTrainedModel) and is_official(inner) else ""
            yield Found(inner if part else model, model, part, architecture, head, around)
        return
    for part in PARTS:
        stack = model._modules.get(part)
        if isinstance(stack, PreTrainedModel) and is_official(stack):
            yield Found(stack, model, part, architecture, head or architecture.heads[0], around)


def is_official(module: nn.Module) -> bool:
    """Whether a module is of a model class of transformers itself, and not of one derived from it. (`fully_shard`
    derives a class for each, which FSDP2 needs.)"""
    kind = next(each for each in type(module).__mro__ if not each.__name__.startswith("FSDP"))
    is_of_library = isinstance(module, PreTrainedModel) and kind.__module__.startswith("transformers.models.")
    return is_of_library and getattr(sys.modules[kind.__module__], kind.__name__, None) is kind
