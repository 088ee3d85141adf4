"""When a result is the same as another: two questions, kept apart.

*Is the mathematics the same?* [`assert_same`] asks that in double precision, which [`in_double`] sets up. On every
processor rounding is far below its bound, and a mistake far above.

*Does float32 round as well?* [`assert_rounds_as_well`] measures both sides by the same model in double precision.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import pytest
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from transformers.models.bloom.modeling_bloom import BloomGelu

#: of a tensor's largest value: how far it may be off in double precision
MAX_DIFFERENCE = 1e-10
#: the same of all tensors that are compared: what is zero but for rounding, as the gradient of a key's bias, may be so
#: far off
ROUNDING = 1e-13
#: how much further off than the official class the zoo may be in float32, beside one unit in the last place
MAX_RATIO = 1.5
UNIT = torch.finfo(torch.float32).eps

# [`Widened`] cannot see into a script. Before 5.23, transformers computes DeBERTa's scale in one, in float32.
torch.jit.script = lambda function: function


class Widened(TorchFunctionMode):
    """What code asks for in float32, as norms and rotary positions do, it gets in double precision. (Not where a
    backward pass computes blocks again: torch leaves all modes there.)"""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.float:
            return torch.Tensor.double(*args)
        if len(args) == 1 and not kwargs:  # as for an attribute, of which there are most
            return function(*args)
        args, kwargs = [*map(widened, args)], {name: widened(value) for name, value in (kwargs or {}).items()}
        if function is torch._grouped_mm and args[0].dtype == torch.float64:  # for which torch has no kernel
            rows = args[0].tensor_split(kwargs["offs"][:-1].tolist())
            return torch.cat([part @ weight for part, weight in zip(rows, args[1], strict=True)])
        return function(*args, **kwargs)


def widened(value):
    return torch.float64 if value is torch.float32 else value


@contextmanager
def in_double() -> Iterator[None]:
    """Models and tensors that are made here, and what is computed, are of double precision throughout."""
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        stack.enter_context(patch.object(torch, "FloatTensor", torch.DoubleTensor))
        # BLOOM's own has a constant of eight digits.
        stack.enter_context(patch.object(BloomGelu, "forward", lambda _, states: F.gelu(states, approximate="tanh")))
        stack.enter_context(Widened())
        yield


@contextmanager
def in_single() -> Iterator[None]:
    """Among tests that run [`in_double`]: as usual, for one whose subject is a type."""
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
        stack.enter_context(torch._C.DisableTorchFunction())
        yield


def tensors_in(results, name: str = "") -> dict[str, torch.Tensor]:
    """Every tensor in results that may be nested, by where it stands."""
    if isinstance(results, torch.Tensor):
        return {name: results.detach()}
    items = results.items() if isinstance(results, Mapping) else enumerate(() if results is None else results)
    return {place: tensor for key, value in items for place, tensor in tensors_in(value, f"{name}.{key}").items()}


def largest(tensor: torch.Tensor) -> float:
    finite = tensor[tensor.isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0


def assert_same(made, wanted, what: str = "result") -> None:
    """Each tensor is within 1e-10 of its largest value: what was computed in double precision is the same."""
    with torch._C.DisableTorchFunction():  # of no use here, and slow
        made, wanted = tensors_in(made, what), tensors_in(wanted, what)
        assert made.keys() == wanted.keys()
        sizes = {name: largest(tensor) for name, tensor in wanted.items()}
        for name, tensor in wanted.items():
            assert made[name].shape == tensor.shape, f"{name}: {made[name].shape} for {tensor.shape}"
            assert made[name].dtype == tensor.dtype == torch.float64, f"{name}: {made[name].dtype} and {tensor.dtype}"
            bound = max(MAX_DIFFERENCE * sizes[name], ROUNDING * max(sizes.values()))
            distances = (made[name] - tensor).abs().masked_fill(made[name] == tensor, 0)  # infinities are
            assert (distances <= bound).all(), f"{name}: differs by {distances.max():.2e}, allowed are {bound:.2e}"


def assert_alike(made, wanted, **tolerance: float) -> None:
    """Wherever they are in nested results: fractions within a tolerance of `pytest.approx`, all else exactly."""
    if isinstance(wanted, dict):
        assert [*made] == [*wanted]
        made, wanted = [*made.values()], [*wanted.values()]
    if isinstance(wanted, torch.Tensor):
        assert made.equal(wanted)
    elif isinstance(wanted, list | tuple):
        for one, other in zip(made, wanted, strict=True):
            assert_alike(one, other, **tolerance)
    else:
        is_exact = not tolerance or isinstance(wanted, str | int)
        assert made == (wanted if is_exact else pytest.approx(wanted, **tolerance))


def assert_rounds_as_well(zoo, official, exact, what: str) -> None:
    """The zoo's float32 is no further off `exact` than the official class's times 1.5, plus one unit in the last place
    of a tensor's largest value: the root mean square of all values, since of a few chance decides which is worst."""
    exact, errors = tensors_in(exact), []
    for side in map(tensors_in, (zoo, official)):
        assert all(tensor.dtype == torch.float32 for tensor in side.values())
        off = [(side[name] - tensor).flatten() / (UNIT * largest(tensor)) for name, tensor in exact.items()]
        errors.append(torch.cat(off).square().mean().sqrt().item())
    ours, theirs = errors
    assert ours <= MAX_RATIO * theirs + 1, f"{what}: {ours:.2f} units off, and the official class {theirs:.2f}"
