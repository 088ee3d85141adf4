"""Linear layers with packed weights: one alone, and several that read the same input and share one product."""

from collections.abc import Callable
from itertools import accumulate, count
from weakref import WeakValueDictionary

import torch
from torch import nn
from transformers import PreTrainedModel

from .products import Product
from .tensors import layer_tensors
from .weights import rows

#: the products of this process by number, by which a compiled graph calls them
PRODUCTS: WeakValueDictionary[int, Product] = WeakValueDictionary()
NUMBERS = count()

OPERATORS = torch.library.Library("tfm_zoo", "FRAGMENT")
OPERATORS.define("product(Tensor inputs, int number, int out_features, ScalarType dtype) -> Tensor")


@torch.library.impl(OPERATORS, "product", "CPU")
def multiply(inputs: torch.Tensor, number: int, out_features: int, dtype: torch.dtype) -> torch.Tensor:
    """A product as an operator, which a compiled graph calls without looking inside."""
    return PRODUCTS[number](inputs, dtype).to(dtype)


@torch.library.register_fake("tfm_zoo::product", lib=OPERATORS)
def multiply_shapes(inputs: torch.Tensor, number: int, out_features: int, dtype: torch.dtype) -> torch.Tensor:
    return inputs.new_empty((*inputs.shape[:-1], out_features), dtype=dtype)


class PackedLayer(nn.Module):
    """What stands for a linear layer, and takes no weights."""

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args) -> None:
        if any(name.startswith(prefix) for name in state_dict):
            raise ValueError(f"{prefix[:-1]} is packed, and takes no weights: load them before pack_weights.")


class PackedLinear(PackedLayer):
    """A linear layer, `(..., in_features)` to `(..., out_features)`, for inference on a CPU.

    Args:
        product: what it computes.
        dtype: the type of its output.
    """

    def __init__(self, product: Product, in_features: int, out_features: int, dtype: torch.dtype):
        super().__init__()
        self.product, self.dtype = product, dtype
        self.in_features, self.out_features = in_features, out_features
        self.register()
        self.eval()

    def register(self) -> None:
        self.number = next(NUMBERS)
        PRODUCTS[self.number] = self.product

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training or (inputs.requires_grad and torch.is_grad_enabled()):
            raise RuntimeError(
                "A packed model is for inference, without gradients: train the model first, and pack it then."
            )
        height = inputs.numel() // self.in_features
        copies = self.product.copies(height)
        if copies == 1:
            return self.multiply(inputs)
        repeated = torch.cat((inputs.reshape(height, -1),) * copies)
        return self.multiply(repeated)[:height].view(*inputs.shape[:-1], -1)

    def multiply(self, inputs: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            return torch.ops.tfm_zoo.product(inputs, self.number, self.out_features, self.dtype)
        return self.product(inputs, self.dtype).to(self.dtype)

    def __setstate__(self, state: dict) -> None:  # a copy has a product, and so a number, of its own
        super().__setstate__(state)
        self.register()

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        tensors = layer_tensors(*self.product.unpacked())
        destination.update({prefix + name: tensor for name, tensor in tensors.items()})

    def extra_repr(self) -> str:
        kind, (act, _) = type(self.product).__name__, getattr(self.product, "activation", ("none", ""))
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, product={kind}, dtype={self.dtype}" + (f", activation={act}" if act != "none" else "")


def is_packed(model: nn.Module) -> bool:
    return any(isinstance(module, PackedLinear) for module in model.modules())


def refuse_conversion(model: PreTrainedModel, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Raises a `ValueError` if a function would give a packed model's tensors another type or device."""
    tensor = torch.empty(0, dtype=model.dtype)
    changed = change(tensor)
    (before, here), (after, there) = (
        (str(each.dtype).removeprefix("torch."), each.device.type) for each in (tensor, changed)
    )
    if (before, here) != (after, there):
        raise ValueError(
            f"This {type(model).__name__} is packed, for {before} on {here}: change it to {after} on "
            f"{there} before pack_weights."
        )


def refuse_resizing(
    model: PreTrainedModel, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, *_, **__
) -> None:
    """Raises a `ValueError` if a projection to the vocabulary, which is packed, would get another size."""
    if (new_num_tokens or pad_to_multiple_of) and isinstance(model.get_output_embeddings(), PackedLinear):
        raise ValueError(
            f"This {type(model).__name__} is packed, and so is its vocabulary: resize it before pack_weights."
        )


class JoinedLinear(PackedLinear):
    """Several layers that are called one after another with the same input, computed as one when the first is called.

    Args:
        sizes: the `out_features` of each; `parts` are the layers to call.
    """

    def __init__(self, product: Product, in_features: int, sizes: list[int], dtype: torch.dtype):
        super().__init__(product, in_features, sum(sizes), dtype)
        self.sizes = sizes
        # What was computed last: the input, and outputs by index. (A list, since a module sets its attributes slowly.)
        self.computed: list = [None, {}]

    def parts(self) -> list["LinearPart"]:
        return [LinearPart(self, index, size) for index, size in enumerate(self.sizes)]

    def part_tensors(self, index: int) -> dict[str, torch.Tensor]:
        """The tensors of layer `index`, by name."""
        weight, bias = self.product.unpacked()
        ends = list(accumulate(self.sizes, initial=0))
        place = ends[index], ends[index + 1]
        return layer_tensors(rows(weight, *place), None if bias is None else rows(bias, *place))

    def _save_to_state_dict(self, *args) -> None:
        """Nothing: each layer saves its own tensors."""

    def part(self, index: int, inputs: torch.Tensor) -> torch.Tensor:
        """The output of layer `index`."""
        known, outputs = self.computed  # read once: another thread may replace it
        if known is not inputs or index not in outputs:
            outputs = dict(enumerate(self(inputs).split_with_sizes(self.sizes, dim=-1)))
            self.computed[:] = inputs, outputs
        output = outputs.pop(index)
        if not outputs:
            self.computed[:] = None, {}
        return output


class LinearPart(PackedLayer):
    """One of the layers of a [`JoinedLinear`]."""

    def __init__(self, joined: JoinedLinear, index: int, out_features: int):
        super().__init__()
        self.joined, self.index = joined, index
        self.in_features, self.out_features = joined.in_features, out_features

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.joined.part(self.index, inputs)

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        tensors = self.joined.part_tensors(self.index)
        destination.update({prefix + name: tensor for name, tensor in tensors.items()})

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, index={self.index}"
