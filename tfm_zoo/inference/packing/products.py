"""`x @ weight.T + bias` with a weight that is laid out for the kernels of this machine: a class for each kernel.

The kernels were chosen by the time that all products of a GPT-2 (124M) take on two cores with AVX-512 and VNNI. For any
number of rows, up to thousands, `F.linear` was slower than every kernel but the four-bit one. Milliseconds:

    rows                              1      4      8     32
    F.linear, float32                47    200     62    102
    OneDNNProduct, float32           18     15     19     43
    OneDNNProduct, bfloat16         9.5    8.6     11     23
    Int8Product                     4.9    5.3    6.4   15.5
    Int4Product                     3.9    6.5   12.5     48

With AVX2 alone, oneDNN is faster, too. Shares of the time of `F.linear` that `OneDNNProduct` takes for float32, on two
threads, where each weight is read from memory (on one thread, a single row takes up to 1.6 times as long):

    rows                              1      4      8     32    512
    768 inputs, 3,072 outputs      0.78   0.66   0.64   0.69   0.78
    3,072 inputs, 768 outputs      0.97   0.92   0.78   0.88   0.97
    576 inputs, 49,152 outputs     0.52   0.31   0.35   0.42   0.67

With AMX, milliseconds of all feed-forwards of the same GPT-2 in float32: a single row is read faster by `F.linear`, so
that decoders keep it. (Eight are read slower, but for a weight that lies by inputs, as [`PlainProduct`] has it.)

    rows                              1      4      8     32    128
    F.linear                        7.7     15     21     28     66
    OneDNNProduct                    10     12     14     26     62

With hundreds of rows, as encoders have, oneDNN multiplies integers as fast as FBGEMM, and can write bfloat16. With few
it is slower, and neither reads the other's weights: where there is no bfloat16, FBGEMM computes any number of rows. The
four products of a MiniLM layer in the same way, with AVX2:

    rows                              8     24     64    256   1024   4096
    Int8Product                    0.51   0.48   0.53   0.58   0.64   0.72
    ManyRowsInt8Product            0.81   0.63   0.61   0.56   0.65   0.68
"""

import math
import warnings
from functools import cache

import torch
from torch.nn import functional as F

from .roundings import TOP, Rounding
from .weights import GROUP, AnyWeight, CalibratedWeight, Int4Weight, Int8Weight, KeptWeight

# Flags of the processor decide about speed alone: what a kernel computes is tried.
HAS_AMX = getattr(torch.cpu, "_is_amx_tile_supported", bool)()
HAS_AVX2_ALONE = torch.backends.cpu.get_cpu_capability() == "AVX2"
MAY_HAVE_BFLOAT16 = getattr(torch.cpu, "_is_avx512_bf16_supported", bool)()
TINY = torch.finfo(torch.float).tiny
HAS_INT4 = hasattr(torch.ops.aten, "_weight_int4pack_mm_for_cpu")


class Product:
    """`(..., in_features)` to `(..., out_features)`, for inference.

    A copy or a pickle is made from `unpacked()`, since packed tensors have no storage that torch could copy.
    """

    def __call__(self, inputs: torch.Tensor, dtype: torch.dtype = torch.float) -> torch.Tensor:
        """The product. `dtype`: the type that is wanted; a kernel that cannot write it writes another."""
        raise NotImplementedError

    def copies(self, rows: int) -> int:
        """How often this many rows should be repeated, so that the kernel is faster."""
        return 1

    def unpacked(self) -> tuple:
        """What the product was made of: a weight, and a bias or `None`."""
        raise NotImplementedError

    def __reduce__(self):
        return type(self), self.unpacked()


