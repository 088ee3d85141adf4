"""Writes a model's ONNX files."""

import copy
from pathlib import Path

import onnx_ir
import torch
from transformers import PreTrainedModel

from ...converters import ConversionError
from ...utils.locking import atomic_files
from ...utils.quiet import silenced_export
from ..packing.linear import is_packed
from .check import check
from .graphs import Graph
from .parts import parts_of

OPSET = 20  # of ONNX's operators: ONNX Runtime 1.17 and later know it
LARGEST_FILE = 2**31 - 2**24  # bytes of weights that one file may hold; more are written beside it


@torch.no_grad()
def export_onnx(model: PreTrainedModel, folder: str | Path) -> float:
    """Writes a model's ONNX files, for batches and lengths of any size, and compares them with the model.

    Args:
        model: a zoo model in evaluation mode, on a CPU; the files are in float32, whatever its precision.
        folder: a folder, by convention `onnx` beside the model's configuration and tokenizer. The model is written to
            `model.onnx`; an encoder-decoder that generates, to `encoder_model.onnx`, `decoder_model.onnx` and
            `decoder_with_past_model.onnx`. Weights of more than 2 GB are in a file beside, `model.onnx_data`. An error
            leaves nothing in it.

    Returns:
        The largest difference between an output of ONNX Runtime and the model's, at real tokens.

    Raises:
        ValueError: for a model in training mode or not on a CPU.
        ConversionError: for a packed model or one that ONNX cannot express, and for files that compute something else.
    """
    if model.training or model.device.type != "cpu":
        state = "in training mode" if model.training else f"on {model.device}"
        raise ValueError(f"export_onnx takes a model in evaluation mode (model.eval()) on a CPU; this one is {state}.")
    if is_packed(model):
        raise ConversionError(f"This {type(model).__name__} is packed: export the model that it was made from.")
    if model.dtype != torch.float32:
        model = copy.deepcopy(model).float()
    parts, folder = parts_of(model), Path(folder)
    with atomic_files(folder) as new:
        files = [write(graph, new / name) for name, graph in parts.graphs().items()]
        return check(parts, files)


def write(graph: Graph, file: Path) -> Path:
    """Writes and returns a file; raises a `ConversionError` for what torch's exporter does not know."""
    examples, axes = graph.examples, graph.axes()
    try:
        with silenced_export():
            program = torch.onnx.export(
                graph.eval(),
                tuple(examples.values()),
                input_names=list(examples),
                output_names=list(graph.compute(**examples)),
                dynamic_shapes=(tuple(axes.values()),),
                opset_version=OPSET,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise ConversionError(f"{type(graph.model).__name__} cannot be written as ONNX: {reason}") from error
    bytes_of_weights = sum(parameter.nbytes for parameter in graph.parameters())
    onnx_ir.save(program.model, file, external_data=f"{file.name}_data" if bytes_of_weights > LARGEST_FILE else None)
    return file
