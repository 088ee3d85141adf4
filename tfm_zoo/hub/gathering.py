"""Makes an ordinary model, to be saved, of one that training engines hold in shards and wrappers."""

from copy import copy
from typing import Any

import torch
from torch import nn

from ..models.losses import is_divided

#: the names under which wrappers keep the layer inside: FSDP1, activation checkpointing, compilation
WRAPPED = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")


def own_class(model: nn.Module) -> type[nn.Module]:
    """The class of a model, without the subclass that `fully_shard` (FSDP2) makes of it."""
    return next(each for each in type(model).__mro__ if not each.__module__.startswith("torch.distributed"))


def plain_name(name: str) -> str:
    """The name of a weight without those of wrappers."""
    for wrapper in WRAPPED:
        name = name.replace(f"{wrapper}.", "")
    return name


def is_sharded(model: nn.Module) -> bool:
    """Whether an engine divides the model, or wraps parts of it; transformers' tensor parallelism does not count."""
    if (getattr(model, "_tp_size", None) or 1) > 1:
        return False
    wrappers = any(name in module._modules for module in model.modules() for name in WRAPPED)
    return wrappers or any(map(is_divided, model.modules()))


def gathered(model: nn.Module) -> dict[str, torch.Tensor] | None:
    """The whole weights of a model that FSDP2 shards, on the CPU of the first process. All processes call it.

    `None` for a model of another engine: only that engine's wrapper can gather them.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    is_wrapped = any("_fsdp_wrapped_module" in module._modules for module in model.modules())
    if is_wrapped or any(hasattr(parameter, "ds_tensor") for parameter in model.parameters()):
        return None
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def whole(model: nn.Module, weights: dict[str, torch.Tensor]) -> nn.Module:
    """An ordinary model of the same layers, which holds `weights` where the given one holds shards.

    The layers are copied without what engines put into them. Weights are not copied; a parameter that `weights` lack
    has no values (device `meta`).
    """
    parameters: dict[nn.Parameter, nn.Parameter] = {}  # sharded -> whole: tied parameters stay tied
    for name, parameter in model.named_parameters(remove_duplicate=False):
        value = weights.get(plain_name(name))
        if value is not None:
            parameters[parameter] = nn.Parameter(value, requires_grad=parameter.requires_grad)
    copied = _copied(model, parameters, {})
    copied.config = copy(model.config)
    vars(copied.config).pop("distributed_config", None)  # by which transformers would gather it from all processes
    return copied


def _copied(
    module: nn.Module, parameters: dict[nn.Parameter, nn.Parameter], done: dict[nn.Module, nn.Module]
) -> nn.Module:
    """A module without its wrappers and hooks, with whole `parameters`; `done`: the modules copied so far."""
    for wrapper in WRAPPED:
        if wrapper in module._modules:
            return _copied(module._modules[wrapper], parameters, done)
    if module in done:  # it stands in two places
        return done[module]
    copied = done[module] = object.__new__(own_class(module))
    bare: dict[str, Any] = vars(nn.Module())  # no hooks
    kept = {name: value for name, value in vars(module).items() if name not in bare}
    kept = {name: value for name, value in kept.items() if name not in ("forward", "_original_forward")}  # Accelerate's
    vars(copied).update(bare | kept)
    copied.train(module.training)
    copied._non_persistent_buffers_set = set(module._non_persistent_buffers_set)
    copied._buffers = {name: value if value is None else value.cpu() for name, value in module._buffers.items()}
    copied._parameters = {
        name: value if value is None else parameters.setdefault(value, _without_values(value))
        for name, value in module._parameters.items()
    }
    copied._modules = {
        name: child if child is None else _copied(child, parameters, done) for name, child in module._modules.items()
    }
    return copied


def _without_values(parameter: nn.Parameter) -> nn.Parameter:
    shape = getattr(parameter, "ds_shape", parameter.shape)  # ZeRO-3 leaves an empty shape
    return nn.Parameter(torch.empty(shape, dtype=parameter.dtype, device="meta"), parameter.requires_grad)