class PlainProduct(Product):
    """For machines without a faster kernel: the weight stays small in memory, and each call dequantises it.

    Args:
        weight: a tensor, an [`Int8Weight`] or an [`Int4Weight`].
        bias: `(out_features,)`.
    """

    def __init__(self, weight: torch.Tensor | Int8Weight | Int4Weight, bias: torch.Tensor | None):
        # MKL reads a plain weight faster by inputs, as the official GPT-2 keeps it.
        self.weight = weight.t().contiguous().t() if isinstance(weight, torch.Tensor) else weight
        self.bias = bias

    def __call__(self, inputs: torch.Tensor, dtype: torch.dtype = torch.float) -> torch.Tensor:
        weight = self.weight if isinstance(self.weight, torch.Tensor) else self.weight.real()
        return F.linear(inputs, weight.to(inputs.dtype), None if self.bias is None else self.bias.to(inputs.dtype))

    def unpacked(self) -> tuple:
        return self.weight.contiguous() if isinstance(self.weight, torch.Tensor) else self.weight, self.bias


class OneDNNProduct(Product):
    """A weight of float32 or bfloat16 in oneDNN's layout, with inputs and outputs of the same type.

    Args:
        activation: what the kernel does to each number before it writes it: oneDNN's names of a function, and of a way
            to compute it.
    """

    #: With fewer rows the kernel for AVX-512 took a sixth to a third longer, so rows are repeated. (Not on a CPU that
    #: has AMX too, where each row adds to the time.)
    FEWEST = 1 if HAS_AVX2_ALONE or HAS_AMX else 4

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, activation: tuple[str, str] = ("none", "")):
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
        self.bias, self.activation = bias, activation
        # In bfloat16, the kernel is as fast for a single row.
        self.few = range(2 if weight.dtype == torch.bfloat16 else 1, self.FEWEST)

    def __call__(self, inputs: torch.Tensor, dtype: torch.dtype = torch.float) -> torch.Tensor:
        function, way = self.activation
        inputs = inputs.to(self.packed.dtype)
        return torch.ops.mkldnn._linear_pointwise(inputs, self.packed, self.bias, function, [], way)

    def copies(self, rows: int) -> int:
        return -(-self.FEWEST // rows) if rows in self.few else 1

    def unpacked(self) -> tuple:
        return self.packed.to_dense(), self.bias

    def __reduce__(self):
        return type(self), (*self.unpacked(), self.activation)


class KeptProduct(OneDNNProduct):
    """A product of bfloat16 among those of eight bits, in float32 where the machine has no instructions for it."""

    def __init__(self, weight: KeptWeight, bias: torch.Tensor | None, activation: tuple[str, str] = ("none", "")):
        super().__init__(weight.values if has_bfloat16() else weight.real(), bias, activation)

    def unpacked(self) -> tuple:
        weight, bias = super().unpacked()
        return KeptWeight(weight.bfloat16()), bias


def heights_of(rows: torch.Tensor) -> torch.Tensor:
    """The largest number of each row without its sign, `(..., width)` to `(..., 1)`. (torch's norm takes up to thirty
    times as long.)"""
    return torch.maximum(rows.amax(-1, keepdim=True), -rows.amin(-1, keepdim=True))


class Int8Product(Product):
    """Products of integers (FBGEMM, QNNPACK): the input is rounded to eight bits, too, with a scale for each row.

    The kernel takes one scale for all rows: a large number in one row would cost the others precision, and a sequence's
    result would depend on its batch. So each row is divided by its largest number, and its outputs multiplied by it.

    Args:
        levels: how many the input has on each side of zero, by default as many as the kernel multiplies exactly.
    """

    def __init__(self, weight: Int8Weight, bias: torch.Tensor | None, levels: int | None = None):
        self.bias, self.levels = bias, levels_of(Int8Product) if levels is None else levels
        zeros = torch.zeros(len(weight.scales), dtype=torch.long)
        with warnings.catch_warnings():
            # Quantised tensors are deprecated. The kernel takes its weight in no other form.
            warnings.simplefilter("ignore")
            values = weight.values.contiguous()
            like = {"scales": weight.scales.double(), "zero_points": zeros, "axis": 0, "dtype": torch.qint8}
            tensor = torch._empty_per_channel_affine_quantized(values.shape, **like)
            # It shares the memory of the values: packing makes a copy anyway.
            tensor.set_(values.untyped_storage(), values.storage_offset(), values.shape, values.stride())
            self.packed = torch.ops.quantized.linear_prepack(tensor, None)

    def __call__(self, inputs: torch.Tensor, dtype: torch.dtype = torch.float) -> torch.Tensor:
        inputs, seven_bits = inputs.float(), self.levels < 127
        if inputs.numel() == inputs.shape[-1]:  # a single row
            outputs = torch.ops.quantized.linear_dynamic(inputs, self.packed, seven_bits)
        else:
            heights = inputs.abs().amax(-1, keepdim=True).clamp_(min=TINY)  # sooner for few rows than `heights_of`
            outputs = torch.ops.quantized.linear_dynamic(inputs / heights, self.packed, seven_bits).mul_(heights)
        return outputs if self.bias is None else outputs.add_(self.bias)

    def unpacked(self) -> tuple:
        weight = torch.ops.quantized.linear_unpack(self.packed)[0]
        return Int8Weight(weight.int_repr(), weight.q_per_channel_scales().float()), self.bias


class ManyRowsInt8Product(Product):
    """What [`Int8Product`] computes, by oneDNN, which can write bfloat16: half as much as float32, and faster to read.

    Scales of rows are those of [`Int8Product`], for the same reason. ([`CalibratedProduct`] spares two passes over the
    input and one over the output.)
    """

    def __init__(self, weight: Int8Weight, bias: torch.Tensor | None, levels: int | None = None):
        self.levels = levels_of(ManyRowsInt8Product) if levels is None else levels
        self.packed = torch.ops.onednn.qlinear_prepack(weight.values.contiguous(), None)
        self.scales, self.bias = weight.scales, bias
        self.zeros = torch.zeros(len(weight.scales), dtype=torch.long)
        silence_once()

    def __call__(self, inputs: torch.Tensor, dtype: torch.dtype = torch.float) -> torch.Tensor:
        dtype = dtype if dtype == torch.bfloat16 and has_bfloat16() else torch.float
        # In the type of the outputs, which are multiplied by exactly what the inputs are divided by.
        heights = heights_of(inputs).to(dtype).clamp_(min=TINY)
        scale, zero = 1 / self.levels, self.levels + 1
        levels = bytes_of(inputs.float() / heights, scale, zero)
        weight = (self.packed, self.scales, self.zeros)
        outputs = torch.ops.onednn.qlinear_pointwise(levels, scale, zero, *weight, None, 1.0, 0, dtype, "none", [], "")
        return outputs.mul_(heights) if self.bias is None else torch.addcmul(self.bias.to(dtype), outputs, heights)

    def unpacked(self) -> tuple:
        return Int8Weight(self.packed.to_dense().t().contiguous(), self.scales), self.bias


def silence_once() -> None:
    """Makes the first quantised tensor, the only one that torch warns of, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.quantize_per_tensor(torch.ones(1), 1, 0, torch.quint8)


def bytes_of(inputs: torch.Tensor, scale: float, zero: int) -> torch.Tensor:
    """Bytes that stand for inputs of float32."""
    levels = torch.quantize_per_tensor(inputs, scale, zero, torch.quint8)
    # In the same memory. (`int_repr` would copy it, slowly, and what `view` makes is freed too early.)
    return torch.empty(0, dtype=torch.uint8).set_(levels.untyped_storage(), 0, levels.shape, levels.stride())


class CalibratedProduct(Product):
    """Products of integers whose inputs become bytes by a rounding that was found beforehand: one pass, and two for
    scales of channels. It also reads bytes, and can write those that the next product reads.

    The kernel adds integers, exactly, and computes each number by itself: rows do not depend on others.

    Args:
        activation: as of [`OneDNNProduct`].
        out: the rounding of the bytes that are written where they are asked for (`dtype=torch.uint8`).
    """

    def __init__(
        self,
        weight: CalibratedWeight,
        bias: torch.Tensor | None,
        activation: tuple[str, str] = ("none", ""),
        out: Rounding | None = None,
    ):
        # Where sums of pairs would overflow, inputs have seven bits.
        self.top = TOP if levels_of(ManyRowsInt8Product) == 127 else TOP // 2
        self.weight, self.given_bias, self.activation, self.out = weight._replace(values=None), bias, activation, out
        self.packed = torch.ops.onednn.qlinear_prepack(weight.values.contiguous(), None)
        self.rounding = weight.rounding.within(self.top)
        self.inverse = 1 / self.rounding.scales
        self.scales = weight.scales * (TOP / self.top)
        # What the bytes that stand for 0 add to each output is taken off its bias.
        zeros = self.rounding.zeros.double().expand(weight.values.shape[1])
        added = torch.cat([part.double() @ zeros for part in weight.values.split(1024)]) * self.scales
        self.bias = ((0 if bias is None else bias) - added).float()
        self.zeros = torch.zeros(len(weight.scales), dtype=torch.long)
        silence_once()

    def __call__(self, inputs: torch.Tensor, dtype: torch.dtype = torch.float) -> torch.Tensor:
        levels = inputs if inputs.dtype == torch.uint8 else self.levels_of(inputs.float())
        scale, zero = 1.0, 0
        if dtype == torch.uint8:
            scale, zero = (each.item() for each in self.out.within(self.top))
        elif dtype != torch.bfloat16 or not has_bfloat16():
            dtype = torch.float
        (function, way), weight = self.activation, (self.packed, self.scales, self.zeros, self.bias)
        outputs = torch.ops.onednn.qlinear_pointwise(
            levels, 1.0, 0, *weight, scale, int(zero), dtype, function, [], way
        )
        return outputs.clamp_(max=self.top) if dtype == torch.uint8 and self.top < TOP else outputs

    @property
    def reads_one_scale(self) -> bool:
        return len(self.rounding.scales) == 1

    def levels_of(self, inputs: torch.Tensor) -> torch.Tensor:
        """The bytes of inputs of float32."""
        scales, zeros = self.rounding
        if len(scales) == 1:
            levels = bytes_of(inputs, scales.item(), int(zeros))
        else:
            levels = bytes_of(torch.addcmul(zeros, inputs, self.inverse), 1.0, 0)
        return levels if self.top == TOP else levels.clamp_(max=self.top)

    def unpacked(self) -> tuple:
        return self.weight._replace(values=self.packed.to_dense().t().contiguous()), self.given_bias

    def __reduce__(self):
        return type(self), (*self.unpacked(), self.activation, self.out)


class Int4Product(Product):
    """A weight of four bits, which the kernel dequantises; it reads inputs of bfloat16."""

    BLOCK = 64  # the largest number of outputs that a kernel takes at once
    PART = 4 * BLOCK  # outputs that are packed at once

    def __init__(self, weight: Int4Weight, bias: torch.Tensor | None):
        self.out_features, self.bias = len(weight.values), bias
        gap = -self.out_features % self.BLOCK
        values = F.pad(weight.values, (0, 0, 0, gap))
        self.packed = torch.empty_like(values)
        parts = zip(values.split(self.PART), self.packed.split(self.PART), strict=True)
        for part, packed in parts:  # the levels alone take eight times the memory
            levels = weight._replace(values=part).levels().int()
            packed.copy_(torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels, 1))
        scales = torch.stack((weight.scales, weight.offsets), dim=2).transpose(0, 1)
        self.scales = F.pad(scales, (0, 0, 0, gap)).contiguous()  # (groups, outputs, 2)

    def __call__(self, inputs: torch.Tensor, dtype: torch.dtype = torch.float) -> torch.Tensor:
        rows = inputs.reshape(-1, inputs.shape[-1]).bfloat16()
        outputs = torch.ops.aten._weight_int4pack_mm_for_cpu(rows, self.packed, GROUP, self.scales)
        outputs = outputs[:, : self.out_features].view(*inputs.shape[:-1], self.out_features)
        return outputs.float() if self.bias is None else outputs + self.bias  # in float32, as the bias is

    def unpacked(self) -> tuple:
        levels = unpack_levels(self.packed)[: self.out_features]
        scales, offsets = self.scales[:, : self.out_features].transpose(0, 1).unbind(dim=2)
        values = levels[:, ::2] | levels[:, 1::2] << 4
        return Int4Weight(values, scales.contiguous(), offsets.contiguous()), self.bias


def unpack_levels(packed: torch.Tensor) -> torch.Tensor:
    """The levels `(outputs, inputs)` that torch has packed in blocks of outputs.

    Where in a block it puts each depends on its instructions. It is found by packing the numbers of the places, four
    bits at a time.
    """
    sizes = Int4Product.BLOCK, 2 * packed.shape[1]
    places = torch.arange(math.prod(sizes), dtype=torch.int).view(sizes)
    found = torch.zeros(places.numel(), dtype=torch.int)
    for shift in range(0, places.numel().bit_length(), 4):
        part = torch.ops.aten._convert_weight_to_int4pack_for_cpu(places >> shift & 15, 1)
        found |= halves(part).int() << shift
    return halves(packed).view(-1, places.numel())[:, found.argsort()].view(-1, sizes[1])


def halves(packed: torch.Tensor) -> torch.Tensor:
    """The low and the high four bits of each byte, in one row."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten()


def product_of(weight: AnyWeight, bias: torch.Tensor | None, many_rows: bool = False) -> Product:
    """The product with this weight that is fastest on this machine.

    Args:
        weight: a tensor `(out_features, in_features)`, or one of the kinds in `weights.py`.
        bias: `(out_features,)`, float32.
        many_rows: whether inputs have hundreds of rows, as those of encoders have.
    """
    if isinstance(weight, CalibratedWeight):
        kernel = CalibratedProduct if levels_of(ManyRowsInt8Product) else PlainProduct
    elif isinstance(weight, KeptWeight):
        kernel = KeptProduct if has_onednn(torch.float32) else PlainProduct
    elif isinstance(weight, Int8Weight) and many_rows and has_bfloat16() and levels_of(ManyRowsInt8Product):
        kernel = ManyRowsInt8Product
    elif isinstance(weight, Int8Weight):
        kernel = Int8Product if levels_of(Int8Product) else PlainProduct
    elif isinstance(weight, Int4Weight):
        kernel = Int4Product if HAS_INT4 else PlainProduct
    elif weight.dtype == torch.float32 and HAS_AMX and not many_rows:
        kernel = PlainProduct
    else:
        kernel = OneDNNProduct if has_onednn(weight.dtype) else PlainProduct
    return kernel(weight, bias)


def has_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies numbers of this type here."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


@cache
def has_bfloat16() -> bool:
    """Whether oneDNN multiplies bfloat16 here by instructions made for it. (Without them it is slow.)

    Tried, since `ONEDNN_MAX_CPU_ISA` keeps it from instructions that the processor has. These take a number below
    2 ** -126 for zero; float32, in which oneDNN computes without them, has such numbers.
    """
    if not MAY_HAVE_BFLOAT16 or not has_onednn(torch.bfloat16):
        return False
    large, small = (torch.full((32, 64), number, dtype=torch.bfloat16) for number in (2.0**20, 2.0**-130))
    return not OneDNNProduct(large, None)(small).any()


def levels_of(kernel: type[Int8Product] | type[ManyRowsInt8Product]) -> int:
    """How many levels on each side of zero an input may have, for a kernel to multiply it exactly: 127, 63, or 0 where
    the kernel does not run."""
    return try_levels(kernel, torch.backends.quantized.engine)


@cache
def try_levels(kernel: type[Int8Product] | type[ManyRowsInt8Product], engine: str | None) -> int:
    """Tries a product whose sums are as large as they can be. Instructions before VNNI add pairs of products in sixteen
    bits, which overflow unless the input has only seven bits.

    The processor's flags do not tell. `ONEDNN_MAX_CPU_ISA`, `FBGEMM_ENABLE_INSTRUCTIONS` and torch's engine for
    quantised tensors choose the instructions, too.
    """
    values = torch.full((32, 64), 127, dtype=torch.int8)
    values[::2] *= -1
    weight, inputs = Int8Weight(values, torch.ones(32)), torch.ones(8, 64)
    wanted = inputs @ weight.real().t()
    try:
        exact = (levels for levels in (127, 63) if kernel(weight, None, levels)(inputs).allclose(wanted, rtol=0.01))
        return next(exact, 0)
    except (AttributeError, RuntimeError):  # this torch lacks the operator, or an engine
        return 0
