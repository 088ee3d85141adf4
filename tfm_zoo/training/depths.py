"""How far below the head each parameter of a Transformer stands, by the names that transformers' classes give."""

import re

from torch import nn
from transformers import PreTrainedModel

LAYER = re.compile(r"(.*?)\.(\d+)\.")  # "encoder.layer.11.output.dense.weight": number 11 of the stack "encoder.layer"
EMBEDDING = re.compile(r"emb|wte|wpe|shared")  # all but GPT-2 and BART say "emb" somewhere


def depths(model: PreTrainedModel) -> dict[str, int]:
    """The depth of each parameter, by name.

    It is 0 for the head, a pooler and a norm after the last layer, 1 for the last layer, and so on down to the first;
    the embeddings lie below that. An encoder and a decoder count side by side, since the head's own neighbour, the
    decoder's last layer, reads the encoder's. A weight that is tied to the embeddings lies where they do.
    """
    body = list(model.base_model.named_parameters(remove_duplicate=False))
    found = [LAYER.match(name) for name, _ in body]
    layers: dict[str, int] = {}  # of each stack
    for match in filter(None, found):
        layers[match[1]] = max(layers.get(match[1], 0), int(match[2]) + 1)
    lowest = max(layers.values(), default=0) + 1

    depth_of: dict[nn.Parameter, int] = {}
    for (name, parameter), match in zip(body, found, strict=True):
        outside = lowest if EMBEDDING.search(name) else 0
        depth = layers[match[1]] - int(match[2]) if match else outside
        depth_of[parameter] = max(depth, depth_of.get(parameter, 0))
    return {name: depth_of.get(parameter, 0) for name, parameter in model.named_parameters()}
