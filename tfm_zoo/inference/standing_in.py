"""What stands in the place of an official object's `forward`."""

import copy
import functools
import inspect
import logging

import torch
from torch import nn

from ..converters.errors import ConversionError
from ..models.inputs import is_traced
from ..models.padding import keep
from ..models.padding import restore as restore_padding
from ..packing import pack_weights
from .calls import Call, Traced
from .finding import Found, found_in
from .modes import Modes, Unfollowed
from .reading import READ, UNKNOWN, read_by, reading
from .twins import Twin, fresh_like, make_twin
from .watching import Watch, difference, inner_hooks

logger = logging.getLogger(__name__)


class StandIn:
    """A `forward` that is an attribute of one object: it goes wherever its owner is copied or pickled to."""

    is_of_speed_up = True

    def __init__(self, owner: nn.Module):
        functools.update_wrapper(self, type(owner).forward, updated=())
        del self.__wrapped__  # whoever unwraps a forward should find this one
        signature = inspect.signature(type(owner).forward)
        self.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])
        self.owner, self.is_on, self.said = owner, True, set()
        self.names = [*self.__signature__.parameters]

    def __reduce__(self):
        return type(self), (self.owner,)

    def __deepcopy__(self, memo: dict):
        return type(self)(copy.deepcopy(self.owner, memo))

    def official(self, *args, **kwargs):
        """The forward of the official class."""
        return type(self.owner).forward(self.owner, *args, **kwargs)

    def by_name(self, args: tuple, kwargs: dict) -> dict:
        options = dict(zip(self.names, args, strict=False))
        options.update(kwargs)
        return options

    def say(self, reason: str) -> None:
        """Says once why the official forward computes."""
        if reason not in self.said:
            self.said.add(reason)
            name = type(self.owner).__name__
            logger.warning(f"speed_up: the official forward of {name} computes this call: {reason}.")


class HeadStandIn(StandIn):
    """The forward of a model with a head, which tells the base model that it holds what it reads."""

    def __call__(self, *args, **kwargs):
        is_outermost = READ.get() is UNKNOWN
        if not (self.is_on and is_outermost) or torch.compiler.is_compiling() or torch.jit.is_tracing():
            return self.official(*args, **kwargs)
        owner = self.owner
        takes_target = "decoder_input_ids" in self.names
        read = read_by(type(owner).__name__, owner.config, self.by_name(args, kwargs), takes_target)
        with reading(read):
            return self.official(*args, **kwargs)


class ProjectionStandIn(StandIn):
    """The forward of a head's widest layer, which projects only what somebody reads.

    Args:
        owner: a linear layer.
        at_padding: what it gives at the other positions, if not zeros: the lowest number.
    """

    def __init__(self, owner: nn.Linear, at_padding: bool = False):
        super().__init__(owner)
        self.is_lowest = at_padding

    def __reduce__(self):
        return type(self), (self.owner, self.is_lowest)

    def __deepcopy__(self, memo: dict):
        return type(self)(copy.deepcopy(self.owner, memo), self.is_lowest)

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        asked = None if torch.compiler.is_compiling() else READ.get().asked
        kept = asked[-1].kept(input) if self.is_on and asked and not is_traced(input) else None
        if kept is None:
            return self.official(input)
        output = restore_padding(self.official(keep(input, kept)), kept)
        if self.is_lowest:
            real = torch.zeros(kept.shape, dtype=torch.bool, device=input.device)
            real.view(-1)[kept.indices] = True
            output = output.masked_fill(~real.unsqueeze(-1), torch.finfo(output.dtype).min)
        return output


class BaseStandIn(StandIn):
    """The forward of a base model, or of a stack of an encoder-decoder, which its twin computes.

    Args:
        owner: the official module.
        holder: the official model that holds it; see [`Found`].
        dtype: of packed weights; see [`pack_weights`].
    """

    def __init__(self, owner: nn.Module, holder: nn.Module, dtype: str | None = None, calibrate=None):
        super().__init__(owner)
        self.holder, self.dtype = holder, dtype
        self.watch: Watch | None = None
        self.call: Call | None = None
        self.modes: Modes | None = None
        self.reason: str | None = None

    def __reduce__(self):
        return type(self), (self.owner, self.holder, self.dtype)

    def __deepcopy__(self, memo: dict):
        return type(self)(copy.deepcopy(self.owner, memo), copy.deepcopy(self.holder, memo), self.dtype)

    def __call__(self, *args, **kwargs):
        if not self.is_on or torch.compiler.is_compiling() or torch.jit.is_tracing():
            return self.official(*args, **kwargs)
        if self.watch is None or not self.watch.is_same():
            self.look()
        reason = self.reason
        if reason is None:
            try:
                self.call.twin.bind()
                return self.call(self.by_name(args, kwargs))
            except Traced:
                return self.official(*args, **kwargs)
            except (Unfollowed, ValueError) as error:
                reason = str(error).strip().rstrip(".")
        self.say(reason)
        return self.official(*args, **kwargs)

    def prepare(self) -> str | None:
        """Takes over what is there; returns why that cannot be, or `None`."""
        if "forward" in vars(self.owner) and not isinstance(vars(self.owner)["forward"], StandIn):
            return "its forward is replaced"
        self.look()
        return self.reason if self.call is None else None

    def look(self) -> None:
        """Takes over what is there now, or finds out why that cannot be."""
        if self.watch is None or self.call is None or not self.watch.has_same_parts():
            self.call, self.modes, self.reason, shared = None, None, None, ()
            try:
                self.take_over()
                shared = self.call.twin.shared
            except (ConversionError, Unfollowed) as error:
                self.reason = " ".join(str(error).split()).rstrip(".")
            self.watch = Watch(self.owner, shared)
        if self.call is not None:
            try:
                self.modes.follow()
                self.reason = None
            except Unfollowed as error:
                self.reason = str(error)
        self.watch.look()

    def take_over(self) -> None:
        found = next((each for each in found_in(self.holder, ()) if each.owner is self.owner), None)
        if found is None:
            raise Unfollowed("it is no longer a part of the model that held it")
        config = self.holder.config
        fresh = fresh_like(found, config)
        if (reason := difference(self.owner, fresh)) is not None:
            raise Unfollowed(reason)
        twin = make_twin(found, config)
        if (place := next(inner_hooks(self.owner, twin.shared), None)) is not None:
            raise Unfollowed(f"{place} carries a hook")
        self.call, self.modes = Call(found, twin), Modes(self.owner, fresh, twin)
