"""What the block takes from inside transformers is there, with the arguments it is called with."""

import inspect

import pytest
from torch import nn

from tfm_zoo.models import compat

MASK = {"config", "inputs_embeds", "attention_mask"}
CALLED_WITH = {
    compat.create_bidirectional_mask: MASK | {"encoder_hidden_states"},
    compat.create_causal_mask: MASK | {compat.CACHE, "position_ids"},
    compat.create_sliding_window_causal_mask: MASK | {compat.CACHE, "position_ids"},
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
