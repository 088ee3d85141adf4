"""What `save_pretrained` writes, whatever was done with the model before, and what `from_pretrained` and `verify` make
of it, where the zoo is installed. (`tests/model_api/test_vocabularies.py` has tied weights.)"""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import Trainer, TrainingArguments

from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmBertForSequenceClassification,
    TfmBertModel,
    TfmEncoderDecoderEncoder,
    TfmEncoderDecoderForConditionalGeneration,
    TfmGPTForCausalLM,
    __version__,
)
from tfm_zoo.proof import verify
from tfm_zoo.proof.comparisons import TOLERANCE

from ..tiny import HEADS, ragged_batch, tiny_model
from .editing import CONFIG, MANIFEST, edit, tensors
from .test_travelling_code import code_of

#: one of each kind of inputs and outputs
KINDS = (
    *("TfmBertModel", "TfmBertForPreTraining", "TfmBertForQuestionAnswering", "TfmBertForMultipleChoice"),
    *("TfmGPTForCausalLM", "TfmGPTForSequenceClassification", "TfmEncoderDecoderForConditionalGeneration"),
)


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(**ragged_batch(type(model)))[0]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_code_full_map_and_manifest_are_saved_by_every_head(head, checkpoints, tmp_path, here):
    """By the manifest, it is what was saved. In another type, one of each kind is off by what that type rounds; and it
    is another after a small change of all weights, by each of its outputs."""
    folder, family = checkpoints[head.__name__], head.config_class
    own = {family.other_auto_classes[head.__name__]: head.__name__} if head is TfmEncoderDecoderEncoder else {}
    auto_map = {auto: f"{family.modeling_file}.{name}" for auto, name in (family.auto_classes | own).items()}
    assert edit(folder, CONFIG)["auto_map"] == auto_map
    assert {file.name: file.read_bytes() for file in folder.glob("*.py")} == code_of(family)
    fingerprint = edit(folder, MANIFEST)["fingerprint"]
    assert all(len(set(output["values"])) > 1 for name, output in fingerprint["outputs"].items() if name != "loss")
    verdict = verify(folder)
    assert verdict.ok and not verdict.warnings and max(verdict.figures["drift"].values()) < 1e-6, verdict
    assert verdict.code.startswith(f"code: that of tfm_zoo {__version__}, file by file (")
    if head.__name__ not in KINDS:
        return
    most = {}
    for dtype in ("bfloat16", "float16"):
        figures = (verdict := verify(folder, dtype=dtype)).figures
        most[dtype] = max(figures["drift"].values())
        assert (figures["dtype"], figures["tolerance"]) == (dtype, TOLERANCE[dtype])
        assert verdict.ok == (most[dtype] <= TOLERANCE[dtype]), verdict
    assert most["bfloat16"] > 2 * most["float16"] > 1e-5  # which has three bits more
    changed = Path(shutil.copytree(folder, tmp_path / "changed"))
    tensors(lambda given: {name: 1.01 * tensor for name, tensor in given.items()})(changed)
    found = {one.split()[1] for one in verify(changed).differences if one.startswith("output ")}
    assert found == fingerprint["outputs"].keys()


def test_a_saved_model_gives_as_many_states_as_before(tmp_path):
    """What transformers puts on the layers of a model to catch their states is there once."""
    model = tiny_model(TfmGPTForCausalLM, output_hidden_states=True)
    model.save_pretrained(tmp_path)
    assert len(model(torch.arange(5, 9)[None]).hidden_states) == model.config.num_hidden_layers + 1


def test_tables_that_no_checkpoint_holds(checkpoints, tmp_path):
    """Rotary tables stay in float32, in which half precision is read and written (in bfloat16 their frequencies would
    be off by half a percent), and are there on whatever device a model is loaded to."""
    model = TfmBertForSequenceClassification.from_pretrained(checkpoints["rotary"], dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    again = TfmBertForSequenceClassification.from_pretrained(tmp_path, dtype="auto")
    assert again.dtype == torch.bfloat16
    assert {buffer.dtype for buffer in again.buffers()} == {torch.float32}
    assert logits(again).equal(logits(model))
    one, other = (TfmBertModel.from_pretrained(checkpoints["rotary"], device_map=place) for place in ("cpu", None))
    assert logits(one).equal(logits(other))


# What the manifest says that a model computes is what it computes once loaded, however it was held when saved


def generate(model, folder):
    model.generate(torch.tensor([[5, 6]]), max_new_tokens=2)
    model.save_pretrained(folder)


def wrap(model, folder):
    """As engines wrap layers to recompute activations."""
    apply_activation_checkpointing(model, check_fn=lambda module: type(module).__name__ == "TfmLayer")
    assert any("_checkpoint_wrapped_module" in name for name, _ in model.named_parameters())
    model.save_pretrained(folder)


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


WAYS = (by_accelerate, in_autocast, compiled, where_float32_is_multiplied_in_less)


@pytest.fixture
def anew():
    """What Accelerate notes of a process is forgotten."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.mark.parametrize(
    ("head", "save"),
    [
        (TfmGPTForCausalLM, generate),
        *((head, wrap) for head in (TfmBertForMaskedLM, TfmGPTForCausalLM, TfmEncoderDecoderForConditionalGeneration)),
        *((TfmBertForMaskedLM, save) for save in WAYS),
    ],
)
def test_what_is_saved_does_not_depend_on_how_a_model_is_held(head, save, tmp_path, anew):
    """The same bytes, and weights that lie as they lay."""
    model = tiny_model(head)
    model.save_pretrained(tmp_path / "plain")
    save(model, tmp_path / "held")
    held, plain = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("held", "plain"))
    assert held == plain
    assert all(parameter.is_contiguous() for parameter in model.parameters())


@pytest.mark.parametrize("save", [by_trainer, with_other_weights])
def test_weights_that_a_training_changed_or_that_are_given(save, tmp_path, anew, here):
    save(tiny_model(TfmBertForMaskedLM), tmp_path)
    verdict = verify(tmp_path, dtype="float32")
    assert verdict.ok and max(verdict.figures["drift"].values()) < 1e-6, verdict


def test_a_model_of_nan(tmp_path, here):
    """It is what it was as long as it computes nothing, and is another where it computes something."""
    model = tiny_model(TfmBertForSequenceClassification)
    model.classifier.out_proj.bias.data[0] = math.nan
    model.save_pretrained(tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text(), parse_constant=pytest.fail)  # NaN is not JSON
    assert manifest["fingerprint"]["outputs"]["logits"]["values"][::2] == [None, None]
    assert verify(tmp_path).ok
    tensors(lambda given: {name: tensor.nan_to_num() for name, tensor in given.items()})(tmp_path)
    assert {
        "output logits has 2 values that are finite and were not, or the reverse",
        "output loss has 1 values that are finite and were not, or the reverse",
    } < {*verify(tmp_path).differences}
