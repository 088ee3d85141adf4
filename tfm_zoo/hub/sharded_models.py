"""Makes an ordinary model, to be saved, of one that training engines hold in shards and wrappers."""

from copy import copy

import torch
from torch import nn
from transformers import PreTrainedModel

from ..models.losses import is_divided

#: the names under which wrappers keep the layer inside: FSDP1, activation checkpointing, compilation
WRAPPED = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")


def own_class(model: nn.Module) -> type[nn.Module]:
    """The class of a model, without the subclass that `fully_shard` (FSDP2) makes of it."""
    return next(each for each in type(model).__mro__ if not each.__module__.startswith("torch.distributed"))


def plain_name(name: str) -> str:
    """The name of a weight without those of wrappers."""
    return ".".join(part for part in name.split(".") if part not in WRAPPED)


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


def rebuilt(model: PreTrainedModel, weights: dict[str, torch.Tensor]) -> PreTrainedModel:
    """An ordinary model of the same class and configuration, which holds `weights`.

    Weights are not copied; a parameter that `weights` lack has no values (device `meta`).
    """
    from accelerate import init_empty_weights

    config = copy(model.config)
    vars(config).pop("distributed_config", None)  # by which transformers would gather it from all processes
    with init_empty_weights():
        made = own_class(model)(config)
    for name, adapter in getattr(model, "peft_config", {}).items():
        made.add_adapter(adapter, name)
    made.load_state_dict({plain_name(name): value for name, value in weights.items()}, strict=False, assign=True)
    made.tie_weights()
    kept = {name: value for name, value in vars(model).items() if name in ("generation_config", "model_tags")}
    vars(made).update(kept)
    return made.train(model.training)
