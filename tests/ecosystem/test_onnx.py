"""ONNX files compute, in ONNX Runtime, what the model does, at any batch size and length, with the names of optimum."""

import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from transformers import AutoConfig

import tfm_zoo.inference.onnx.check
import tfm_zoo.inference.onnx.export
from tfm_zoo.converters import ConversionError
from tfm_zoo.inference.onnx import export_onnx
from tfm_zoo.proof import verify_export

from ..command import tfm_zoo as command
from ..hub.editing import edit
from ..tiny import ragged_batch, ragged_mask, tiny_decoder, tiny_model

pytestmark = pytest.mark.slow

WINDOWED = {"norm_position": "pre", "norm_type": "rmsnorm", "position_embedding_type": "rotary", "mlp_type": "gated"}
WINDOWED |= {"num_key_value_heads": 2, "sliding_window": 3}
DYNAMIC = {"position_embedding_type": "rotary", "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}
ENCODER = {"input_ids", "attention_mask", "token_type_ids"}
DECODER = {"input_ids", "attention_mask"}


def opened(folder, name: str = "model.onnx"):
    """A file's names of inputs and of outputs, and a function from tensors by name to outputs by name."""
    session = onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
    inputs, outputs = ([each.name for each in sides] for sides in (session.get_inputs(), session.get_outputs()))

    def run(**tensors):
        values = session.run(None, {name: np.asarray(tensor) for name, tensor in tensors.items()})
        return dict(zip(outputs, map(torch.from_numpy, values), strict=True))

    return set(inputs), set(outputs), run


@pytest.mark.parametrize(
    ("head", "fields", "inputs", "outputs"),
    [
        (tfm_zoo.TfmBertModel, WINDOWED, ENCODER, {"last_hidden_state", "pooler_output"}),
        (tfm_zoo.TfmDebertaModel, {"type_vocab_size": 2}, ENCODER, {"last_hidden_state"}),
        (tfm_zoo.TfmBertForQuestionAnswering, {"type_vocab_size": 0}, DECODER, {"start_logits", "end_logits"}),
        (tfm_zoo.TfmGPTForSequenceClassification, {"attention_type": "linear"}, DECODER, {"logits"}),
        (tfm_zoo.TfmEncoderDecoderForSequenceClassification, {}, DECODER, {"logits", "encoder_last_hidden_state"}),
    ],
)
def test_a_whole_model(head, fields, inputs, outputs, tmp_path):
    model = tiny_model(head, num_hidden_layers=1, **fields)
    assert export_onnx(model, tmp_path) <= 1e-4
    *names, run = opened(tmp_path)
    assert names == [inputs, outputs]
    batch = ragged_batch(head, "left" if head is tfm_zoo.TfmGPTForSequenceClassification else "right")
    batch = {name: ids for name, ids in batch.items() if name in inputs}
    with torch.no_grad():
        wanted, mask = model(**batch), batch["attention_mask"].bool()
    for name, value in run(**batch).items():
        real = mask if value.shape[: mask.dim()] == mask.shape else ...
        torch.testing.assert_close(value[real], wanted[name][real], rtol=0, atol=1e-4)


def past(result: dict) -> dict:
    """What a step has written, as the next one reads it."""
    return {name.replace("present", "past_key_values"): each for name, each in result.items() if name != "logits"}


def names_of(kind: str, *caches: str) -> set[str]:
    return {f"{kind}.{cache}.{name}" for cache in caches for name in ("key", "value")}


def test_a_language_model_generates_with_its_cache(tmp_path, monkeypatch):
    model, mask = tiny_decoder(num_hidden_layers=2, **WINDOWED), ragged_mask((5, 2, 1), side="left")
    monkeypatch.setattr(tfm_zoo.inference.onnx.export, "LARGEST_FILE", 0)
    assert export_onnx(model, tmp_path) <= 1e-4
    assert {file.name for file in tmp_path.iterdir()} == {"model.onnx", "model.onnx_data"}
    inputs, outputs, run = opened(tmp_path)
    assert inputs == {"input_ids", "attention_mask", "position_ids"} | names_of("past_key_values", "0", "1")
    assert outputs == {"logits"} | names_of("present", "0", "1")
    ids = torch.randint(3, 61, mask.shape, generator=torch.Generator().manual_seed(0)) * mask
    wanted = model.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False)
    step, cache = ids, dict.fromkeys(names_of("past_key_values", "0", "1"), np.zeros((3, 2, 0, 8), np.float32))
    for _ in range(6):
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -step.shape[1] :]
        result = run(input_ids=step, attention_mask=mask, position_ids=positions, **cache)
        step, cache = result["logits"][:, -1:].argmax(dim=-1), past(result)
        ids, mask = torch.cat((ids, step), dim=1), torch.cat((mask, torch.ones_like(step)), dim=1)
    assert ids.tolist() == wanted.tolist()


