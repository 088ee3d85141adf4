"""What stands for an official object's `forward`."""

import copy
import functools
import inspect
import logging
import re

import torch
from torch import nn
from transformers import Cache, PreTrainedConfig

from ..converters.errors import ConversionError
from ..models.batch import is_traced
from ..utils.errors import in_one_line
from .calls import Call, TracedError
from .finding import found_in
from .modes import Modes, UnfollowedError
from .packed import NOT_TRAINED, pack, refusing_gradients, state_of
from .packing.calibration import Given
from .reading import READ, UNKNOWN, read_by, reading
from .twins import fresh_like, make_twin
from .watching import Watch, difference, divided_by, inner_hooks

logger = logging.getLogger(__name__)
MOST_REASONS = 10  # that are said: some hold a number, which may be another in each call
#: the names of the classes of layers
LAYERS = re.compile(r".*(Layer|Block|BlockGroup)")


class StandIn:
    """A `forward` that is an attribute of one object: it goes wherever its owner is copied or pickled to."""

    def __init__(self, owner: nn.Module):
        functools.update_wrapper(self, type(owner).forward, updated=())
        del self.__wrapped__  # whoever unwraps a forward is to find this one
        signature = inspect.signature(type(owner).forward)
        self.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])
        self.owner, self.is_on, self.said = owner, True, set()
        self.names = [*self.__signature__.parameters]

    @property
    def __code__(self):
        """Where the official forward stands; `torch.export` asks for it."""
        return inspect.unwrap(type(self.owner).forward).__code__

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
        if reason not in self.said and len(self.said) < MOST_REASONS:
            self.said.add(reason)
            name = type(self.owner).__name__
            logger.warning(f"speed_up: the official forward of {name} computes this call: {reason}.")


