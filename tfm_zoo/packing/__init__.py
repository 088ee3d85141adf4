"""Weights in the form that a CPU multiplies fastest: for inference, in place, for any model.

A linear layer is replaced by a [`PackedLinear`], which holds its weight as a [`Product`] in one of four formats.
"""

from .. import plugin  # noqa: F401
from .configuration import TfmQuantizationConfig
from .packing import pack_weights, quantize_int8
from .quantizer import TfmQuantizer

__all__ = ["TfmQuantizationConfig", "TfmQuantizer", "pack_weights", "quantize_int8"]
