"""Weights in the form that a CPU multiplies fastest: for inference, in place, for any model.

A linear layer is replaced by a [`PackedLinear`], which holds its weight as a [`Product`] in one of four formats.
"""

from .packing import pack_weights, quantize_int8

__all__ = ["pack_weights", "quantize_int8"]
