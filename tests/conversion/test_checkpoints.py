"""Checkpoints as they are found: every format, old names, and what is wrong with some of them."""

import json
import os
import shutil

import pytest
import torch
import transformers

import tfm_zoo
from tests.conversion.comparison import assert_same_model, assert_same_weights
from tests.conversion.folders import edit_config, rewrite
from tests.natives import BY_NAME, build_tiny
from tfm_zoo.converters import ConversionError, from_official, to_official

MASKED_LM = BY_NAME["BertForMaskedLM"]


@pytest.fixture
def original():
    return build_tiny(MASKED_LM)


@pytest.fixture
def folder(original, tmp_path):
    original.save_pretrained(tmp_path)
    return tmp_path


# formats


def test_sharded_safetensors(original, tmp_path):
    original.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert_same_model(to_official(from_official(tmp_path)), original)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before PyTorch 1.6"])
def test_bin(original, folder, zipped):
    (folder / "model.safetensors").unlink()
    torch.save(original.state_dict(), folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    zoo = from_official(folder)
    assert_same_model(to_official(zoo), original)
    zoo.save_pretrained(folder / "zoo")
    assert_same_weights(type(zoo).from_pretrained(folder / "zoo"), zoo)


def test_a_model_does_not_change_with_its_file(original, folder):
    (folder / "model.safetensors").unlink()
    torch.save(original.state_dict(), folder / "pytorch_model.bin")
    zoo = from_official(folder)
    torch.save({name: tensor + 1 for name, tensor in original.state_dict().items()}, folder / "pytorch_model.bin")
    assert_same_model(to_official(zoo), original)


def test_sharded_bin(original, folder):
    (folder / "model.safetensors").unlink()
    tensors = list(original.state_dict().items())
    shards = {"a.bin": dict(tensors[:20]), "b.bin": dict(tensors[20:])}
    for file, shard in shards.items():
        torch.save(shard, folder / file)
    index = {"weight_map": {name: file for file, shard in shards.items() for name in shard}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert_same_model(to_official(from_official(folder)), original)


def test_safetensors_come_before_bin(original, folder):
    (folder / "pytorch_model.bin").write_bytes(b"not to be read")
    assert_same_model(to_official(from_official(folder)), original)


def test_pickles_with_code_are_not_run(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"bert.x": os.system}, folder / "pytorch_model.bin")
    with pytest.raises(ConversionError, match=r"pytorch_model\.bin"):
        from_official(folder)


def test_hub_cache_without_network(original, tmp_path, monkeypatch):
    """The cache's own layout: a reference to a commit, a snapshot of it."""
    repo = tmp_path / "models--someone--tiny-bert"
    original.save_pretrained(repo / "snapshots" / "abc")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    for module in ("_snapshot_download", "file_download"):
        monkeypatch.setattr(f"huggingface_hub.{module}.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    zoo = from_official("someone/tiny-bert")
    assert zoo.config.name_or_path == "someone/tiny-bert"
    assert_same_model(to_official(zoo), original)
    with pytest.raises(ConversionError, match="someone/other"):
        from_official("someone/other")


# names that old checkpoints have


def test_gamma_and_beta(original, folder):
    def old(name: str) -> str:
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    rewrite(folder, lambda tensors: {old(name): tensor for name, tensor in tensors.items()})
    assert_same_model(to_official(from_official(folder)), original)


@pytest.mark.parametrize(
    "name",
    [
        *("BertModel", "BertForSequenceClassification", "RobertaModel", "DistilBertModel"),
        *("GPT2Model", "GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "LlamaModel", "LlamaForSequenceClassification"),
        *("MarianModel", "MarianMTModel", "BartForSequenceClassification", "FSMTForConditionalGeneration"),
    ],
)
def test_with_and_without_prefix(name, tmp_path):
    native = BY_NAME[name]
    original = build_tiny(native)
    original.save_pretrained(tmp_path)
    prefix = native.architecture.prefix + "."

    def toggled(tensors: dict) -> dict:
        heads = ("classif", "score", "lm_head", "final_logits_bias")
        base = {key: tensor for key, tensor in tensors.items() if not key.startswith(heads)}
        if native.head.is_bare:
            return {prefix + key: tensor for key, tensor in base.items()}
        return tensors | {key.removeprefix(prefix): tensors.pop(key) for key in base}

    rewrite(tmp_path, toggled)
    assert_same_model(to_official(from_official(tmp_path)), original)


@pytest.mark.parametrize(
    ("name", "buffers"),
    [
        ("BertForMaskedLM", {"bert.embeddings.position_ids": torch.arange(40)[None]}),
        (
            "GPT2LMHeadModel",
            {
                "transformer.h.0.attn.bias": torch.ones(1, 1, 40, 40).tril(),
                "transformer.h.0.attn.masked_bias": torch.tensor(-1e4),
            },
        ),
        ("OpenAIGPTLMHeadModel", {"transformer.h.2.attn.bias": torch.ones(1, 1, 40, 40).tril()}),
        ("LlamaForCausalLM", {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}),
        ("BartModel", {"encoder.version": torch.tensor([3.0]), "decoder.version": torch.tensor([3.0])}),
    ],
    ids=["BERT", "GPT-2", "OpenAI GPT", "LLaMA", "BART"],
)
def test_what_is_no_weight_is_passed_over(name, buffers, tmp_path, caplog):
    original = build_tiny(BY_NAME[name])
    original.save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: tensors | buffers)
    assert_same_model(to_official(from_official(tmp_path)), original)
    assert not caplog.text


def test_gpt2_as_it_lies_on_the_hub(tmp_path):
    """No prefix, no tied head, masks among the weights, and a configuration with fields of old."""
    original = build_tiny(BY_NAME["GPT2LMHeadModel"], n_inner=None, n_ctx=40)
    original.save_pretrained(tmp_path)
    masks = {f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 40, 40).tril() for i in range(3)}
    rewrite(
        tmp_path,
        lambda tensors: {name.removeprefix("transformer."): tensor for name, tensor in (tensors | masks).items()},
    )
    edit_config(tmp_path, n_inner=..., use_cache=..., tie_word_embeddings=..., torch_dtype="float32", dtype=...)
    zoo = from_official(tmp_path)
    assert type(zoo) is tfm_zoo.TfmGPTForCausalLM
    assert zoo.lm_head.weight is zoo.model.embeddings.embed_tokens.weight
    assert_same_model(to_official(zoo), original)


def test_question_answering_under_either_prefix(tmp_path):
    """Classes like LLaMA's hold their base model as `model`, but for question answering as `transformer`."""
    original = build_tiny(BY_NAME["LlamaForQuestionAnswering"])
    original.save_pretrained(tmp_path)
    assert_same_model(to_official(from_official(tmp_path)), original)
    rewrite(
        tmp_path,
        lambda tensors: {name.replace("transformer.", "model."): tensor for name, tensor in tensors.items()},
    )
    assert_same_model(to_official(from_official(tmp_path)), original)


@pytest.mark.parametrize("shard", ["5GB", "20KB"], ids=["one file", "shards"])
def test_a_tied_head_may_be_missing_or_there(shard, tmp_path):
    original = build_tiny(BY_NAME["LlamaForCausalLM"], tie_word_embeddings=True)
    original.save_pretrained(tmp_path, max_shard_size=shard)
    assert_same_model(to_official(from_official(tmp_path)), original)
    if shard == "5GB":
        head = {"lm_head.weight": original.lm_head.weight.detach()}
        rewrite(tmp_path, lambda tensors: tensors | head)
        zoo = from_official(tmp_path)
        assert zoo.lm_head.weight is zoo.model.embeddings.embed_tokens.weight
        assert_same_model(to_official(zoo), original)


def test_tied_tensors_may_all_be_there(original, folder):
    state = original.state_dict()
    rewrite(folder, lambda tensors: {name: tensor.clone() for name, tensor in state.items()})
    zoo = from_official(folder)
    assert zoo.lm_head.weight is zoo.model.embeddings.embed_tokens.weight
    assert_same_model(to_official(zoo), original)


# configurations that say little


def test_config_without_model_type(original, folder):
    edit_config(folder, model_type=...)
    assert_same_model(to_official(from_official(folder)), original)


@pytest.mark.parametrize("name", [name for name in BY_NAME if "MultipleChoice" not in name])
def test_head_is_known_by_its_tensors(name, tmp_path):
    """Where `architectures` is missing. (Choices are told from labels by nothing but that.)"""
    build_tiny(BY_NAME[name]).save_pretrained(tmp_path)
    edit_config(tmp_path, architectures=...)
    assert type(from_official(tmp_path)) is BY_NAME[name].head.zoo


# what is wrong with some


def error_of(folder, *args, **kwargs) -> str:
    with pytest.raises(ConversionError) as caught:
        from_official(folder, *args, **kwargs)
    return str(caught.value)


def test_truncated(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    assert f"{file} is truncated" in error_of(folder)


def test_truncated_bin(original, folder):
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    torch.save(original.state_dict(), file)
    file.write_bytes(file.read_bytes()[:-1000])
    assert f"{file} is truncated" in error_of(folder)


def test_missing_shard(original, tmp_path):
    original.save_pretrained(tmp_path, max_shard_size="20KB")
    shard = next(tmp_path.glob("model-*.safetensors"))
    shard.unlink()
    assert shard.name in error_of(tmp_path)


def test_missing_unexpected_and_misshapen_tensors_are_all_named(folder):
    def damage(tensors: dict) -> dict:
        tensors["bert.encoder.layer.0.output.dense.weight"] = torch.zeros(32, 40)
        tensors["bert.encoder.layer.0.adapter.weight"] = torch.zeros(3)
        tensors["bert.encoder.layer.3.output.dense.bias"] = torch.zeros(32)
        del tensors["bert.encoder.layer.1.attention.self.query.bias"]
        return tensors

    rewrite(folder, damage)
    message = error_of(folder)
    assert "missing: bert.encoder.layer.1.attention.self.query.bias" in message
    assert "bert.encoder.layer.0.output.dense.weight of shape (32, 40)" in message
    assert "(32, 48)" in message
    assert "bert.encoder.layer.0.adapter.weight" in message
    assert "bert.encoder.layer.3.output.dense.bias" in message


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("BertForSequenceClassification", ("classifier.weight", "bert.pooler.dense.weight")),
        ("BertForPreTraining", ("cls.predictions.transform.dense.bias", "cls.seq_relationship.weight")),
        ("RobertaForSequenceClassification", ("classifier.dense.weight", "classifier.out_proj.bias")),
        ("DistilBertForQuestionAnswering", ("qa_outputs.weight",)),
    ],
)
def test_the_head_of_a_checkpoint_has_to_be_whole(name, missing, tmp_path):
    build_tiny(BY_NAME[name]).save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: {key: tensor for key, tensor in tensors.items() if key not in missing})
    message = error_of(tmp_path)
    assert "missing: " in message
    for key in missing:
        assert key in message
    # for another class it is a checkpoint like any other
    assert from_official(tmp_path, tfm_zoo.TfmBertForTokenClassification)


