"""A product with packed weights: near the product with real ones, for any number of rows, and a copy of it is equal."""

import copy
import pickle

import pytest
import torch
from torch import nn

from tfm_zoo.packing import products
from tfm_zoo.packing.packing import WEIGHTS
from tfm_zoo.packing.products import ManyRowsInt8Product, OneDNNProduct, PlainProduct, product_of
from tfm_zoo.packing.weights import Int4Weight, Int8Weight

#: relative distance to the product with real numbers
BOUNDS = {"float32": 1e-6, "bfloat16": 0.005, "int8": 0.02, "int4": 0.12}
ROWS = [(1,), (3,), (2, 5), (0,), (130,)]


def case(dtype: str, bias: bool = True):
    """A weight in this type, a bias, and the layer that they came from."""
    torch.manual_seed(0)
    linear = nn.Linear(64, 97, bias=bias).requires_grad_(False)
    return WEIGHTS[dtype](linear.weight), linear.bias, linear


def kernels(dtype: str, weight, bias: torch.Tensor | None) -> list[products.Product]:
    """What machines of any kind choose for this type, as far as it runs here."""
    others = {"int8": (ManyRowsInt8Product,), "float32": (OneDNNProduct,)}
    return [product_of(weight, bias), *(kernel(weight, bias) for kernel in others.get(dtype, ()))]


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("bias", [True, False])
def test_near_the_real_product(dtype, bias):
    weight, offset, linear = case(dtype, bias)
    for product in (*kernels(dtype, weight, offset), PlainProduct(weight, offset)):
        for rows in ROWS:
            inputs = torch.randn(*rows, 64)
            made, wanted = product(inputs), linear(inputs)
            assert made.shape == wanted.shape
            assert (made - wanted).norm() <= BOUNDS[dtype] * wanted.norm()
    # Machines of today have kernels for all types, but some have none for bfloat16, and with AMX the one for float32
    # is for many rows.
    for many_rows, has_float32 in ((True, True), (False, not products.HAS_AMX)):
        has_kernel = {"bfloat16": products.has_onednn(torch.bfloat16), "float32": has_float32}.get(dtype, True)
        assert (type(product_of(weight, offset, many_rows)) is not PlainProduct) == has_kernel


@pytest.mark.parametrize("dtype", BOUNDS)
def test_unpacked(dtype):
    """What was packed comes back bit by bit, and so copies and pickles are equal."""
    weight, bias, _ = case(dtype)
    inputs = torch.randn(3, 64)
    tensors = (weight,) if isinstance(weight, torch.Tensor) else weight
    for product in kernels(dtype, weight, bias):
        back, bias_back = product.unpacked()
        back = (back,) if isinstance(back, torch.Tensor) else back
        assert all(one.equal(other) and one.dtype == other.dtype for one, other in zip(tensors, back, strict=True))
        assert bias_back.equal(bias)
        for twin in (copy.deepcopy(product), pickle.loads(pickle.dumps(product))):
            assert twin(inputs).equal(product(inputs))


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


def test_fitted_lines():
    """The error is smaller than that of levels from the lowest to the highest number."""
    torch.manual_seed(0)
    weight = torch.randn(50, 64)
    groups = weight.unflatten(1, (-1, 32))
    low, step = groups.amin(dim=2, keepdim=True), (groups.amax(dim=2) - groups.amin(dim=2))[..., None] / 15
    plain = (((groups - low) / step).round() * step + low).flatten(1)
    fitted = Int4Weight.of(weight).real()
    assert (fitted - weight).square().mean() < 0.9 * (plain - weight).square().mean()


@pytest.mark.parametrize("dtype", BOUNDS)
def test_rows_do_not_depend_on_each_other(dtype):
    """Beside a row of large numbers, a row's product is as exact as alone; so is that of a row of zeros."""
    weight, bias, linear = case(dtype)
    inputs = torch.randn(3, 64)
    inputs[1] *= 1000
    inputs[2] = 0
    wanted = linear(inputs)
    for product in kernels(dtype, weight, bias):
        for one, other in zip(product(inputs), wanted, strict=True):
            assert (one - other).norm() <= 1.2 * BOUNDS[dtype] * other.norm()


@pytest.mark.parametrize("bias", [True, False])
def test_eight_bits_written_as_bfloat16(monkeypatch, bias):
    """Where the machine has bfloat16, an encoder's products write it, as exactly as it can be written."""
    monkeypatch.setattr(products, "HAS_BFLOAT16", True)
    weight, offset, linear = case("int8", bias)
    product, inputs = ManyRowsInt8Product(weight, offset), torch.randn(7, 64)
    for given in (inputs, inputs.bfloat16()):
        made = product(given, torch.bfloat16)
        assert made.dtype == torch.bfloat16 and product(given).dtype == torch.float32
        assert (made - linear(inputs)).norm() <= 0.02 * linear(inputs).norm()
