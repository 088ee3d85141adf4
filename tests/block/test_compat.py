"""What the block takes from inside transformers and torch is there, with the arguments it is called with."""

import inspect

import pytest
import torch
from torch import nn

from tfm_zoo.models import compat

MASK = {"config", "inputs_embeds", "attention_mask"}
CALLED_WITH = {
    compat.create_bidirectional_mask: MASK | {"encoder_hidden_states"},
    compat.create_causal_mask: MASK | {"past_key_values", "position_ids"},
    compat.create_sliding_window_causal_mask: MASK | {"past_key_values", "position_ids"},
    compat.OutputRecorder: {"target_class", "index", "layer_name"},
    compat.create_bidirectional_sliding_window_mask: MASK,
    compat.dynamic_rope_update: {"rope_forward"},
    compat.can_return_tuple: {"func"},
    compat.capture_outputs: {"func"},
    compat.ALL_ATTENTION_FUNCTIONS.get_interface: {"attn_implementation", "default"},
    **{function: {"config", "device", "seq_len"} for function in compat.ROPE_INIT_FUNCTIONS.values()},
}


@pytest.mark.parametrize("function", CALLED_WITH, ids=lambda function: function.__name__)
def test_arguments(function):
    assert CALLED_WITH[function] <= inspect.signature(function).parameters.keys()


def test_tables():
    assert {"linear", "dynamic", "yarn", "longrope", "llama3"} <= compat.ROPE_INIT_FUNCTIONS.keys()
    assert {"sdpa", "flex_attention", "flash_attention_2"} <= set(compat.ALL_ATTENTION_FUNCTIONS.valid_keys())
    assert isinstance(compat.ACT2FN["silu"], nn.Module)
    assert {"output_attentions", "output_hidden_states"} <= compat.TransformersKwargs.__annotations__.keys()


@pytest.mark.skipif(not hasattr(nn.functional, "linear_cross_entropy"), reason="torch 2.13 brings it")
def test_chunked_loss():
    wanted = {"input", "linear_weight", "target", "linear_bias", "reduction", "options"}
    parameters = inspect.signature(nn.functional.linear_cross_entropy).parameters
    assert wanted <= parameters.keys(), parameters
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2, chunking_method=None)
    states, weight = torch.randn(5, 3), torch.randn(7, 3)
    loss = nn.functional.linear_cross_entropy(states, weight, torch.arange(5), options=options)
    torch.testing.assert_close(loss, nn.functional.cross_entropy(states @ weight.T, torch.arange(5)))
