"""Weights of eight bits, for inference on a CPU."""

import warnings

import torch
from torch import nn
from transformers import PreTrainedModel

HAS_VNNI = getattr(torch.cpu, "_is_vnni_supported", bool)()


class Int8Linear(nn.Module):
    """A `nn.Linear` with weights of eight bits and a scale per output, packed for the CPU's integer instructions.

    The input is quantised to eight bits, too, with one scale per call (dynamic quantisation), so that the product is
    computed in integers.

    Args:
        linear: the layer to replace; its weight is copied.
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach().float().contiguous()
        scales = (weight.abs().amax(dim=1) / 127).clamp(min=torch.finfo(torch.float).tiny)
        zeros = torch.zeros(self.out_features, dtype=torch.long)
        bias = None if linear.bias is None else linear.bias.detach().float()
        with warnings.catch_warnings():
            # Quantised tensors are deprecated. The kernel takes its weight in no other form.
            warnings.simplefilter("ignore")
            quantised = torch.quantize_per_channel(weight, scales, zeros, axis=0, dtype=torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(quantised, bias)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., in_features)` to `(..., out_features)`."""
        states = hidden_states.float()
        # Without VNNI the sums of products overflow sixteen bits, unless the input has only seven bits.
        return torch.ops.quantized.linear_dynamic(states, self.packed, not HAS_VNNI).to(hidden_states.dtype)

    def _save_to_state_dict(self, *args, **kwargs):
        raise ValueError(
            "A model quantised by quantize_int8 is not saved: save it before, and quantise it after from_pretrained."
        )

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def quantize_int8(model: PreTrainedModel) -> PreTrainedModel:
    """Gives every projection of a model on a CPU, the language-modelling head too, weights of eight bits, in place.

    Decoding spends its time reading weights, which take a quarter of the memory afterwards. Embeddings (also one that
    the head was tied to), norms and attention stay as they are.

    Args:
        model: a model in evaluation mode; it can then not be trained, saved, exported, resized or compiled.

    Returns:
        The same model.

    Raises:
        ValueError: for a model that is in training mode or not on a CPU.
    """
    if model.training or model.device.type != "cpu":
        state = "in training mode" if model.training else f"on {model.device}"
        wanted = "quantize_int8 takes a model in evaluation mode (model.eval()) on a CPU"
        raise ValueError(f"{wanted}; this one is {state}.")
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, Int8Linear(child))
    return model.requires_grad_(False)  # integers pass no gradient on
