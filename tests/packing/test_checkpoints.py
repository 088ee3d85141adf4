"""Quantised checkpoints: small, the same bit for bit once loaded, quantised while they are loaded, and proved."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

import tfm_zoo
from benchmarks.memory import with_peak
from tfm_zoo import TfmBertForMaskedLM, TfmBertForSequenceClassification, TfmGPTForCausalLM, TfmQuantizationConfig
from tfm_zoo.converters import ConversionError
from tfm_zoo.hub.model_card import MARK
from tfm_zoo.hub.pushing import card_of_folder
from tfm_zoo.inference.onnx import export_onnx
from tfm_zoo.inference.packing.linear import PackedLinear

from ..command import tfm_zoo as command
from ..hub.editing import without, write
from ..official_models import BY_NAME, build_tiny
from ..tiny import ragged_batch, tiny_decoder, tiny_model

IDS = {"input_ids": torch.arange(1, 13).view(2, 6)}
WEIGHT = "model.layers.0.self_attn.k_proj.weight"


def saved(model, folder, dtype: str = "int8", **options):
    model = tfm_zoo.pack_weights(model, dtype)
    model.save_pretrained(folder, **options)
    return model


def outputs(model, batch: dict) -> torch.Tensor:
    with torch.no_grad():
        return model(**batch).logits


def assert_same(model, other, batch: dict) -> None:
    """Bit for bit: the outputs, and the tensors as they would be saved."""
    assert outputs(model, batch).equal(outputs(other, batch))
    state, twin = model.state_dict(), other.state_dict()
    assert state.keys() == twin.keys()
    assert all(tensor.equal(twin[name]) and tensor.dtype == twin[name].dtype for name, tensor in state.items())


CASES = [(TfmBertForSequenceClassification, "int8"), (tfm_zoo.TfmEncoderDecoderForConditionalGeneration, "int4")]


@pytest.mark.parametrize(("head", "dtype"), CASES)
def test_round_trip(head, dtype, tmp_path, caplog):
    """Packed in memory, loaded packed, or quantised while it is loaded: it is the same model, and is saved the same."""
    model, batch = tiny_model(head), ragged_batch(head)  # of width 32 and 48: in four bits, one layer gets eight
    model.save_pretrained(tmp_path / "whole")
    saved(model, tmp_path / "packed", dtype)
    loaded, info = head.from_pretrained(tmp_path / "packed", output_loading_info=True)
    assert not any(info.values()), info
    assert_same(loaded, model, batch)
    config = TfmQuantizationConfig(dtype)
    quantised, info = head.from_pretrained(tmp_path / "whole", quantization_config=config, output_loading_info=True)
    assert not any(info.values()), info
    assert_same(quantised, model, batch)
    assert not [name for name, module in quantised.named_modules() if isinstance(module, nn.Linear)]
    write("again/README.md", MARK.format("source"))(tmp_path)
    quantised.save_pretrained(tmp_path / "again")
    assert "README.md tells of the model before its weights were rounded" in caplog.text
    contents = [load_file(tmp_path / name / "model.safetensors") for name in ("packed", "again")]
    assert all(map(torch.equal, *(content.values() for content in contents)))
    assert contents[0].keys() == contents[1].keys()


def test_plain_tensors_under_the_names_of_layers(tmp_path):
    saved(tiny_decoder(attention_bias=True), tmp_path, "int4")
    tensors, layer = load_file(tmp_path / "model.safetensors"), "model.layers.0.self_attn.q_proj."
    assert {name.removeprefix(layer): (*t.shape, t.dtype) for name, t in tensors.items() if name.startswith(layer)} == {
        "weight": (32, 16, torch.uint8),
        "weight_scales": (32, 1, torch.bfloat16),
        "weight_offsets": (32, 1, torch.bfloat16),
        "bias": (32, torch.float32),
    }
    assert not [name for name in tensors if "joined" in name or "lm_head" in name]
    held = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert held.pop("bill")["cosine"] > 0.9
    assert held == {"quant_method": "tfm_zoo", "dtype": "int4", "modules_to_not_convert": None}


def test_tied_head(tmp_path):
    """The projection is made from the embedding. If it differs from that, it is saved, and no longer tied."""
    model = tiny_decoder(tie_word_embeddings=True)
    saved(model, tmp_path / "tied")
    assert not [name for name in load_file(tmp_path / "tied/model.safetensors") if "lm_head" in name]
    model.model.embeddings.embed_tokens.weight.data.mul_(0.5)
    model.save_pretrained(tmp_path / "untied")
    loaded = TfmGPTForCausalLM.from_pretrained(tmp_path / "untied")
    assert_same(loaded, model, IDS)
    assert not loaded.config.tie_word_embeddings


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_memory(tmp_path):
    """The whole model is never in memory: a layer is a sixth of this one."""
    sizes = {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "max_position_embeddings": 16}
    model = TfmGPTForCausalLM(tfm_zoo.TfmGPTConfig(vocab_size=64, eos_token_id=2, bos_token_id=1, **sizes))
    model.save_pretrained(tmp_path / "whole", max_shard_size="50MB")
    del model

    def load(name, **options):
        return lambda: TfmGPTForCausalLM.from_pretrained(tmp_path / name, **options)

    model, rounding = with_peak(load("whole", quantization_config=TfmQuantizationConfig("int8")))
    model.save_pretrained(tmp_path / "int8")
    del model
    size = (tmp_path / "int8/model.safetensors").stat().st_size
    _, loading = with_peak(load("int8"))
    assert rounding < 1.7 * size and loading < 1.4 * size, (rounding / size, loading / size)


@pytest.mark.parametrize("make", [tiny_decoder, lambda: build_tiny(BY_NAME["LlamaForCausalLM"])])
def test_sharded(make, tmp_path):
    """Of the zoo, and official."""
    model = make()
    model.save_pretrained(tmp_path / "whole", max_shard_size="10KB")
    saved(model, tmp_path / "packed", max_shard_size="10KB")
    assert len(list((tmp_path / "packed").glob("model-*.safetensors"))) > 2
    for name, options in (("packed", {}), ("whole", {"quantization_config": TfmQuantizationConfig("int8")})):
        assert_same(AutoModelForCausalLM.from_pretrained(tmp_path / name, **options), model, IDS)


def test_some_layers_stay(tmp_path):
    model = tiny_decoder()
    model.save_pretrained(tmp_path / "whole")
    config = TfmQuantizationConfig("int8", modules_to_not_convert=["q_proj", "model.layers.1"])
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "whole", quantization_config=config)
    modules = (each.named_modules() for each in (loaded, model))
    names, linear = ({name for name, each in of if isinstance(each, nn.Linear)} for of in modules)
    assert names == {name for name in linear if name.endswith("q_proj") or name.startswith("model.layers.1.")}
    loaded.save_pretrained(tmp_path / "some")
    assert_same(AutoModelForCausalLM.from_pretrained(tmp_path / "some"), loaded, IDS)


def test_in_bfloat16_and_with_a_new_head(tmp_path):
    """A head that the checkpoint lacks is initialised, then quantised."""
    saved(tiny_model(TfmBertForMaskedLM).bfloat16(), tmp_path / "model")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert loaded.dtype == torch.bfloat16 and isinstance(loaded.classifier.out_proj, PackedLinear)
    logits = outputs(loaded, ragged_batch())
    assert logits.dtype == torch.bfloat16 and 0 < logits.abs().max() < 100


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda _: TfmQuantizationConfig("int3"), "not to 'int3'"),
        (lambda _: TfmQuantizationConfig("int8", inputs={"q_proj": "rows"}), "channels, bfloat16, not 'rows'"),
        (lambda folder: saved(tiny_decoder(), folder, "float32"), "packed in float32 is not saved"),
        (lambda _: tfm_zoo.to_official(tfm_zoo.pack_weights(tiny_decoder(), "int8")), "quantised"),
        (lambda folder: export_onnx(tfm_zoo.pack_weights(tiny_decoder(), "float32"), folder), "packed: export the mod"),
    ],
)
def test_refused(act, message, tmp_path):
    with pytest.raises((ValueError, ConversionError), match=message):
        act(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_is_not_loaded(tmp_path, monkeypatch):
    """Without the zoo, transformers would take rounded numbers for weights: the model's own code refuses."""
    saved(tiny_decoder(), tmp_path)
    with pytest.raises(ValueError, match=r"weight_scales, so that its weights are packed"):
        AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=None)
    without(WEIGHT + "_scales")(tmp_path)
    with pytest.raises(ValueError, match=f"lacks scales that fit {WEIGHT}"):
        AutoModelForCausalLM.from_pretrained(tmp_path)
    monkeypatch.delitem(AUTO_QUANTIZATION_CONFIG_MAPPING, "tfm_zoo")
    with pytest.raises(ValueError, match="import tfm_zoo"):
        TfmGPTForCausalLM.from_pretrained(tmp_path)


def test_the_commands(tmp_path):
    """Of an official checkpoint, and of a model of the zoo."""
    official, whole, out, no = (tmp_path / name for name in ("official", "zoo", "int8", "no"))
    build_tiny(BY_NAME["BertForMaskedLM"]).save_pretrained(official)
    tfm_zoo.from_official(official).save_pretrained(whole)
    wanted = tfm_zoo.pack_weights(tfm_zoo.from_official(official), "int8")
    for source, made in ((official, out), (whole, tmp_path / "again")):
        command("convert", source, made, "--quantize", "int8")
        assert_same(TfmBertForMaskedLM.from_pretrained(made), wanted, ragged_batch())
    assert "int3" in command("convert", official, no, "--quantize", "int3", code=2)
    assert "quantised: export" in command("export", out, no, code=1)
    assert "packed" in command("export", "--onnx", out, no, code=1) and not no.exists()
    card = (out / "README.md").read_text()
    assert "--quantize int8" in card and "rounded to int8" in card and "Every tensor" not in card
    (out / "README.md").unlink()
    assert "import tfm_zoo" in str(card_of_folder(out, "user/model"))  # of a push
