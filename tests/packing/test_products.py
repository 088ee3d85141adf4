"""A product with packed weights: near the product with real ones, for any number of rows, and a copy of it is equal."""

import copy
import pickle

import pytest
import torch
from torch import nn

from tfm_zoo.inference.packing import products
from tfm_zoo.inference.packing.packing import WEIGHTS
from tfm_zoo.inference.packing.products import ManyRowsInt8Product, OneDNNProduct, PlainProduct, product_of
from tfm_zoo.inference.packing.weights import Int4Weight, Int8Weight

#: relative distance to the product with real numbers, by which weights and inputs are rounded
BOUNDS = {"float32": 0, "bfloat16": 0.005, "int8": 0.02, "int4": 0.12}
ROWS = [(1,), (3,), (2, 5), (0,), (130,)]


def case(dtype: str, bias: bool = True):
    """A weight in this type, a bias, and the layer that they came from."""
    torch.manual_seed(0)
    linear = nn.Linear(64, 97, bias=bias).requires_grad_(False)
    return WEIGHTS[dtype](linear.weight), linear.bias, linear


def kernels(dtype: str, weight, bias: torch.Tensor | None) -> list[products.Product]:
    """What machines of any kind choose for this type, as far as it runs here."""
    other = {"int8": ManyRowsInt8Product, "float32": OneDNNProduct}.get(dtype, PlainProduct)
    return [product_of(weight, bias), other(weight, bias), PlainProduct(weight, bias)]


def assert_near(made: torch.Tensor, inputs: torch.Tensor, linear: nn.Linear, bound: float) -> None:
    """Within a bound of the product in double precision, or as near as torch's in float32."""
    wanted = copy.deepcopy(linear).double()(inputs.double())
    assert made.shape == wanted.shape
    rounded = 1.5 * (linear(inputs) - wanted).norm() + torch.finfo(torch.float).eps * wanted.norm()
    assert (made - wanted).norm() <= max(bound * wanted.norm(), rounded)


#: weights that every type holds exactly
EXACT = {
    "float32": lambda: torch.randint(-8, 9, (97, 64)).float(),
    "bfloat16": lambda: torch.randint(-8, 9, (97, 64)).bfloat16(),
    "int8": lambda: Int8Weight(torch.randint(-127, 128, (97, 64)).to(torch.int8), 2.0 ** torch.randint(-3, 3, (97,))),
    "int4": lambda: Int4Weight(
        torch.randint(256, (97, 32)).to(torch.uint8),
        2.0 ** torch.randint(3, (97, 2)).bfloat16(),
        torch.randint(-4, 5, (97, 2)).bfloat16(),
    ),
}


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("bias", [True, False])
def test_exact(dtype, bias, monkeypatch):
    """Of integers, products are exact in every type, by whatever instructions: only what is written is rounded."""
    torch.manual_seed(0)
    weight, offset = EXACT[dtype](), torch.randint(-9, 10, (97,)).float() if bias else None
    real = (weight if isinstance(weight, torch.Tensor) else weight.real()).double()
    made = kernels(dtype, weight, offset)
    for engine in torch.backends.quantized.supported_engines if dtype == "int8" else ():
        monkeypatch.setattr(torch.backends.quantized, "engine", engine)
        made.append(product_of(weight, offset))
    for product in made:
        levels = getattr(product, "levels", 7)
        # FBGEMM's levels begin one further below zero than they end above it.
        lowest = -levels if isinstance(product, ManyRowsInt8Product) else -levels - 1
        for rows in ROWS:
            inputs = torch.randint(lowest, levels + 1, (*rows, 64)).float()
            inputs[..., :2] = torch.tensor([lowest, levels])  # of each row, what its scale follows from
            inputs /= -lowest if dtype == "int8" else 1
            wanted = inputs.double() @ real.t() + (0 if offset is None else offset)
            written = torch.float if dtype in ("float32", "int8") else torch.bfloat16
            one_place = torch.finfo(written).eps * max(wanted.abs().flatten().tolist(), default=0)
            assert ((product(inputs) - wanted).abs() <= one_place).all(), (product, rows)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", BOUNDS)
def test_near_the_real_product(dtype, bias):
    """What was packed comes back bit by bit, and so copies and pickles are equal."""
    (weight, offset, linear), inputs = case(dtype, bias), torch.randn(2, 5, 64)
    tensors = (weight,) if isinstance(weight, torch.Tensor) else weight
    for kernel in kernels(dtype, weight, offset):
        assert_near(kernel(inputs), inputs, linear, BOUNDS[dtype])
        back, bias_back = kernel.unpacked()
        back = (back,) if isinstance(back, torch.Tensor) else back
        assert all(one.equal(other) and one.dtype == other.dtype for one, other in zip(tensors, back, strict=True))
        assert bias_back.equal(offset) if bias else bias_back is None
        for twin in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
            assert twin(inputs).equal(kernel(inputs))
    # Machines of today have kernels for all types, but some have none for bfloat16, and with AMX the one for float32
    # is for many rows.
    for many_rows, has_float32 in ((True, True), (False, not products.HAS_AMX)):
        has_kernel = {"bfloat16": products.has_onednn(torch.bfloat16), "float32": has_float32}.get(dtype, True)
        assert (type(product_of(weight, offset, many_rows)) is not PlainProduct) == has_kernel


@pytest.mark.parametrize("kind", [Int8Weight, Int4Weight])
def test_rounding(kind):
    """No number moves by more than half a step or, where lines are fitted, a step; zeros stay zeros."""
    torch.manual_seed(0)
    weight = torch.randn(1100, 64)
    weight[0], weight[1] = 0, 3
    rounded = kind.of(weight)
    steps = rounded.scales[:, None] if kind is Int8Weight else rounded.scales.float().repeat_interleave(32, dim=1)
    farthest = 0.51 if kind is Int8Weight else 1.3
    assert ((rounded.real() - weight).abs() <= farthest * steps + 1e-2 * (weight == 3)).all()
    assert rounded.real()[0].abs().max() < 1e-6


@pytest.mark.parametrize("dtype", BOUNDS)
def test_rows_do_not_depend_on_each_other(dtype):
    """Beside a row of large numbers, a row's product is as exact as alone; so is that of a row of zeros."""
    weight, bias, linear = case(dtype)
    inputs = torch.randn(3, 64)
    inputs[1] *= 1000
    inputs[2] = 0
    for product in kernels(dtype, weight, bias):
        for made, row in zip(product(inputs), inputs, strict=True):
            assert_near(made, row, linear, 1.2 * BOUNDS[dtype])


@pytest.mark.parametrize("overflows, levels", [((), 127), ((127,), 63), ((127, 63), 0), (None, 0)])
def test_levels_are_tried(overflows, levels):
    """Eight bits where a kernel multiplies them exactly, seven where it does not, and another kernel without either."""

    def kernel(weight, bias, levels):
        if overflows is None:
            raise RuntimeError("Didn't find engine for operation quantized::linear_prepack NoQEngine")
        share = 0.51 if levels in overflows else 1.0001  # sums of pairs stop at half of what they would be
        return lambda inputs: share * (inputs @ weight.real().t())

    assert products.try_levels(kernel, "of this test") == levels