@pytest.mark.parametrize(
    ("native", "name"),
    [
        ("BertForMaskedLM", "cls.predictions.decoder.weight"),
        ("GPT2LMHeadModel", "lm_head.weight"),
        ("LlamaForCausalLM", "lm_head.weight"),
    ],
)
def test_an_untied_head_has_to_be_there(native, name, tmp_path):
    build_tiny(BY_NAME[native], tie_word_embeddings=False).save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name})
    assert f"missing: {name}" in error_of(tmp_path)


def test_a_bare_model_may_lack_its_pooler(tmp_path, caplog):
    build_tiny(BY_NAME["BertModel"]).save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: {key: tensor for key, tensor in tensors.items() if "pooler" not in key})
    ids = torch.arange(5, 14)[None]
    native = transformers.BertModel.from_pretrained(tmp_path)
    assert torch.equal(from_official(tmp_path)(ids)[0], native(ids)[0])
    assert "initialised anew, to be trained first: pooler.dense.weight, pooler.dense.bias." in caplog.text


def test_a_language_model_may_lack_a_pooler(original, folder, caplog):
    assert_same_model(to_official(from_official(folder)), original)
    assert not caplog.text
    assert from_official(folder, tfm_zoo.TfmBertModel).pooler is not None
    assert "pooler.dense.weight" in caplog.text


