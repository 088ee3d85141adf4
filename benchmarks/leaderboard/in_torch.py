"""Models in torch: official classes, the zoo's, and official ones quantised by torchao."""

from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

import tfm_zoo

from .tasks import CLASSIFY, EMBED, TRANSLATE, Given, Runner, calibration, pooled


def official(given: Given, dtype: torch.dtype = torch.float32) -> Runner:
    return runner(given.model.to(dtype), given.kind)


def zoo(
    dtype: str | None,
    given: Given,
    compile: bool = False,
    model_dtype: torch.dtype = torch.float32,
    least_cosine: float | None = None,
) -> Runner:
    model = tfm_zoo.from_official(given.model.to(model_dtype)).eval()
    options: dict[str, Any] = {"compile": compile}
    if least_cosine is not None:
        options |= {"calibrate": calibration(given.batches), "least_cosine": least_cosine}
    if dtype:
        tfm_zoo.pack_weights(model, None if dtype == "chosen" else dtype, **options)
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


def torchao_x86(given: Given) -> Runner:
    """By the quantizer for x86 with freezing, as torchao's own pages recommend: it lowers to oneDNN's products."""
    import torch._inductor.config
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    torch._inductor.config.freezing = True
    axes = {0: torch.export.Dim("batch", min=2, max=1024), 1: torch.export.Dim("length", min=2, max=512)}
    batch = {name: states for name, states in given.batches[0].items() if isinstance(states, torch.Tensor)}
    with torch.no_grad():
        shapes = {"dynamic_shapes": dict.fromkeys(batch, axes)}
        exported = torch.export.export(given.model, (), kwargs=batch, **shapes).module()
        quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
        prepared = prepare_pt2e(exported, quantizer)
        for one in calibration(given.batches):
            prepared(**one)
        converted = convert_pt2e(prepared)
        move_exported_model_to_eval(converted)
    return runner(torch.compile(converted, dynamic=True), given.kind)


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
