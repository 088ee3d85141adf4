"""Encoders in OpenVINO: converted, or quantised after training by nncf, which reads a few batches to find scales."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from .tasks import EMBED, pooled


def load(
    precision: str, model: PreTrainedModel, kind: str, batches: list[dict], folder: Path
) -> Callable[[dict], np.ndarray]:
    import openvino

    path = folder / f"openvino-{'int8' if precision == 'int8' else 'float'}.xml"
    if not path.exists():
        converted = openvino.convert_model(model, example_input=dict(batches[0]))
        if precision == "int8":
            import nncf

            rows = [
                {name: states[row : row + 1].numpy() for name, states in batch.items()}
                for batch in batches
                for row in range(len(batch["input_ids"]))
            ]
            options = {"model_type": nncf.ModelType.TRANSFORMER, "subset_size": 64}
            converted = nncf.quantize(converted, nncf.Dataset(rows), **options)
        openvino.save_model(converted, path, compress_to_fp16=False)
    options = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "PERFORMANCE_HINT": "LATENCY"}
    if precision == "f32":
        options["INFERENCE_PRECISION_HINT"] = "f32"
    compiled = openvino.Core().compile_model(path, "CPU", options)

    def run(batch: dict) -> np.ndarray:
        outputs = torch.from_numpy(compiled({name: states.numpy() for name, states in batch.items()})[0])
        return pooled(outputs, batch["attention_mask"]) if kind == EMBED else outputs.numpy()

    return run
