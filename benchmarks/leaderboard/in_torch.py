"""Models in torch: official classes, the zoo's, and official ones quantised by torchao."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

import tfm_zoo

from .tasks import CLASSIFY, EMBED, TRANSLATE, pooled


def official(
    model: PreTrainedModel, kind: str, batches: list[dict], folder: Path, dtype: torch.dtype = torch.float32
) -> Callable[[dict], np.ndarray]:
    return runner(model.to(dtype), kind)


def zoo(
    dtype: str | None,
    compile: bool,
    model: PreTrainedModel,
    kind: str,
    batches: list[dict],
    folder: Path,
    model_dtype: torch.dtype = torch.float32,
) -> Callable[[dict], np.ndarray]:
    model = tfm_zoo.from_official(model.to(model_dtype)).eval()
    if dtype:
        tfm_zoo.pack_weights(model, None if dtype == "chosen" else dtype, compile=compile)
    return runner(model, kind)


def torchao(
    dtype: str, model: PreTrainedModel, kind: str, batches: list[dict], folder: Path
) -> Callable[[dict], np.ndarray]:
    from torchao.quantization import Int4WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig, quantize_

    if dtype == "int8":
        quantize_(model, Int8DynamicActivationInt8WeightConfig())
        model.compile(dynamic=True)
    else:
        quantize_(model.bfloat16(), Int4WeightOnlyConfig(group_size=32, int4_packing_format="opaque"))
    return runner(model, kind)


def runner(model: PreTrainedModel, kind: str) -> Callable[[dict], np.ndarray]:
    """A function from a batch to what this kind of task gives (see `tasks.py`)."""

    @torch.inference_mode()
    def run(batch: dict) -> np.ndarray:
        inputs = {name: states for name, states in batch.items() if isinstance(states, torch.Tensor)}
        if kind == EMBED:
            return pooled(model(**inputs).last_hidden_state, batch["attention_mask"])
        if kind == CLASSIFY:
            return model(**inputs).logits.float().numpy()
        if not batch["steps"]:
            return model(**inputs).logits.float().numpy()
        inputs["attention_mask"] = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
        steps = {"min_new_tokens": batch["steps"], "max_new_tokens": batch["steps"]}  # random weights never end
        if kind == TRANSLATE:
            return model.generate(**inputs, num_beams=batch["beams"], **steps)[:, 1:].numpy()
        return model.generate(**inputs, do_sample=False, pad_token_id=0, **steps)[:, -batch["steps"] :].numpy()

    return run
