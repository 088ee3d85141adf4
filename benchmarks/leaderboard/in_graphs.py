"""Encoders as graphs. ONNX Runtime with the optimiser of its package, in float32 or with products of dynamic int8;
OpenVINO converted, or quantised after training by nncf, which reads some batches to find scales."""

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import PreTrainedModel

from .tasks import EMBED, Given, Runner, calibration, pooled


def runner(kind: str, compute: Callable[[dict], list]) -> Runner:
    """`compute` takes arrays by name, and gives arrays, the states or the logits first."""

    def run(batch: dict):
        outputs = torch.from_numpy(compute({name: states.numpy() for name, states in batch.items()})[0])
        return pooled(outputs, batch["attention_mask"]) if kind == EMBED else outputs.numpy()

    return run


def onnx(dtype: str, given: Given) -> Runner:
    import onnxruntime

    path = given.folder / "float32.onnx"
    if not path.exists():
        export(given.model, given.batches[0], path)
    if dtype == "int8":
        from onnxruntime.quantization import QuantType, quantize_dynamic

        plain, path = path, given.folder / "int8.onnx"
        if not path.exists():
            quantize_dynamic(plain, path, weight_type=QuantType.QInt8, per_channel=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return runner(given.kind, lambda inputs: session.run(None, inputs))


def export(model: PreTrainedModel, batch: dict, path: Path) -> None:
    """Writes the graph, in which the optimiser has fused attention, norms and activations where it knows them."""
    from onnxruntime.transformers.optimizer import optimize_model

    batch = {name: states[:2] for name, states in batch.items()}
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    options = {"dynamo": True, "dynamic_shapes": dict.fromkeys(batch, axes), "external_data": False}
    model.config.return_dict = False
    torch.onnx.export(model, kwargs=batch, f=str(path), **options)
    sizes = {"num_heads": model.config.num_attention_heads, "hidden_size": model.config.hidden_size}
    optimize_model(str(path), model_type="bert", **sizes).save_model_to_file(str(path))


def openvino(dtype: str, given: Given) -> Runner:
    import openvino

    path = given.folder / f"openvino-{'int8' if dtype == 'int8' else 'float'}.xml"
    if not path.exists():
        converted = openvino.convert_model(given.model, example_input=dict(given.batches[0]))
        openvino.save_model(quantised(converted, given) if dtype == "int8" else converted, path, compress_to_fp16=False)
    options = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "PERFORMANCE_HINT": "LATENCY"}
    options |= {"INFERENCE_PRECISION_HINT": "f32"} if dtype == "float32" else {}
    return runner(given.kind, openvino.Core().compile_model(path, "CPU", options))


def quantised(graph, given: Given):
    """A graph of OpenVINO with products of eight bits."""
    import nncf

    rows = [
        {name: states[row : row + 1].numpy() for name, states in batch.items()}
        for batch in calibration(given.batches)
        for row in range(len(batch["input_ids"]))
    ]
    options = {"model_type": nncf.ModelType.TRANSFORMER, "subset_size": len(rows)}
    return nncf.quantize(graph, nncf.Dataset(rows), **options)
