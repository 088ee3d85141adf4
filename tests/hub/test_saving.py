"""What `save_pretrained` writes, and what `from_pretrained` makes of it, where the zoo is installed."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import AutoConfig

from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmBertForSequenceClassification,
    TfmBertModel,
    TfmEncoderDecoderEncoder,
    TfmEncoderDecoderForConditionalGeneration,
    TfmGPTForCausalLM,
)

from ..tiny import HEADS, ragged_batch, tiny_config, tiny_model
from .travelling import code_of

TIED_HEADS = [TfmBertForMaskedLM, TfmGPTForCausalLM, TfmEncoderDecoderForConditionalGeneration]
TIED = pytest.mark.parametrize("head", TIED_HEADS, ids=lambda head: head.__name__)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(**ragged_batch(type(model)))[0]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_code_and_full_map_are_saved_by_every_head(head, checkpoints):
    folder = checkpoints[head.__name__]
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    family = head.config_class
    own = {family.other_auto_classes[head.__name__]: head.__name__} if head is TfmEncoderDecoderEncoder else {}
    assert auto_map == {auto: f"{family.modeling_file}.{name}" for auto, name in (family.auto_classes | own).items()}
    assert {file.name: file.read_bytes() for file in folder.glob("*.py")} == code_of(family)


def test_configuration_survives_a_save(tmp_path):
    rope = {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}
    fields = {"norm_position": "pre", "mlp_type": "gated", "num_key_value_heads": 2, "num_labels": 5}
    config = tiny_config(position_embedding_type="rotary", rope_parameters=rope, official={"a": [1]}, **fields)
    config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).to_dict() | {"_name_or_path": ""} == config.to_dict()


@TIED
def test_tied_weights_are_saved_once(head, tmp_path):
    """They load where they lack, from one file and from shards; copies that engines give are not saved twice. A head
    that is not tied keeps its own."""
    model = tiny_model(head)
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" not in tensors and len(tensors) == len(dict(model.named_parameters()))
    loaded, report = head.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()) and loaded.lm_head.weight is loaded.get_input_embeddings().weight
    model.save_pretrained(tmp_path / "given", state_dict={k: v.clone() for k, v in model.state_dict().items()})
    assert bytes_of(tmp_path / "given") == bytes_of(tmp_path)
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 2
    for each in (loaded, head.from_pretrained(tmp_path / "shards")):
        assert logits(each).equal(logits(model))
    untied = tiny_model(head, tie_word_embeddings=False)
    untied.save_pretrained(tmp_path / "untied")
    loaded = head.from_pretrained(tmp_path / "untied")
    assert not loaded.lm_head.weight.equal(loaded.get_input_embeddings().weight)
    assert logits(loaded).equal(logits(untied))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtype(dtype, checkpoints):
    model = TfmBertForMaskedLM.from_pretrained(checkpoints["TfmBertForMaskedLM"], dtype=dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    wide = TfmBertForMaskedLM.from_pretrained(checkpoints["TfmBertForMaskedLM"])
    mask = ragged_batch()["attention_mask"].bool()
    bound = 1e-5 if dtype == torch.float64 else 0.2
    torch.testing.assert_close(logits(model)[mask].float(), logits(wide)[mask], rtol=0, atol=bound)


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
    placed, plain = (
        TfmBertModel.from_pretrained(checkpoints["rotary"], **each) for each in ({"device_map": "cpu"}, {})
    )
    assert logits(placed).equal(logits(plain))


@pytest.mark.parametrize("kind", ["interleaved", "halves", "tensor2tensor"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sinusoids_are_there_after_loading(kind, dtype, tmp_path):
    """They are in no checkpoint, and a model is made without memory of its own before it is loaded."""
    model = tiny_model(TfmEncoderDecoderForConditionalGeneration, sinusoid_type=kind)
    model.save_pretrained(tmp_path)
    assert not [name for name in load_file(tmp_path / "model.safetensors") if "positions" in name]
    loaded = TfmEncoderDecoderForConditionalGeneration.from_pretrained(tmp_path, dtype=dtype)
    for side in ("encoder", "decoder"):
        ours, wanted = (getattr(each.model, side).embeddings.embed_positions.table for each in (loaded, model))
        assert ours.equal(wanted.to(ours.dtype)) and wanted.abs().max() == 1


def test_missing_tensor_is_reported_and_initialised(checkpoints, tmp_path):
    """Weights that a checkpoint lacks get a fresh start of the right size; those it holds stay what they are."""
    TfmBertForMaskedLM.from_pretrained(checkpoints["TfmBertForMaskedLM"]).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    absent = ["model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.bias", "head.norm.weight"]
    kept = {name: tensor for name, tensor in tensors.items() if name not in absent}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded, report = TfmBertForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == set(absent)
    weights = loaded.state_dict()
    up, bias, norm = (weights[name] for name in absent)
    assert up.std().item() == pytest.approx(tiny_config().initializer_range, rel=0.1)
    assert bias.eq(0).all() and norm.eq(1).all()
    assert all(weights[name].equal(tensor) for name, tensor in kept.items())
