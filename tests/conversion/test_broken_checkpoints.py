"""What is wrong with some checkpoints: each is refused, with the file, the value or the tensors named."""

import json
import logging
import shutil
import sys
from functools import partial

import pytest
import torch
import transformers
from huggingface_hub import constants

import tfm_zoo
from tests.conversion.comparison import assert_same_model
from tests.conversion.folders import edit_config, rewrite
from tests.official_models import BY_NAME, build_tiny
from tests.tiny import tiny_model
from tfm_zoo import quiet
from tfm_zoo.commands import screen
from tfm_zoo.commands.models import load
from tfm_zoo.converters import ConversionError, checkpoint, from_official, sources, to_official
from tfm_zoo.hub import push, verify


def error_of(folder, *args, **kwargs) -> str:
    with pytest.raises(ConversionError) as caught:
        from_official(folder, *args, **kwargs)
    return str(caught.value)


def test_truncated(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    assert f"{file} is truncated" in error_of(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_pointers_of_git_lfs(folder, name):
    """Beside whole weights, a pointer in the place of weights in another format does no harm."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"
    (folder / "pytorch_model.bin").write_text(pointer)
    from_official(folder)
    (folder / name).write_text(pointer)
    message = f"{folder / name} is a Git LFS pointer, not the file itself: run `git lfs pull` in its clone."
    assert error_of(folder) == message
    for refuse in (partial(verify, folder), partial(sources.check_source, folder)):
        with pytest.raises(ValueError, match="is a Git LFS pointer"):
            refuse()


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


def test_what_was_given_beside_the_checkpoint_is_named(folder):
    message = error_of(folder, norm_position="pre", hidden_dropout=0.2)
    assert "missing: model.norm.weight" in message
    assert "It may be for what was given: norm_position='pre', hidden_dropout=0.2." in message.splitlines()[-1]


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
    assert "no weights that fit pooler.dense.weight, pooler.dense.bias: new weights were made" in caplog.text


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
    (folder / "config.json").write_text("[]")
    assert "config.json holds a list; it should hold an object" in error_of(folder)


def test_weights_that_are_no_dict_or_have_no_index(folder):
    (folder / "model.safetensors").unlink()
    torch.save(torch.zeros(2), folder / "pytorch_model.bin")
    assert "pytorch_model.bin holds a Tensor; it should hold a dict" in error_of(folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    assert "model.safetensors.index.json has no weight_map" in error_of(folder)


@pytest.mark.parametrize(
    "field",
    [
        {"num_hidden_layers": 100_000},
        {"num_hidden_layers": -1},
        {"num_local_experts": 100_000},
        {"hidden_size": 10**9},
        {"vocab_size": 10**12},
        {"model_type": ["bert"]},
        {"architectures": [["BertModel"]]},
        {"id2label": [1]},
        {"rope_parameters": "x"},
        {"pad_token_id": {}},
        {"dtype": 3},
    ],
)
def test_what_no_configuration_holds_is_named(folder, field):
    """At once, too: a model of so many layers would take hours to build."""
    name, value = next(iter(field.items()))
    edit_config(folder, **field)
    assert f"{name}={value!r}" in error_of(folder)


def test_files_that_are_no_weights_and_settings_that_are_no_object(folder):
    (folder / "generation_config.json").write_text("[]")
    assert "generation_config.json holds a list" in error_of(folder)
    (folder / "model.safetensors").unlink()
    for name, wanted in (("notes.txt", "notes.txt' as a file of weights"), (["x"], "['x'] as a file")):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
        assert wanted in error_of(folder)


def test_a_zoo_model_that_is_not_as_its_configuration_says(tmp_path):
    tiny_model(tfm_zoo.TfmBertForMaskedLM).save_pretrained(tmp_path)
    for fields, wanted in {
        "intermediate_size=7": r"model.layers.0.mlp.up_proj.weight of shape \(\d+, \d+\), not \(7, ",
        "rope_parameters=x": "rope_parameters='x' is no value",
    }.items():
        name, _, value = fields.partition("=")
        before = (tmp_path / "config.json").read_text()
        edit_config(tmp_path, **{name: int(value) if value.isdigit() else value})
        with pytest.raises(ConversionError, match=wanted):
            load(tmp_path)
        (tmp_path / "config.json").write_text(before)


def test_control_codes_do_not_reach_the_terminal(capsys):
    """As they may stand in labels, cards, names of tensors, and tokens."""
    screen.report("a \x1b[31mred\x07 label\nand \u202eanother, \N{LATIN SMALL LETTER U WITH DIAERESIS}")
    assert (
        capsys.readouterr().out
        == "a \\x1b[31mred\\x07 label\nand \\u202eanother, \N{LATIN SMALL LETTER U WITH DIAERESIS}\n"
    )


def test_a_log_line_without_control_codes_keeps_its_arguments():
    """uvicorn's formatter reads them."""
    make_record = logging.getLogRecordFactory()
    try:
        quiet.hush_control_codes()
        made = logging.getLogRecordFactory()
        records = [made("name", logging.INFO, "file", 1, "%s asked", (text,), None) for text in ("he", "\x1b[31mhe")]
    finally:
        logging.setLogRecordFactory(make_record)
    assert [record.args for record in records] == [("he",), ()]
    assert [record.getMessage() for record in records] == ["he asked", "\\x1b[31mhe asked"]


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


def test_the_hub_is_not_asked_for_a_misspelt_folder(tmp_path, monkeypatch):
    """Without a connection, it would take half a minute to say no."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "imdb").mkdir(parents=True)
    monkeypatch.delattr(checkpoint, "snapshot_download")
    monkeypatch.delattr(sys.modules[verify.__module__], "snapshot_download")
    assert error_of("runs/imbd") == "There is no folder 'runs/imbd'; did you mean 'runs/imdb'?"
    assert error_of("./nowhere") == "There is no folder './nowhere'."
    (tmp_path / "runs" / "my model2").mkdir()
    assert error_of("runs/my model") == "There is no folder 'runs/my model'; did you mean 'runs/my model2'?"
    monkeypatch.delattr(sources, "HfApi")
    assert sources.is_path("runs/imdb")  # nobody is asked for a folder that is there
    for command in (verify, partial(push, repo_id="user/model")):
        with pytest.raises(FileNotFoundError, match="There is no folder 'runs/imbd'; did you mean 'runs/imdb'"):
            command("runs/imbd")


def test_a_hub_id_beside_a_folder_with_a_similar_name(original, folder, tmp_path, online, monkeypatch):
    """As `tfm-zoo convert user/model user/model-zoo` leaves one; on the Hub, and in its cache."""
    (tmp_path / "user" / "model-zoo").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    online().create_repo("user/model")
    online().upload_folder(repo_id="user/model", folder_path=folder)
    assert_same_model(to_official(from_official("user/model")), original)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert_same_model(to_official(from_official("user/model")), original)
    assert "did you mean 'user/model-zoo'?" in error_of("user/model-zo")