def test_unexpected_tensors_are_named_wherever_they_stand(tmp_path):
    build_tiny(BY_NAME["BertForSequenceClassification"]).save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: tensors | {"crf.transitions": torch.zeros(3), "extra.weight": torch.ones(2)})
    assert "unexpected: crf.transitions, extra.weight." in error_of(tmp_path)


def test_tensors_of_another_head_are_left_out(original, folder, caplog):
    sentence = {"cls.seq_relationship.weight": torch.zeros(2, 32), "cls.seq_relationship.bias": torch.zeros(2)}
    rewrite(folder, lambda tensors: tensors | sentence)
    assert_same_model(to_official(from_official(folder)), original)
    for name in sentence:
        assert name in caplog.text


def test_quantised_weights(folder):
    name = "bert.encoder.layer.0.output.dense.weight"
    rewrite(folder, lambda tensors: tensors | {name: tensors[name].to(torch.int8)})
    assert f"{name} of shape (32, 48), not of a floating type" in error_of(folder)
    edit_config(folder, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    assert "quantization_config=" in error_of(folder)


def test_no_weights_and_no_config(folder):
    (folder / "model.safetensors").unlink()
    assert "holds no weights" in error_of(folder)
    (folder / "config.json").unlink()
    assert "holds no config.json" in error_of(folder)
    shutil.rmtree(folder)
    assert repr(str(folder)) in error_of(folder)


def test_broken_config(folder):
    (folder / "config.json").write_text("{")
    assert "not valid JSON" in error_of(folder)


def test_other_architectures(folder):
    edit_config(folder, model_type="mamba", architectures=["MambaModel"])
    message = error_of(folder)
    assert "'mamba'" in message
    for known in ("bert", "roberta", "distilbert", "gpt2", "openai-gpt", "llama", "mistral", "qwen2"):
        assert known in message


def test_zoo_models_are_not_official(original, tmp_path):
    zoo = from_official(original)
    zoo.save_pretrained(tmp_path)
    for source in (zoo, tmp_path):
        assert "a model of the zoo already" in error_of(source)


@pytest.mark.parametrize(
    "field", [{"position_embedding_type": "relative_key"}, {"is_decoder": True}, {"add_cross_attention": True}]
)
def test_what_the_zoo_does_not_convert(folder, field):
    edit_config(folder, **field)
    name, value = next(iter(field.items()))
    assert f"{name}={value!r}" in error_of(folder)


def test_misspelt_override(folder):
    message = error_of(folder, hiden_dropout=0.2)
    assert "'hiden_dropout'" in message
    assert "'hidden_dropout'" in message
