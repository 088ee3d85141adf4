"""Models in torch: official classes, the zoo's, and official ones quantised by torchao."""

import numpy as np
import torch
from transformers import PreTrainedModel

import tfm_zoo

from .tasks import CLASSIFY, EMBED, TRANSLATE, Given, Runner, calibration, pooled


def computed(command: str, given: Given) -> Runner:
    """Of the model that an expression gives: `model` is the official one, `batches` are texts to calibrate with."""
    names = {"model": given.model, "batches": calibration(given.batches), "torch": torch}
    names |= {"from_official": tfm_zoo.from_official, "pack_weights": tfm_zoo.pack_weights}
    return runner(eval(command, names), given.kind)


def torchao(given: Given) -> Runner:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    quantize_(given.model, Int8DynamicActivationInt8WeightConfig())
    given.model.compile(dynamic=True)
    return runner(given.model, given.kind)


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
