"""Compares ONNX files, run by ONNX Runtime, with the model that they were made from."""

from collections.abc import Iterable
from pathlib import Path

import onnxruntime
import torch

from ...converters import ConversionError
from ...converters.token_positions import positions_of
from .inputs import random_inputs
from .parts import Tensors, WholeModel

SIZES = ((1, 2), (3, 10))  # sequences and tokens, neither of them those that the files were exported with
TOLERANCE, RELATIVE_TOLERANCE = 1e-4, 1e-5  # the second times the largest value, where that is more


class OnnxFile:
    """What a file computes."""

    def __init__(self, file: Path):
        self.session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        self.outputs = [output.name for output in self.session.get_outputs()]

    def __call__(self, inputs: Tensors) -> Tensors:
        """Inputs by name to outputs by name."""
        values = self.session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
        return dict(zip(self.outputs, map(torch.from_numpy, values), strict=True))


def check(parts: WholeModel, files: Iterable[Path]) -> float:
    """Compares a model's files with it, at sizes other than those that they were exported with.

    Returns:
        The largest difference.

    Raises:
        ConversionError: if it is too large.
    """
    opened, largest = {file.name: OnnxFile(file) for file in files}, 0.0
    longest = positions_of(parts.model.config) or max(length for _, length in SIZES)
    for rows, length in SIZES:
        inputs = random_inputs(parts.model, rows, min(length, longest))
        wanted = parts.model(**inputs, return_dict=True)
        for name, values in parts.run(opened, inputs).items():
            expected = at_real_tokens(wanted[name], inputs["attention_mask"])
            difference = (at_real_tokens(values, inputs["attention_mask"]) - expected).abs().max().item()
            if not difference <= max(TOLERANCE, RELATIVE_TOLERANCE * expected.abs().max().item()):
                shape = f"{rows} sequences of {length} tokens"
                raise ConversionError(f"The {name} of ONNX Runtime for {shape} differ by {difference:.1e}.")
            largest = max(largest, difference)
    return largest


def at_real_tokens(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The values at real tokens, if there are values for each token."""
    return values[mask.bool()] if values.shape[: mask.dim()] == mask.shape else values