class HeadStandIn(StandIn):
    """The forward of a model with a head, which tells the base model that it holds what it reads.

    Args:
        owner: the official model.
        family: the `model_type` of its twin.
    """

    def __init__(self, owner: nn.Module, family: str):
        super().__init__(owner)
        self.family = family

    def __reduce__(self):
        return type(self), (self.owner, self.family)

    def __deepcopy__(self, memo: dict):
        return type(self)(copy.deepcopy(self.owner, memo), self.family)

    def __call__(self, *args, **kwargs):
        is_outermost = READ.get() is UNKNOWN
        if not (self.is_on and is_outermost) or is_graph():
            return self.official(*args, **kwargs)
        with reading(read_by(self.owner, self.family, self.by_name(args, kwargs))):
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
        asked = None if is_graph() else READ.get().asked
        kept = asked[-1].kept(input) if self.is_on and asked and not is_traced(input) else None
        if kept is None:
            return self.official(input)
        output = kept.restore(self.official(kept.keep(input)))
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
        batches: inputs to calibrate packed weights with. `None`: they are not calibrated.
    """

    def __init__(self, owner: nn.Module, holder: nn.Module, dtype: str | None = None, batches: Given | None = None):
        super().__init__(owner)
        self.holder, self.dtype, self.batches = holder, dtype, batches
        self.watch: Watch | None = None
        self.call: Call | None = None
        self.modes: Modes | None = None
        self.reason: str | None = None
        self.packed: list[tuple[int, int]] | None = None

    def __reduce__(self):
        return type(self), (self.owner, self.holder, self.dtype, self.batches)

    def __deepcopy__(self, memo: dict):
        copies = (copy.deepcopy(each, memo) for each in (self.owner, self.holder))
        return type(self)(*copies, self.dtype, self.batches)

    def __call__(self, *args, **kwargs):
        if not self.is_on or is_graph():
            return self.official(*args, **kwargs)
        if self.dtype is not None and self.owner.training:
            raise RuntimeError(NOT_TRAINED.format(name=type(self.owner).__name__, dtype=self.dtype))
        if self.watch is None or not self.watch.is_same() or (self.dtype and self.packed != state_of(self.owner)):
            self.look()
        reason = self.reason
        if reason is None:
            try:
                return self.compute(self.by_name(args, kwargs))
            except TracedError:
                return self.official(*args, **kwargs)
            except (UnfollowedError, ValueError) as error:
                reason = in_one_line(error)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                if any(isinstance(value, Cache) for value in (*args, *kwargs.values())):
                    raise  # it may have been written to
                reason = f"{type(error).__name__}: {in_one_line(error)}"
        self.say(reason)
        return self.official(*args, **kwargs)

    def compute(self, options: dict):
        """A call, as the twin computes it."""
        self.call.twin.bind()
        if self.dtype is None:
            outputs = self.call(options)
        else:
            with torch.no_grad():
                outputs = self.call(options)
            message = NOT_TRAINED.format(name=type(self.owner).__name__, dtype=self.dtype)
            outputs = refusing_gradients(outputs, self.owner, message)
        return_dict = options.get("return_dict")
        return_dict = getattr(self.owner.config, "return_dict", True) if return_dict is None else return_dict
        return outputs if return_dict else outputs.to_tuple()

    def prepare(self) -> str | None:
        """Takes over what is there; returns why that cannot be, or `None`."""
        if "forward" in vars(self.owner) and not isinstance(vars(self.owner)["forward"], StandIn):
            return "its forward is replaced"
        self.look()
        return self.reason if self.call is None else None

    def look(self) -> None:
        """Takes over what is there now, or finds out why that cannot be."""
        packed = state_of(self.owner) if self.dtype else None
        is_known = self.watch is not None and self.call is not None and packed == self.packed
        if not is_known or not self.watch.has_same_parts():
            self.packed = packed
            self.call, self.modes, self.reason, shared = None, None, None, ()
            try:
                self.take_over()
                shared = self.call.twin.shared if self.dtype is None else ()
            except (ConversionError, UnfollowedError) as error:
                self.reason = in_one_line(error)
            except Exception as error:  # a form of the class that nobody has thought of
                self.reason = f"{type(error).__name__}: {in_one_line(error)}"
            self.watch = Watch(self.owner, shared)
        if self.call is not None:
            try:
                self.modes.follow()
                self.reason = None
            except UnfollowedError as error:
                self.reason = str(error)
        self.watch.look()

    def take_over(self) -> None:
        found = next((each for each in found_in(self.holder, ()) if each.owner is self.owner), None)
        if found is None:
            raise UnfollowedError("it is no longer a part of the model that held it")
        if (engine := divided_by(self.owner)) is not None:
            raise UnfollowedError(f"{engine} has divided its parameters among processes")
        config = with_depth(self.holder.config, self.owner)
        is_causal, is_decoder = getattr(config, "is_causal", None), found.architecture.family == "tfm_gpt"
        if is_causal is not None and not found.is_stack and is_causal != is_decoder:
            raise UnfollowedError(f"its configuration says is_causal={is_causal}")
        fresh = fresh_like(found, config)
        if (reason := difference(self.owner, fresh)) is not None:
            raise UnfollowedError(reason)
        twin = make_twin(found, config)
        shared = twin.shared if self.dtype is None else set()  # whose hooks the twin calls
        if (place := next(inner_hooks(self.owner, shared), None)) is not None:
            raise UnfollowedError(f"{place} carries a hook")
        if self.dtype is not None:
            pack(twin, self.owner, self.dtype, self.batches)
        self.call, self.modes = Call(found, twin), Modes(self.owner, fresh, twin)


def is_graph() -> bool:
    """Whether a graph is being made: it is that of the official class."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def with_depth(config: PreTrainedConfig, owner: nn.Module) -> PreTrainedConfig:
    """The configuration; if the model was left fewer layers than that says, one that says how many there are."""
    depth = getattr(config, "num_hidden_layers", None)
    stacks = [each for each in owner.modules() if isinstance(each, nn.ModuleList) and each]
    stack = next((each for each in stacks if LAYERS.fullmatch(type(each[0]).__name__)), None)
    is_shorter = stack is not None and depth is not None and len(stack) < depth and not config.is_encoder_decoder
    if not is_shorter or getattr(config, "num_hidden_groups", None):
        return config
    config = copy.deepcopy(config)
    config.num_hidden_layers = len(stack)
    return config
