"""Packed weights in a twin: for inference, and as good as the tensors that they were made of."""

import torch
from torch import nn

from .modes import UnfollowedError
from .packing.calibration import Given
from .packing.packing import check, pack_layers
from .twins import Twin, adapted

NOT_TRAINED = (
    "speed_up has packed the weights of this {name} in {dtype}, for inference: restore(model) before training, or "
    "speed_up(model) without a dtype."
)


def pack(twin: Twin, owner: nn.Module, dtype: str, batches: Given | None) -> None:
    """Packs the linear layers of a twin, calibrated with these inputs; the official ones stay as they are."""
    if any(adapted(module) is not None for module in owner.modules()):
        raise UnfollowedError(f"its adapters keep its weights from being packed in {dtype}: merge them first")
    learned = [parameter for parameter in owner.parameters() if parameter.requires_grad]
    for module in twin.modules:
        module.training = False
    if batches is not None:  # which changes layers before they are packed
        own_layers(twin.model)
    try:
        check(twin.model)
        pack_layers(twin.model, dtype, batches)
    except ValueError as error:
        raise UnfollowedError(str(error)) from error
    finally:
        for parameter in learned:  # the twin shares some, and whoever packs a model freezes it
            parameter.requires_grad_()


def own_layers(model: nn.Module) -> None:
    """Gives a twin linear layers of its own instead of the official ones, with copies of their tensors."""
    for module in [*model.modules()]:
        for name, layer in module._modules.items():
            if type(layer) is nn.Linear:
                own = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
                for tensor in ("weight", "bias"):
                    if (official := getattr(layer, tensor)) is not None:
                        setattr(own, tensor, nn.Parameter(official.detach().clone(), requires_grad=False))
                module._modules[name] = own.eval()


def state_of(owner: nn.Module) -> list[tuple[int, int]]:
    """What tells whether somebody has written to the parameters of a model."""
    parameters = (each for module in owner.modules() for each in module._parameters.values() if each is not None)
    return [(each.data_ptr(), 0 if each.is_inference() else each._version) for each in parameters]


class NotTrained(torch.autograd.Function):
    """States of a packed model, from which no gradient comes back."""

    @staticmethod
    def forward(ctx, states: torch.Tensor, parameter: torch.Tensor, message: str) -> torch.Tensor:
        ctx.message = message
        return states.view_as(states)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        raise RuntimeError(ctx.message)


def refusing_gradients(outputs, owner: nn.Module, message: str):
    """The same outputs; whoever asks for gradients of the packed model gets an error with this message."""
    learned = next((each for each in owner.parameters() if each.requires_grad), None)
    if torch.is_grad_enabled() and learned is not None:
        for name in ("last_hidden_state", "pooler_output"):
            if outputs.get(name) is not None:
                outputs[name] = NotTrained.apply(outputs[name], learned, message)
    return outputs
