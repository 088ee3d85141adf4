"""Which ONNX files a model becomes, and how they compute together what the model does."""

from collections.abc import Callable

import torch
from transformers import PreTrainedModel

from ...converters import ConversionError
from ...models.modeling_tfm_encoder_decoder import TfmEncoderDecoderForConditionalGeneration, TfmEncoderDecoderModel
from ...models.modeling_tfm_gpt import TfmGPTForCausalLM
from .graphs import CachedStep, FirstStep, Graph, NextStep
from .inputs import random_inputs

#: sequences, tokens, and those of them in a cache, of the examples. Sizes of 0 and 1 would become part of the graph.
ROWS, LENGTH, SEEN = 2, 8, 3

Tensors = dict[str, torch.Tensor]
File = Callable[[Tensors], Tensors]  # what a file computes: inputs by name to outputs by name


class WholeModel:
    """`model.onnx`: the outputs of the model."""

    def __init__(self, model: PreTrainedModel):
        self.model = model

    def graphs(self) -> dict[str, Graph]:
        """Name of a file -> what it computes."""
        return {"model.onnx": Graph(self.model, random_inputs(self.model, ROWS, LENGTH))}

    def run(self, files: dict[str, File], inputs: Tensors) -> Tensors:
        """What the model makes of the inputs of [`random_inputs`], computed by the files."""
        return files["model.onnx"](inputs)


class LanguageModel(WholeModel):
    """`model.onnx`: logits for the tokens after those in a cache, whose length is 0 where a generation begins."""

    def graphs(self) -> dict[str, Graph]:
        inputs = random_inputs(self.model, ROWS, LENGTH)
        return {"model.onnx": CachedStep(self.model, between(inputs, SEEN, LENGTH) | self.empty_past(ROWS, SEEN))}

    def run(self, files: dict[str, File], inputs: Tensors) -> Tensors:
        """In two steps, the second of one token."""
        rows, length = inputs["input_ids"].shape
        first = files["model.onnx"](between(inputs, 0, length - 1) | self.empty_past(rows, 0))
        last = files["model.onnx"](between(inputs, length - 1, length) | past_of(first))
        return {"logits": torch.cat((first["logits"], last["logits"]), dim=1)}

    def empty_past(self, rows: int, length: int) -> Tensors:
        """Zeros instead of a cache."""
        config = self.model.config
        shape = (rows, config.num_key_value_heads, length, config.head_dim)
        names = [f"past_key_values.{i}.{name}" for i in range(config.num_hidden_layers) for name in ("key", "value")]
        return {name: torch.zeros(shape) for name in names}


class EncoderDecoder(WholeModel):
    """The encoder, `encoder_model.onnx`; the decoder, `decoder_model.onnx`; and the decoder after a cache,
    `decoder_with_past_model.onnx`."""

    def graphs(self) -> dict[str, Graph]:
        inputs = random_inputs(self.model, ROWS, LENGTH)
        target = inputs.pop("decoder_input_ids")
        mask = {"encoder_attention_mask": inputs["attention_mask"]}
        encoder = Graph(self.model.get_encoder(), inputs)
        states = {"encoder_hidden_states": encoder.compute(**inputs)["last_hidden_state"]}
        first = FirstStep(self.model, {"input_ids": target} | mask | states)
        past = past_of(first.compute(**first.examples))
        following = NextStep(self.model, {"input_ids": target} | mask | past)
        return {
            "encoder_model.onnx": encoder,
            "decoder_model.onnx": first,
            "decoder_with_past_model.onnx": following,
        }

    def run(self, files: dict[str, File], inputs: Tensors) -> Tensors:
        """The decoder in two steps, the second of one token."""
        source = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
        states = files["encoder_model.onnx"](source)["last_hidden_state"]
        target, mask = inputs["decoder_input_ids"], {"encoder_attention_mask": source["attention_mask"]}
        first = files["decoder_model.onnx"]({"input_ids": target[:, :-1], "encoder_hidden_states": states} | mask)
        last = files["decoder_with_past_model.onnx"]({"input_ids": target[:, -1:]} | mask | past_of(first))
        return {name: torch.cat((first[name], last[name]), dim=1) for name in last if not name.startswith("present")}


def between(inputs: Tensors, start: int, end: int) -> Tensors:
    """A step of a language model: its tokens, with the mask of all tokens up to their last."""
    step = {name: ids[:, start:end] for name, ids in inputs.items()}
    return step | {"attention_mask": inputs["attention_mask"][:, :end]}


def past_of(outputs: Tensors) -> Tensors:
    """The cache in the outputs of a step, under the names of the next step's inputs."""
    present = {name: tensor for name, tensor in outputs.items() if name.startswith("present.")}
    return {name.replace("present", "past_key_values"): tensor for name, tensor in present.items()}


def parts_of(model: PreTrainedModel) -> WholeModel:
    """The files that a model becomes.

    Raises:
        ConversionError: for a model that they cannot express.
    """
    rope_type = (getattr(model.config, "rope_parameters", None) or {}).get("rope_type")
    if rope_type in ("dynamic", "longrope"):
        raise ConversionError(
            f"rope_type={rope_type!r} has frequencies that depend on the length of the input; those of an ONNX file "
            "are fixed."
        )
    kinds = {
        TfmGPTForCausalLM: LanguageModel,
        TfmEncoderDecoderModel: EncoderDecoder,
        TfmEncoderDecoderForConditionalGeneration: EncoderDecoder,
    }
    kind = next((kind for model_class, kind in kinds.items() if isinstance(model, model_class)), WholeModel)
    if kind is not WholeModel and model.config.has_linear_attention:
        raise ConversionError(
            f"A {type(model).__name__} with linear attention keeps a state, and ONNX's tools know only caches of keys "
            "and values."
        )
    return kind(model)
