"""What a model computes for fixed inputs: enough to see elsewhere, later, whether it still does."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.func import functional_call
from transformers.modeling_outputs import ModelOutput

VALUES = 64  # of each output that are kept


def fingerprint(model: nn.Module, state_dict: dict[str, torch.Tensor] | None = None) -> dict:
    """Inputs that the model's class makes, and of every floating output its shape and some of its values.

    Args:
        state_dict: weights to compute with, where they are not the model's own.

    Raises:
        RuntimeError: for a model that is not whole.
    """
    if not is_whole(model):
        raise RuntimeError("the model is offloaded, sharded or quantised")
    inputs, own = model.fingerprint_inputs(), model.state_dict()
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    given = {name: value for name, value in (state_dict or {}).items() if name in own}
    weights = {name: value.to(own[name]) for name, value in given.items() if tied.get(name) not in given}
    return {
        "dtype": str(model.dtype).removeprefix("torch."),
        "inputs": {name: ids.tolist() for name, ids in inputs.items()},
        "outputs": outputs_of(model, inputs, weights),
    }


def is_whole(model: nn.Module) -> bool:
    """Whether a model can be run as it stands: nothing of it is elsewhere (offloaded, sharded) or in another form."""
    parameters = list(model.parameters())
    plain = all(type(parameter) is nn.Parameter and not parameter.is_meta for parameter in parameters)
    return plain and getattr(model, "hf_quantizer", None) is None and getattr(model, "_tp_size", None) is None


@torch.no_grad()
def outputs_of(
    model: nn.Module, inputs: dict[str, torch.LongTensor], weights: dict[str, torch.Tensor] | None = None
) -> dict[str, dict]:
    """A sample of what a model computes in evaluation mode, in the type of its weights."""
    inputs = {name: ids.to(model.device) for name, ids in inputs.items()}
    with as_its_class(model), torch.autocast(model.device.type, enabled=False), whole_float32():
        return sample(functional_call(model, weights or {}, kwargs=inputs | {"return_dict": True}))


@contextmanager
def as_its_class(model: nn.Module) -> Iterator[None]:
    """A model as its class makes it, in evaluation mode: accelerate leaves a `forward` on it that computes in mixed
    precision, and `model.compile()` a compiled call."""
    put_on = {name: vars(model).pop(name) for name in ("forward", "_compiled_call_impl") if name in vars(model)}
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        vars(model).update(put_on)
        for module, training in modes.items():
            module.training = training


@contextmanager
def whole_float32() -> Iterator[None]:
    """Matrices of float32 are multiplied in float32, where TF32 or bfloat16 may be allowed for it."""
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    allowed = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, precision in zip(backends, allowed, strict=True):
            backend.fp32_precision = precision


def sample(outputs: ModelOutput) -> dict[str, dict]:
    """Of every floating output its shape, and values at even distances; `None` for one that says nothing: no finite
    number, or its type's lowest, which stands for no answer."""
    samples = {}
    for name, values in outputs.items():
        if isinstance(values, torch.Tensor) and values.is_floating_point():
            flat = values.detach().cpu().flatten()
            count = min(VALUES, flat.numel())
            kept = flat[torch.arange(count) * (flat.numel() - 1) // max(count - 1, 1)]
            says = kept.isfinite() & (kept != torch.finfo(kept.dtype).min)
            numbers = [value if said else None for value, said in zip(kept.tolist(), says.tolist(), strict=True)]
            samples[name] = {"shape": list(values.shape), "values": numbers}
    return samples
