"""What one ONNX file computes: a model, or a step of its generation, as a function of tensors with names."""

from collections.abc import Sequence

import torch
from torch import nn
from transformers import Cache, DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer


class Graph(nn.Module):
    """A model without a cache.

    Args:
        model: the model.
        examples: name of an input -> a tensor of the shape and type that it may have.
    """

    def __init__(self, model: PreTrainedModel, examples: dict[str, torch.Tensor]):
        super().__init__()
        self.model, self.examples = model, examples

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Tensors in the order of `examples` to the values of `compute`."""
        return tuple(self.compute(**dict(zip(self.examples, tensors, strict=True))).values())

    def compute(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Inputs by name to outputs by name."""
        outputs = self.model(**inputs, use_cache=False, return_dict=True)
        return {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}

    def step(self, cache: Cache, **inputs: torch.Tensor | tuple[torch.Tensor]):
        """The model's outputs for the tokens after those in a cache, which then holds these tokens too."""
        return self.model(**inputs, past_key_values=cache, use_cache=True, return_dict=True)

    def axes(self) -> dict[str, dict[int, str]]:
        """Of each input, the dimensions that may have any size, with their names."""
        return {name: axes_of(name, tensor.dim()) for name, tensor in self.examples.items()}


class CachedStep(Graph):
    """A language model's next tokens, after those in a cache, which may be empty."""

    def compute(self, input_ids, attention_mask, position_ids, **past: torch.Tensor) -> dict[str, torch.Tensor]:
        cache = cache_of(list(past.values()))
        outputs = self.step(cache, input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids)
        return result_of(outputs) | tensors_of(cache, "present.{}.")

    def axes(self) -> dict[str, dict[int, str]]:
        return super().axes() | {"attention_mask": {0: "batch_size", 1: "total_sequence_length"}}


class FirstStep(Graph):
    """The first tokens of a target, which a decoder makes of an encoder's output. What it keeps of the source and of
    the target are caches of the next step."""

    def compute(self, input_ids, encoder_attention_mask, encoder_hidden_states) -> dict[str, torch.Tensor]:
        # By itself, the model would make a cache that forgets what leaves a window.
        inputs = {"decoder_input_ids": input_ids, "attention_mask": encoder_attention_mask}
        outputs = self.step(cache_of(()), encoder_outputs=(encoder_hidden_states,), **inputs)
        cache = outputs.past_key_values
        target = tensors_of(cache.self_attention_cache, "present.{}.decoder.")
        source = tensors_of(cache.cross_attention_cache, "present.{}.encoder.")
        return result_of(outputs) | target | source


class NextStep(Graph):
    """A target's next tokens, after those in a cache, which holds the keys and values of the source too."""

    def compute(self, input_ids, encoder_attention_mask, **past: torch.Tensor) -> dict[str, torch.Tensor]:
        sides = ([tensor for name, tensor in past.items() if f".{side}." in name] for side in ("decoder", "encoder"))
        cache = EncoderDecoderCache(*map(cache_of, sides))
        # The cache replaces the encoder's output: only its shape is read.
        states = torch.zeros(*encoder_attention_mask.shape, self.model.config.hidden_size)
        inputs = {"decoder_input_ids": input_ids, "attention_mask": encoder_attention_mask}
        outputs = self.step(cache, encoder_outputs=(states,), **inputs)
        return result_of(outputs) | tensors_of(cache.self_attention_cache, "present.{}.decoder.")


def result_of(outputs) -> dict[str, torch.Tensor]:
    """The logits, or the last hidden state of a model without a head."""
    name = "logits" if "logits" in outputs else "last_hidden_state"
    return {name: outputs[name]}


def cache_of(tensors: Sequence[torch.Tensor]) -> Cache:
    """A cache of keys and values, `(batch, heads, length, head_dim)`, of each layer in turn."""
    cache = DynamicCache()
    for keys, values in zip(tensors[::2], tensors[1::2], strict=True):
        layer = DynamicLayer()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache


def tensors_of(cache: Cache, prefix: str) -> dict[str, torch.Tensor]:
    """The keys and values in a cache, by name; `prefix` has a place for the layer's number."""
    return {
        prefix.format(index) + name: tensor
        for index, layer in enumerate(cache.layers)
        for name, tensor in (("key", layer.keys), ("value", layer.values))
    }


def axes_of(name: str, dimensions: int) -> dict[int, str]:
    """The dimensions of an input that may have any size."""
    if name.startswith("past_key_values."):
        return {0: "batch_size", 2: "encoder_sequence_length" if ".encoder." in name else "past_sequence_length"}
    if name == "encoder_hidden_states":
        return {0: "batch_size", 1: "encoder_sequence_length"}
    sizes = {2: ("batch_size",), 3: ("batch_size", "num_choices")}[dimensions]
    return dict(enumerate((*sizes, "encoder_sequence_length" if name.startswith("encoder_") else "sequence_length")))