def test_a_translator_generates_with_its_cache(tmp_path):
    head = tfm_zoo.TfmEncoderDecoderForConditionalGeneration
    fields = {"num_hidden_layers": 1, "decoder_layers": 1, "sliding_window": 3, "use_cache": True}
    bias = {"position_embedding_type": "none", "relative_attention_num_buckets": 8}  # T5's
    model = tiny_model(head, eos_token_id=None, **fields, **bias)
    assert export_onnx(model, tmp_path) <= 1e-4
    both, mask = ("0.decoder", "0.encoder"), {"input_ids", "encoder_attention_mask"}
    *names, encode = opened(tmp_path, "encoder_model.onnx")
    assert names == [{"input_ids", "attention_mask"}, {"last_hidden_state"}]
    *names, begin = opened(tmp_path, "decoder_model.onnx")
    assert names == [mask | {"encoder_hidden_states"}, {"logits"} | names_of("present", *both)]
    *names, go_on = opened(tmp_path, "decoder_with_past_model.onnx")
    assert names == [mask | names_of("past_key_values", *both), {"logits"} | names_of("present", "0.decoder")]
    batch = {name: ids for name, ids in ragged_batch(head).items() if not name.startswith("decoder")}
    wanted = model.generate(**batch, max_new_tokens=6, do_sample=False)
    mask, ids, cache = {"encoder_attention_mask": batch["attention_mask"]}, wanted[:, :1], {}
    result = begin(input_ids=ids, encoder_hidden_states=encode(**batch)["last_hidden_state"], **mask)
    for _ in range(6):
        ids = torch.cat((ids, result["logits"][:, -1:].argmax(dim=-1)), dim=1)
        cache |= past(result)
        result = go_on(input_ids=ids[:, -1:], **mask, **cache)
    assert ids.tolist() == wanted.tolist()

    model.save_pretrained(tmp_path / "zoo")
    said = str(verify_export(tmp_path, str(tmp_path / "zoo"), trust_remote_code=True))
    assert "both compute the same, up to" in said and "logits within" in said


def test_the_command(tmp_path):
    """Of a model in half precision, with a sentence-transformers file. A package that lacks is named."""
    folder, out, bert = (tmp_path / name for name in ("zoo", "out", "bert"))
    tiny_model(tfm_zoo.TfmBertForSequenceClassification, num_hidden_layers=1).bfloat16().save_pretrained(folder)
    (folder / "modules.json").write_text("[]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "onnxscript", None)
        patch.delitem(sys.modules, "tfm_zoo.inference.onnx")
        said = command("export", "--onnx", folder, out, code=1)
    assert said.startswith("error: ONNX needs onnxscript, which is not installed") and not out.exists()
    command("export", "--onnx", folder, out)
    assert {file.name for file in (out / "onnx").iterdir()} == {"model.onnx"}
    weights = onnx.load(out / "onnx" / "model.onnx").graph.initializer
    assert not any(each.data_type == onnx.TensorProto.BFLOAT16 for each in weights)
    assert {file.name for file in out.iterdir()} == {"config.json", "modules.json", "onnx"}
    tfm_zoo.to_official(tfm_zoo.TfmBertForSequenceClassification.from_pretrained(folder)).save_pretrained(bert)
    config = AutoConfig.from_pretrained(bert).to_dict() | {"dtype": None, "_name_or_path": str(out)}
    assert AutoConfig.from_pretrained(out).to_dict() == config
    edit(folder, "config.json", classifier_pooling="mean")  # which no official class has
    for source, name in ((folder, "TfmBertForSequence"), (bert, "BertForSequence")):
        assert command("export", "--onnx", source, out, "--overwrite").startswith(name)
        config = (out / "config.json").read_text()
        assert f' "{name}Classification"' in config and "auto_map" not in config


def test_files_that_differ_are_not_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tfm_zoo.inference.onnx.check, "TOLERANCE", -1.0)
    monkeypatch.setattr(tfm_zoo.inference.onnx.check, "RELATIVE_TOLERANCE", -1.0)
    model = tiny_model(tfm_zoo.TfmBertForSequenceClassification, num_hidden_layers=1)
    with pytest.raises(ConversionError, match="The logits of ONNX Runtime for "):
        export_onnx(model, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


@pytest.mark.parametrize(
    ("change", "fields", "message"),
    [
        ("train", {}, "this one is in training mode"),
        ("eval", {"attention_type": "linear"}, "TfmGPTForCausalLM with linear attention keeps a state"),
        ("eval", DYNAMIC, "rope_type='dynamic' has frequencies"),
    ],
)
def test_what_cannot_be_exported_is_refused(change, fields, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export_onnx(getattr(tiny_decoder(**fields), change)(), tmp_path)
    assert not any(tmp_path.iterdir())
