"""The order in which a projection's weight lies in memory.

A product with few rows, as in decoding, is bound by reading the weight, and a CPU's library reads one stored input by
input faster than `nn.Linear`'s, stored output by output. The parameter stays the same one, of the same shape.
"""

import torch
from torch import nn


def lay_out(model: nn.Module, by_input: bool) -> None:
    """Stores the weights of a model's projections input by input (for decoding) or as `nn.Linear` does (for training).

    Nothing is changed but where a CPU's float32 multiplication gains from it: not on other devices, and not in
    weights that are quantised, sharded or shared with other processes.
    """
    for module in model.modules():
        if type(module) is not nn.Linear or type(module.weight) is not nn.Parameter:
            continue
        weight = module.weight.data
        plain = type(weight) is torch.Tensor and weight.device.type == "cpu" and weight.dtype == torch.float32
        if plain and not weight.is_shared() and weight.t().is_contiguous() != by_input:
            with torch.inference_mode(False):
                module.weight.data = weight.t().contiguous().t() if by_input else weight.contiguous()
