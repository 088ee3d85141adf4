"""What `save_pretrained` writes, whatever was done with the model before, and what `from_pretrained` and `verify` make
of it, where the zoo is installed."""

import json
import math
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from safetensors.torch import load_file
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

from ..tiny import HEADS, ragged_batch, tiny_config, tiny_model
from .editing import CONFIG, MANIFEST, edit, tensors, without
from .test_travelling_code import code_of

TIED_HEADS = [TfmBertForMaskedLM, TfmGPTForCausalLM, TfmEncoderDecoderForConditionalGeneration]
#: one of each kind of inputs and outputs
KINDS = (
    *("TfmBertModel", "TfmBertForPreTraining", "TfmBertForQuestionAnswering", "TfmBertForMultipleChoice"),
    *("TfmGPTForCausalLM", "TfmGPTForSequenceClassification", "TfmEncoderDecoderForConditionalGeneration"),
)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(**ragged_batch(type(model)))[0]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_code_full_map_and_manifest_are_saved_by_every_head(head, checkpoints, here):
    """By the manifest, whatever type it is loaded in, it is what was saved; and one of each kind is another after a
    small change of all weights, by each of its outputs."""
    folder, family = checkpoints[head.__name__], head.config_class
    own = {family.other_auto_classes[head.__name__]: head.__name__} if head is TfmEncoderDecoderEncoder else {}
    auto_map = {auto: f"{family.modeling_file}.{name}" for auto, name in (family.auto_classes | own).items()}
    assert edit(folder, CONFIG)["auto_map"] == auto_map
    assert {file.name: file.read_bytes() for file in folder.glob("*.py")} == code_of(family)
    outputs = edit(folder, MANIFEST)["fingerprint"]["outputs"]
    assert all(len(set(output["values"])) > 1 for name, output in outputs.items() if name != "loss")
    for dtype in ("float32", "bfloat16", "float16") if head.__name__ in KINDS else ("float32",):
        verdict = verify(folder, dtype=dtype)
        assert verdict.ok and not verdict.warnings and verdict.figures["tolerance"] == TOLERANCE[dtype], verdict
        assert (max(verdict.figures["drift"].values()) < 1e-6) == (dtype == "float32")
        assert verdict.code.startswith(f"code: that of tfm_zoo {__version__}, file by file (")


@pytest.mark.parametrize("head", [head for head in HEADS if head.__name__ in KINDS], ids=lambda head: head.__name__)
def test_a_small_change_of_all_weights_is_found_by_each_output(head, tmp_path, here):
    tiny_model(head).save_pretrained(tmp_path)
    tensors(lambda given: {name: 1.01 * tensor for name, tensor in given.items()})(tmp_path)
    found = {one.split()[1] for one in verify(tmp_path).differences if one.startswith("output ")}
    assert found == edit(tmp_path, MANIFEST)["fingerprint"]["outputs"].keys()


def test_a_saved_model_gives_as_many_states_as_before(tmp_path):
    """What transformers puts on the layers of a model to catch their states is there once."""
    model = tiny_model(TfmGPTForCausalLM, output_hidden_states=True)
    model.save_pretrained(tmp_path)
    assert len(model(torch.arange(5, 9)[None]).hidden_states) == model.config.num_hidden_layers + 1


@pytest.mark.parametrize("head", TIED_HEADS, ids=lambda head: head.__name__)
def test_tied_weights_are_saved_once(head, tmp_path):
    """They load where they lack, from one file and from shards; copies that engines give are not saved twice. A head
    that is not tied keeps its own."""
    model = tiny_model(head)
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" not in saved and len(saved) == len(dict(model.named_parameters()))
    loaded, report = head.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()) and loaded.lm_head.weight is loaded.get_input_embeddings().weight
    model.save_pretrained(tmp_path / "given", state_dict={k: v.clone() for k, v in model.state_dict().items()})
    assert bytes_of(tmp_path / "given") == bytes_of(tmp_path)
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 2
    untied = tiny_model(head, tie_word_embeddings=False)
    untied.save_pretrained(tmp_path / "untied")
    for name, wanted in ((".", model), ("shards", model), ("untied", untied)):
        assert logits(head.from_pretrained(tmp_path / name)).equal(logits(wanted))


def generate(model) -> None:
    model.generate(torch.tensor([[5, 6]]), max_new_tokens=2)


def wrap(model) -> None:
    """As engines wrap layers to recompute activations."""
    apply_activation_checkpointing(model, check_fn=lambda module: type(module).__name__ == "TfmLayer")
    assert any("_checkpoint_wrapped_module" in name for name, _ in model.named_parameters())


@pytest.mark.parametrize(("head", "act"), [(TfmGPTForCausalLM, generate), *((head, wrap) for head in TIED_HEADS)])
def test_what_is_saved_does_not_depend_on_what_was_done_before(head, act, tmp_path):
    """The same bytes, and weights that lie as they lay."""
    model = tiny_model(head)
    model.save_pretrained(tmp_path / "before")
    act(model)
    model.save_pretrained(tmp_path / "after")
    assert bytes_of(tmp_path / "after") == bytes_of(tmp_path / "before")
    assert all(parameter.is_contiguous() for parameter in model.parameters())


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


def test_missing_tensor_is_reported_and_initialised(tmp_path):
    """Weights that a checkpoint lacks get a fresh start of the right size; those it holds stay what they are."""
    model = tiny_model(TfmBertForMaskedLM)
    model.save_pretrained(tmp_path)
    absent = ["model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.bias", "head.norm.weight"]
    without(*absent)(tmp_path)
    loaded, report = TfmBertForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == set(absent)
    weights = loaded.state_dict()
    up, bias, norm = (weights.pop(name) for name in absent)
    assert up.std().item() == pytest.approx(tiny_config().initializer_range, rel=0.1)
    assert bias.eq(0).all() and norm.eq(1).all()
    assert all(tensor.equal(model.state_dict()[name]) for name, tensor in weights.items())


# What the manifest says that a model computes is what it computes once loaded, however it was held when saved


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
def test_whatever_a_model_is_wrapped_in(save, tmp_path, request, here):
    def anew():
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()

    anew()
    request.addfinalizer(anew)
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
