"""Weights in the form that a CPU multiplies fastest: for inference, in place, for any model.

A linear layer is replaced by a [`PackedLinear`] (`linear.py`). It holds its weight as a [`Product`] in one of four
formats: `weights.py` rounds it, `products.py` lays it out for the processor, `packing.py` replaces the layers.
"""

import transformers  # noqa: F401, with which the zoo is plugged in: before the files here, so that no file is half imported

from .configuration import TfmQuantizationConfig
from .packing import pack_weights, quantize_int8
from .quantizer import TfmQuantizer

__all__ = ["TfmQuantizationConfig", "TfmQuantizer", "pack_weights", "quantize_int8"]
