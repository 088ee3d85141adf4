"""What the manifest says a model computes is what it computes when it is loaded, however it was held when saved."""

import json
import math

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from transformers import Trainer, TrainingArguments

from tfm_zoo import TfmBertForMaskedLM, TfmBertForSequenceClassification
from tfm_zoo.hub import Verdict
from tfm_zoo.hub.comparisons import TOLERANCE, compare_outputs
from tfm_zoo.hub.fingerprints import compute
from tfm_zoo.hub.manifest import FILE

from ..tiny import HEADS, tiny_model

#: one of each kind of inputs and outputs; that of every head is in `test_verify.py`
KINDS = (
    *("TfmBertModel", "TfmBertForPreTraining", "TfmBertForQuestionAnswering", "TfmBertForMultipleChoice"),
    *("TfmGPTForCausalLM", "TfmGPTForSequenceClassification", "TfmEncoderDecoderForConditionalGeneration"),
)


def recorded(folder) -> dict:
    content = (folder / FILE).read_text()
    return json.loads(content, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["fingerprint"]


def verdict_on(model, folder) -> Verdict:
    """Of its outputs alone."""
    was, verdict = recorded(folder), Verdict("model")
    inputs = {name: torch.tensor(ids) for name, ids in was["inputs"].items()}
    outputs = compute(model, inputs, was.get("labels") or {})["outputs"]
    compare_outputs(was, outputs, str(model.dtype).removeprefix("torch."), verdict)
    return verdict


@pytest.mark.parametrize("head", [head for head in HEADS if head.__name__ in KINDS], ids=lambda head: head.__name__)
def test_every_type_passes_and_every_drift_is_found(head, tmp_path):
    tiny_model(head).save_pretrained(tmp_path)
    for dtype in ("float32", "bfloat16", "float16"):
        model = head.from_pretrained(tmp_path, dtype=dtype)
        for parameter in model.parameters():  # rounding can depend on where in memory a tensor begins
            parameter.data = parameter.data.clone()
        verdict = verdict_on(model, tmp_path)
        assert verdict.ok and verdict.figures["tolerance"] == TOLERANCE[dtype], verdict
        assert (max(verdict.figures["drift"].values()) < 1e-6) == (dtype == "float32")
    model = head.from_pretrained(tmp_path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)
    found = {difference.split()[1] for difference in verdict_on(model, tmp_path).differences}
    assert found == recorded(tmp_path)["outputs"].keys()


def by_accelerate(model, folder):
    """The model stays as it is."""
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model = accelerator.unwrap_model(accelerator.prepare(model))
    model.train().lm_head.eval()
    forward, modes = model.forward, [module.training for module in model.modules()]
    model.save_pretrained(folder)
    assert model.forward is forward and [module.training for module in model.modules()] == modes


def by_trainer(model, folder):
    settings = TrainingArguments(str(folder), max_steps=1, bf16=True, use_cpu=True, report_to=[], disable_tqdm=True)
    data = [{"input_ids": torch.arange(1, 9), "labels": torch.arange(1, 9)}]
    trainer = Trainer(model, settings, train_dataset=data)
    trainer.train()
    trainer.save_model()


def in_autocast(model, folder):
    with torch.autocast("cpu", torch.bfloat16):
        model.save_pretrained(folder)


def compiled(model, folder):
    model.compile(backend=lambda *_: pytest.fail("what was compiled is run"))
    model.save_pretrained(folder)


def with_other_weights(model, folder):
    other = tiny_model(TfmBertForMaskedLM, 1).state_dict()
    model.save_pretrained(folder, state_dict={name: tensor.bfloat16() for name, tensor in other.items()})


def where_float32_is_multiplied_in_less(model, folder):
    backends, seen = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul), []
    model.register_forward_pre_hook(lambda *_: seen.append([each.fp32_precision for each in backends]))
    torch.set_float32_matmul_precision("medium")
    try:
        model.save_pretrained(folder)
        assert [backend.fp32_precision for backend in backends] == ["tf32", "bf16"]
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen and all(each == ["ieee", "ieee"] for each in seen)


WAYS = [by_accelerate, by_trainer, in_autocast, compiled, with_other_weights, where_float32_is_multiplied_in_less]


@pytest.mark.parametrize("save", WAYS)
def test_whatever_a_model_is_wrapped_in(save, tmp_path, request):
    def anew():
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()

    anew()
    request.addfinalizer(anew)
    save(tiny_model(TfmBertForMaskedLM), tmp_path)
    verdict = verdict_on(TfmBertForMaskedLM.from_pretrained(tmp_path, dtype="float32"), tmp_path)
    assert verdict.ok and max(verdict.figures["drift"].values()) < 1e-6, verdict


def test_a_model_of_nan(tmp_path):
    """It is what it was as long as it computes nothing, and is another where it computes something."""
    model = tiny_model(TfmBertForSequenceClassification)
    bias = model.classifier.out_proj.bias.data
    bias[0] = math.nan
    model.save_pretrained(tmp_path)
    assert recorded(tmp_path)["outputs"]["logits"]["values"][::2] == [None, None]
    assert verdict_on(model, tmp_path).ok
    bias[0] = 0.0
    assert verdict_on(model, tmp_path).differences == [
        "output logits has 2 values that are finite and were not, or the reverse",
        "output loss has 1 values that are finite and were not, or the reverse",
    ]
