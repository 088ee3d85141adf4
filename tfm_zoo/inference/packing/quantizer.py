"""transformers' plug-in for models of eight and four bits, by which it loads, quantises and saves them."""

from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.core_model_loading import ConversionOps
from transformers.quantizers import HfQuantizer, register_quantizer
from transformers.quantizers.quantizers_utils import should_convert_module

from .configuration import METHOD
from .linear import PackedLinear
from .memory import return_memory
from .packing import WEIGHTS, is_plain, packer_of, place_kernel
from .tensors import KINDS, kind_of, named, names_of, same


@register_quantizer(METHOD)
class TfmQuantizer(HfQuantizer):
    """Loads linear layers in eight or four bits, as they are in a checkpoint or rounded one by one, and packs them.

    A layer that the checkpoint lacks, such as a new head, is initialised in floating point and rounded then. So is a
    projection to the vocabulary that is tied to an embedding: the embedding stays as it is, and only it is in
    the checkpoint.
    """

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return False

    @property
    def is_compileable(self) -> bool:
        return True

    def _process_model_before_weight_loading(self, model: PreTrainedModel, **kwargs: Any) -> None:
        """Chooses the layers. If the checkpoint is quantised, they get tensors with the names in its files."""
        skipped, tied = self.quantization_config.modules_to_not_convert, model.all_tied_weights_keys
        chosen = {name: module for name, module in model.named_modules() if is_plain(module)}
        chosen = {name: layer for name, layer in chosen.items() if should_convert_module(name, skipped)}
        self.layers = WeakSet(chosen.values())  # weak: layers that are packed must not stay in memory
        inputs = (self.quantization_config.inputs or {}) if self.pre_quantized else {}
        loaded = {name: layer for name, layer in chosen.items() if f"{name}.weight" not in tied}
        for name in [name for name in loaded if inputs.get(name) == "bfloat16"]:
            loaded.pop(name).is_kept = True
        self.loaded = {f"{name}.weight" for name in loaded}
        for layer in loaded.values() if self.pre_quantized else ():
            for name, tensor in named(self.rounded(layer.weight)).items():
                if name != "weight":
                    layer.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
        for name in loaded.keys() & inputs.keys():
            size = 1 if inputs[name] == "tensor" else loaded[name].in_features
            for field in ("weight_input_scales", "weight_input_zeros"):
                tensor = torch.empty(size, device=loaded[name].weight.device)
                loaded[name].register_parameter(field, nn.Parameter(tensor, requires_grad=False))

    def rounded(self, weight: torch.Tensor):
        return WEIGHTS[self.quantization_config.dtype](weight.detach())

    def param_needs_quantization(self, model: PreTrainedModel, param_name: str, **kwargs: Any) -> bool:
        """Whether a weight is rounded when it is loaded. (One that was rounded before may have another shape.)"""
        return param_name in self.loaded

    def get_quantize_ops(self) -> ConversionOps:
        return Rounding(self)

    def _process_model_after_weight_loading(self, model: PreTrainedModel, **kwargs: Any) -> None:
        """Packs the layers."""
        elsewhere = {str(parameter.device) for parameter in model.parameters() if parameter.device.type != "cpu"}
        if elsewhere:
            raise ValueError(f"Weights of {METHOD} are for a CPU; the model was loaded to {', '.join(elsewhere)}.")
        for name, module in model.named_modules():
            if module in self.layers and not is_whole(module):
                raise ValueError(f"The checkpoint lacks scales that fit {name}.weight.")
        packer_of(model, self.quantization_config.dtype, model.config.dtype, self.layers.__contains__).pack(model)
        place_kernel(model, self.quantization_config.dtype)
        del self.layers, self.loaded

    def get_state_dict_and_metadata(self, model: PreTrainedModel) -> tuple[dict[str, torch.Tensor], dict]:
        """The tensors to save: a tied projection is left out, as loading makes it from the embedding."""
        state = model.state_dict()
        for target, source in (getattr(model, "all_tied_weights_keys", None) or {}).items():
            prefix = target.removesuffix("weight")
            if source not in state or not isinstance(model.get_submodule(prefix[:-1]), PackedLinear):
                continue
            kind = KINDS[state[target].dtype]
            names = [prefix + name for name in names_of(kind)]
            if same(self.rounded(state[source]), kind(*(state[name] for name in names))):
                state = {name: tensor for name, tensor in state.items() if name not in names}
            else:
                model.config.tie_word_embeddings = False
        return state, {}


class Rounding(ConversionOps):
    """Rounds a weight that has just been read."""

    def __init__(self, quantizer: TfmQuantizer):
        self.quantizer = quantizer

    def convert(
        self, input_dict: dict[str, Any], full_layer_name: str, model: PreTrainedModel, **kwargs: Any
    ) -> dict[str, torch.Tensor]:
        (tensor,) = input_dict.values()
        tensor = tensor[0] if isinstance(tensor, list) else tensor
        self.quantizer.loaded.discard(full_layer_name)  # from now on transformers checks its shape
        prefix = full_layer_name.removesuffix("weight")
        layer = model.get_submodule(prefix[:-1])
        if tensor.shape != layer.weight.shape:
            return {full_layer_name: tensor}
        return_memory()
        tensors = named(self.quantizer.rounded(tensor))
        for name, value in tensors.items():
            setattr(layer, name, nn.Parameter(value.to("meta"), requires_grad=False))
        return {prefix + name: value for name, value in tensors.items()}


def is_whole(layer: nn.Linear) -> bool:
    """Whether a loaded layer has a real weight, or a rounded one with all that belongs to it."""
    if layer.weight.is_floating_point():
        return True
    kind = kind_of(layer)
    tensors = [getattr(layer, name, None) for name in names_of(kind)] if kind else [None]
    return all(getattr(tensor, "_is_hf_initialized", False) for tensor in tensors)
