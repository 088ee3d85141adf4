"""Encoders in ONNX Runtime, with the optimiser of its package: in float32, or with products of dynamic int8."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from .tasks import EMBED, pooled


def load(
    quantized: bool, model: PreTrainedModel, kind: str, batches: list[dict], folder: Path
) -> Callable[[dict], np.ndarray]:
    import onnxruntime

    path = folder / "float32.onnx"
    if not path.exists():
        export(model, batches[0], path)
    if quantized:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        plain, path = path, folder / "int8.onnx"
        if not path.exists():
            quantize_dynamic(plain, path, weight_type=QuantType.QInt8, per_channel=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(batch: dict) -> np.ndarray:
        outputs = torch.from_numpy(session.run(None, {name: states.numpy() for name, states in batch.items()})[0])
        return pooled(outputs, batch["attention_mask"]) if kind == EMBED else outputs.numpy()

    return run


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
