"""What an official model was when the zoo took over, and whether it still is: asked before each call, at once."""

from collections.abc import Iterable, Iterator
from inspect import unwrap
from itertools import chain
from operator import eq

import torch
from torch import nn

from ..models.batch import is_shapeless
from .twins import changed_linear

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
#: attributes that say how a module is used, and not what it computes (rates of dropout are others)
MODES = {"training", "p", "gradient_checkpointing", "max_seq_len_cached"}
#: fields of the configuration that each call reads, and those that no model reads
READ_ANEW = {"use_cache", "output_hidden_states", "output_attentions", "return_dict", "problem_type", "_name_or_path"}
READ_ANEW |= {"output_router_logits", "architectures", "id2label", "label2id", "dtype", "transformers_version"}
#: attributes that no official class computes with
UNREAD = {"vocab_size", "attn_implementation", "name_or_path"}
LIBRARIES = ("torch", "transformers", "peft")
SIMPLE = (int, float, str, bool, tuple, type(None), type(eq), type(lambda: 0))
INNER = {"_modules", "_parameters", "_buffers"}


class Watch:
    """The parts of a model as they are now.

    Args:
        root: the official module whose `forward` is replaced.
        shared: its layers that the twin holds too: whatever changes in them, the twin computes.
    """

    def __init__(self, root: nn.Module, shared: Iterable[nn.Module]):
        self.root, shared = root, {*shared}
        self.modules = [*root.modules()]
        self.types = [*map(type, self.modules)]
        self.kinds = [*dict.fromkeys(self.types)]
        self.forwards = [kind.forward for kind in self.kinds]
        own = [each for each in self.modules if each not in shared]
        parts = [each._modules for each in own if each._modules]
        parts += [each._buffers for each in self.modules if each._buffers]
        # (The root's hooks are called by `nn.Module`, whatever its `forward` is.)
        parts += [vars(each)[name] for each in own if each is not root for name in HOOKS]
        self.live = [*map(vars, self.modules), *parts, vars(root.config)]
        #: where the first parameter is, whose type and device the twin's constants have
        places = ((each._parameters, name) for each in self.modules for name in each._parameters)
        self.first = next(places, ({}, ""))
        self.look()

    def look(self) -> None:
        """Takes what is there now for what should be."""
        self.seen = [dict(each) for each in self.live]
        self.seen[-1] = {name: copied(value) for name, value in self.seen[-1].items()}
        self.kind = self.kind_now()

    def kind_now(self) -> tuple:
        """The type and the device of the first parameter."""
        tensors, name = self.first
        parameter = tensors.get(name)
        return parameter is not None and (parameter.dtype, parameter.device)

    def is_same(self) -> bool:
        """Whether nothing has changed."""
        try:
            is_same = all(map(eq, self.live, self.seen)) and self.has_same_classes()
        except (RuntimeError, ValueError):  # of tensors, which are compared where they are not the same object
            return False
        return is_same and self.kind_now() == self.kind

    def has_same_classes(self) -> bool:
        """Whether each module is of its class, and each class computes as it did."""
        return [*map(type, self.modules)] == self.types and [kind.forward for kind in self.kinds] == self.forwards

    def has_same_parts(self) -> bool:
        """Whether all that has changed is how the model is used."""
        if not self.has_same_classes() or self.kind_now() != self.kind:
            return False
        names = [changed(*pair) for pair in zip(self.live, self.seen, strict=True)]
        count = len(self.modules)
        of_root, of_modules, of_parts, of_config = names[0], names[1:count], names[count:-1], names[-1]
        is_used = all(map(is_mode, chain(of_root - {"forward"}, *of_modules)))
        return is_used and not any(of_parts) and of_config <= READ_ANEW


def changed(now: dict, before: dict) -> set[str]:
    """The names whose values are others than before."""
    return {name for name in {*now, *before} if not is_same_value(now.get(name), before.get(name))}


def is_same_value(one: object, other: object) -> bool:
    if one is other or isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return one is other
    return type(one) is type(other) and bool(one == other)


def is_mode(name: str) -> bool:
    return name in MODES or "drop" in name or (name.startswith("_") and name not in INNER)


def copied(value: object) -> object:
    return {**value} if isinstance(value, dict) and len(value) < 64 else [*value] if isinstance(value, list) else value


def inner_hooks(root: nn.Module, shared: set[nn.Module]) -> Iterator[str]:
    """Where hooks inside a model see what the official class computes."""
    for path, module in root.named_modules():
        if module is not root and module not in shared:
            hooks = (hook for kind in HOOKS for hook in vars(module)[kind].values())
            yield from (path for hook in hooks if not is_shapeless(hook))


def divided_by(owner: nn.Module) -> str | None:
    """What has divided the parameters of a model, or of parts of it, among processes."""
    for module in owner.modules():
        names = {kind.__name__ for kind in type(module).__mro__}
        if names & {"FSDPModule", "FullyShardedDataParallel"} or vars(module).get("_fsdp_use_orig_params") is False:
            return "FSDP"
    return "DeepSpeed (ZeRO-3)" if any(hasattr(each, "ds_id") for each in owner.parameters()) else None


def difference(owner: nn.Module, fresh: nn.Module) -> str | None:
    """What of a model is not as its configuration makes it, rates of dropout apart."""
    live, expected = dict(parts_of(owner)), dict(parts_of(fresh))
    for path, module in expected.items():
        place, other = path or "it", live.get(path)
        if other is None:
            return f"it has no {path}"
        is_linear = type(module) is nn.Linear
        other = (changed_linear(other) if is_linear else None) or other
        computes_alike = is_linear and isinstance(other, nn.Linear) and type(other).forward is nn.Linear.forward
        if type(other).__module__.startswith("peft."):
            return f"PEFT adapts {place}, a {type(module).__name__}, which the zoo does not follow: merge the adapter"
        if type(other) is not type(module) and not computes_alike:
            return f"{place} is of class {type(other).__name__}, and not {type(module).__name__}"
        if path and "forward" in vars(other):
            return f"the forward of {path} is replaced"
        if (other._parameters or other._modules) and not is_of_library(type(other)):
            return f"the forward of the class {type(other).__name__} is replaced"
        for name, value in vars(module).items():
            is_read = isinstance(value, SIMPLE) and not is_mode(name) and name not in UNREAD
            if is_read and not is_same_value(vars(other).get(name), value):
                return f"{place} has {name}={vars(other).get(name)!r}, and its configuration says {value!r}"
    added = next((path for path in live if path not in expected), None)
    return added and f"{added} is not a part of its class"


def is_of_library(kind: type[nn.Module]) -> bool:
    """Whether a class computes what the library that defines it says."""
    return unwrap(kind.forward).__module__.partition(".")[0] in LIBRARIES


def parts_of(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules of a model by name; those inside a layer that PEFT adapts, or that is parametrized, do not count."""
    queue = [("", root)]
    for path, module in queue:  # the loop also visits what is appended
        yield path, module
        if changed_linear(module) is None:
            children = ((name, child) for name, child in module._modules.items() if child is not None)
            queue += [(f"{path}.{name}" if path else name, child) for name, child in children]
