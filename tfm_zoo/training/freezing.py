"""Which parameters of a model learn, and how far below the head they are."""

import difflib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import combinations

from torch import nn
from transformers import PreTrainedModel

LAYER = re.compile(r"(.*?)\.(\d+)\.")  # "encoder.layer.11.output.dense.weight": number 11 of the stack "encoder.layer"
EMBEDDING = re.compile(r"emb|wte|wpe|shared")  # all but GPT-2 and BART say "emb" somewhere


def freeze_base_model(model: PreTrainedModel, frozen: bool = True) -> None:
    """Freeze the model's body, or let it learn again. A pooler, which serves the head, always learns."""
    for name, parameter in model.base_model.named_parameters():
        parameter.requires_grad_(not frozen or name.startswith("pooler."))


def freeze(model: PreTrainedModel, patterns: Sequence[str]) -> None:
    """Freeze the parameters that shell patterns name.

    A pattern matches whole parts of a dotted name, anywhere in it: `embeddings` means all parameters of the embeddings,
    `layers.[0-3]` those of the first four layers of each stack. A weight that is tied to another is frozen by either
    name. A pattern that matches nothing is refused, and so are patterns that leave nothing to learn.
    """
    named = list(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        frozen = [parameter for name, parameter in named if fnmatchcase(f".{name}.", f"*.{pattern}.*")]
        if not frozen:
            parts = [name.split(".") for name, _ in named]
            known = {".".join(p[start:end]) for p in parts for start, end in combinations(range(len(p) + 1), 2)}
            near = difflib.get_close_matches(pattern.removesuffix(".*"), sorted(known), n=3, cutoff=0)
            raise ValueError(f"freeze {pattern!r}: {type(model).__name__} has no parameter of that name; near: {near}")
        for parameter in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for _, parameter in named):
        raise ValueError(f"freeze {list(patterns)}: nothing is left to learn")


def depths(model: PreTrainedModel) -> dict[str, int]:
    """How far below the head each parameter is, judged by its name.

    The head, a pooler and a norm after the last layer have depth 0, the last layer 1, and so on down to the first; the
    embeddings are below that. The layers of an encoder and of a decoder count side by side, since the decoder's last
    layer reads the encoder's last. A weight that is tied to the embeddings has their depth.
    """
    body = list(model.base_model.named_parameters(remove_duplicate=False))
    matches = [LAYER.match(name) for name, _ in body]
    layers: dict[str, int] = {}  # stack -> its number of layers
    for match in filter(None, matches):
        layers[match[1]] = max(layers.get(match[1], 0), int(match[2]) + 1)
    lowest = max(layers.values(), default=0) + 1

    depth_of: dict[nn.Parameter, int] = {}
    for (name, parameter), match in zip(body, matches, strict=True):
        outside = lowest if EMBEDDING.search(name) else 0
        depth = layers[match[1]] - int(match[2]) if match else outside
        depth_of[parameter] = max(depth, depth_of.get(parameter, 0))
    return {name: depth_of.get(parameter, 0) for name, parameter in model.named_parameters()}


def what_learns(model: PreTrainedModel) -> str:
    """How many parameters learn now, for the log."""
    return f"{model.num_parameters(only_trainable=True):,} of {model.num_parameters():,} parameters learn"
