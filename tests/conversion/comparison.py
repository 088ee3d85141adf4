"""What it takes for a conversion to have lost nothing."""

import torch
from torch import nn
from transformers import PretrainedConfig

#: what is written anew for every model, and says nothing of it: the library's version, the class that was saved, the
#: weights' type and the place they came from
NOT_COMPARED = {"transformers_version", "architectures", "dtype", "_name_or_path"}


def assert_same_weights(model: nn.Module, original: nn.Module) -> None:
    weights, originals = model.state_dict(), original.state_dict()
    assert weights.keys() == originals.keys()
    assert not {name for name, tensor in originals.items() if not same(weights[name], tensor)}


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def assert_same_config(config: PretrainedConfig, original: PretrainedConfig) -> None:
    assert type(config) is type(original) and compared(config.to_dict()) == compared(original.to_dict())


def compared(fields: dict) -> dict:
    """Of a configuration, and of those within it."""
    return {
        name: compared(value) if isinstance(value, dict) and "model_type" in value else value
        for name, value in fields.items()
        if name not in NOT_COMPARED
    }


def assert_same_model(model: nn.Module, original: nn.Module) -> None:
    assert type(model) is type(original) and not model.training
    assert_same_weights(model, original)
    assert_same_config(model.config, original.config)
