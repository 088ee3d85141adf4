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
    for name, tensor in originals.items():
        assert weights[name].dtype == tensor.dtype, name
        assert torch.equal(weights[name], tensor), name


def assert_same_config(config: PretrainedConfig, original: PretrainedConfig) -> None:
    assert type(config) is type(original)
    fields, originals = config.to_dict(), original.to_dict()
    assert fields.keys() == originals.keys()
    for name in originals.keys() - NOT_COMPARED:
        value, expected = fields[name], originals[name]
        if isinstance(expected, dict) and "model_type" in expected:  # a configuration within
            value, expected = ({key: each[key] for key in each.keys() - NOT_COMPARED} for each in (value, expected))
        assert value == expected, name


def assert_same_model(model: nn.Module, original: nn.Module) -> None:
    assert type(model) is type(original)
    assert not model.training
    assert_same_weights(model, original)
    assert_same_config(model.config, original.config)
