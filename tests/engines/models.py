"""Models that the kernels of engines take, and prompts for them."""

from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

import tfm_zoo

from ..words import make_tokenizer

#: ids of a prompt; one is longer than the windows of tests
PROMPTS = [[5, 9, 12], [7, 8, 20, 11, 22, 19, 9, 10, 11, 5, 6, 7, 8], [20, 6, 14, 9, 25, 7]]
#: heads of at least 32 channels; weights this large make logits that differ
SIZES = {
    **{"vocab_size": len(make_tokenizer()), "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4},
    **{"max_position_embeddings": 128, "initializer_range": 0.15},
}
INNER = {"intermediate_size": 256}
LLAMA = INNER | {"num_key_value_heads": 2}


def make(name: str, **fields: Any) -> PreTrainedModel:
    """A model of random weights, of a class of transformers or of the zoo."""
    torch.manual_seed(0)
    model_class = getattr(tfm_zoo if name.startswith("Tfm") else transformers, name)
    return model_class(model_class.config_class(**SIZES | fields)).eval()
