"""Models in torch: official classes, the zoo's, and official ones quantised by torchao."""

import numpy as np
import torch
from transformers import PreTrainedModel

import tfm_zoo

from .tasks import CLASSIFY, EMBED, TRANSLATE, Given, Runner, pooled


def official(given: Given, dtype: torch.dtype = torch.float32) -> Runner:
    return runner(given.model.to(dtype), given.kind)


def zoo(dtype: str | None, given: Given, compile: bool = False, model_dtype: torch.dtype = torch.float32) -> Runner:
    model = tfm_zoo.from_official(given.model.to(model_dtype)).eval()
    if dtype:
        tfm_zoo.pack_weights(model, None if dtype == "chosen" else dtype, compile=compile)
    return runner(model, given.kind)


def torchao(dtype: str, given: Given) -> Runner:
    from torchao.quantization import Int4WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig, quantize_

    model = given.model
    if dtype == "int8":
        quantize_(model, Int8DynamicActivationInt8WeightConfig())
        model.compile(dynamic=True)
    else:
        quantize_(model.bfloat16(), Int4WeightOnlyConfig(group_size=32, int4_packing_format="opaque"))
    return runner(model, given.kind)


def runner(model: PreTrainedModel, kind: str) -> Runner:
    """A function from a batch to what this kind of task gives (see `tasks.py`)."""

    @torch.inference_mode()
    def run(batch: dict) -> np.ndarray:
        inputs = {name: states for name, states in batch.items() if isinstance(states, torch.Tensor)}
        if kind == EMBED:
            return pooled(model(**inputs).last_hidden_state, batch["attention_mask"])
        if kind == CLASSIFY or not batch["steps"]:
            return model(**inputs).logits.float().numpy()
        inputs["attention_mask"] = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
        steps = {"min_new_tokens": batch["steps"], "max_new_tokens": batch["steps"]}  # random weights never end
        if kind == TRANSLATE:
            return model.generate(**inputs, num_beams=batch["beams"], **steps)[:, 1:].numpy()
        return model.generate(**inputs, do_sample=False, pad_token_id=0, **steps)[:, -batch["steps"] :].numpy()

    return run
