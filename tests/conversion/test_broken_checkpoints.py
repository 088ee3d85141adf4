"""What is wrong with some checkpoints: each is refused at once, with the file, the value or the tensors named."""

import json
import logging
import re
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
from tfm_zoo.commands import screen
from tfm_zoo.commands.models import load
from tfm_zoo.converters import ConversionError, checkpoint, from_official, sources, to_official
from tfm_zoo.hub import push
from tfm_zoo.proof import verify
from tfm_zoo.utils import quiet

DENSE = "bert.encoder.layer.0.output.dense.weight"
EIGHT_BITS = {"quant_method": "bitsandbytes", "load_in_8bit": True}
NO_MODEL = {"crf.transitions": torch.zeros(3), "extra.weight": torch.ones(2)}


def refusal(source, *args, **kwargs) -> str:
    with pytest.raises(ConversionError) as caught:
        from_official(source, *args, **kwargs)
    return str(caught.value)


def shards(folder, names) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": names}} if names else {}))


def as_bin(folder, content, cut: int = 0) -> None:
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    torch.save(content, file)
    file.write_bytes(file.read_bytes()[: -cut or None])


def in_integers(tensors: dict) -> dict:
    return tensors | {DENSE: tensors[DENSE].to(torch.int8)}


def truncate(folder) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncate, "FOLDER/model.safetensors is truncated"),
        (partial(as_bin, content={"a": torch.zeros(1000)}, cut=1000), "FOLDER/pytorch_model.bin is truncated"),
        (partial(as_bin, content=torch.zeros(2)), "pytorch_model.bin holds a Tensor; it should hold a dict"),
        (partial(shards, names="model-00001.safetensors"), "the folder lacks: model-00001.safetensors"),
        (partial(shards, names=None), "model.safetensors.index.json has no weight_map"),
        (partial(shards, names="notes.txt"), "'notes.txt' as a file of weights"),
        (partial(shards, names=["x"]), "['x'] as a file"),
        (lambda folder: (folder / "model.safetensors").unlink(), "holds no weights"),
        (lambda folder: (folder / "config.json").unlink(), "holds no config.json"),
        (shutil.rmtree, "'FOLDER'"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is not valid JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json holds a list; it should hold an obj"),
        (lambda folder: (folder / "generation_config.json").write_text("[]"), "generation_config.json holds a list"),
        (lambda folder: edit_config(folder, quantization_config=EIGHT_BITS), "quantization_config="),
        (lambda folder: rewrite(folder, in_integers), f"{DENSE} of shape (32, 48), not of a floating type"),
        (partial(rewrite, change=lambda tensors: tensors | NO_MODEL), "unexpected: crf.transitions, extra.weight."),
    ],
)
def test_what_is_broken_is_named(folder, damage, words):
    damage(folder)
    assert words.replace("FOLDER", str(folder)) in refusal(folder)


@pytest.mark.parametrize(
    "field",
    [
        *({"num_hidden_layers": 100_000}, {"num_hidden_layers": -1}, {"num_local_experts": 100_000}),
        *({"hidden_size": 10**9}, {"vocab_size": 10**12}, {"model_type": ["bert"]}, {"architectures": [["BertModel"]]}),
        *({"id2label": [1]}, {"rope_parameters": "x"}, {"pad_token_id": {}}, {"dtype": 3}),
    ],
    ids=str,
)
def test_what_no_configuration_holds_is_named(folder, field):
    """At once, too: a model of so many layers would take hours to build."""
    ((name, value),) = field.items()
    edit_config(folder, **field)
    assert f"{name}={value!r}" in refusal(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_pointers_of_git_lfs(folder, name):
    """Beside whole weights, a pointer instead of weights in another format does no harm."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"
    (folder / "pytorch_model.bin").write_text(pointer)
    from_official(folder)
    (folder / name).write_text(pointer)
    message = f"{folder / name} is a Git LFS pointer, not the file itself: run `git lfs pull` in its clone."
    assert refusal(folder) == message
    for refuse in (verify, sources.check_source):
        with pytest.raises(ValueError, match="is a Git LFS pointer"):
            refuse(folder)


def test_missing_unexpected_and_misshapen_tensors_are_all_named(folder):
    def damage(tensors: dict) -> dict:
        tensors[DENSE] = torch.zeros(32, 40)
        tensors["bert.encoder.layer.0.adapter.weight"] = torch.zeros(3)
        tensors["bert.encoder.layer.3.output.dense.bias"] = torch.zeros(32)
        del tensors["bert.encoder.layer.1.attention.self.query.bias"]
        return tensors

    rewrite(folder, damage)
    missing, unexpected, misshapen = refusal(folder).splitlines()[1:]
    assert missing == "missing: bert.encoder.layer.1.attention.self.query.bias."
    assert "unexpected: " in unexpected and "layer.0.adapter.weight" in unexpected
    assert "bert.encoder.layer.3.output.dense.bias" in unexpected
    assert re.search(rf"misshapen: {DENSE} of shape \(32, 40\), where .* \(32, 48\)", misshapen)


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
    message = refusal(tmp_path)
    assert "missing: " in message and all(key in message for key in missing)
    # for another class it is a checkpoint like any other
    assert from_official(tmp_path, tfm_zoo.TfmBertForTokenClassification)


def test_what_was_given_beside_the_checkpoint_is_named(folder):
    message = refusal(folder, norm_position="pre", hidden_dropout=0.2)
    assert "missing: model.norm.weight" in message
    assert "It may be for what was given: norm_position='pre', hidden_dropout=0.2." in message.splitlines()[-1]


def test_misspelt_override(folder):
    message = refusal(folder, hiden_dropout=0.2)
    assert "'hiden_dropout'" in message and "'hidden_dropout'" in message


def test_a_bare_model_may_lack_its_pooler(original, folder, caplog):
    assert_same_model(to_official(from_official(folder)), original)
    assert not caplog.text  # a language model has none
    assert from_official(folder, tfm_zoo.TfmBertModel).pooler is not None
    assert "pooler.dense.weight" in caplog.text
    build_tiny(BY_NAME["BertModel"]).save_pretrained(folder)
    rewrite(folder, lambda tensors: {key: tensor for key, tensor in tensors.items() if "pooler" not in key})
    ids = torch.arange(5, 14)[None]
    native = transformers.BertModel.from_pretrained(folder)
    assert torch.equal(from_official(folder)(ids)[0], native(ids)[0])
    assert "no weights that fit pooler.dense.weight, pooler.dense.bias: new weights were made" in caplog.text


def test_tensors_of_another_head_are_left_out(original, folder, caplog):
    sentence = {"cls.seq_relationship.weight": torch.zeros(2, 32), "cls.seq_relationship.bias": torch.zeros(2)}
    rewrite(folder, lambda tensors: tensors | sentence)
    assert_same_model(to_official(from_official(folder)), original)
    assert all(name in caplog.text for name in sentence)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"intermediate_size": 7}, r"model.layers.0.mlp.up_proj.weight of shape \(\d+, \d+\), not \(7, "),
        ({"rope_parameters": "x"}, "rope_parameters='x' is not a value"),
    ],
)
def test_a_zoo_model_that_is_not_as_its_configuration_says(field, message, tmp_path):
    tiny_model(tfm_zoo.TfmBertForMaskedLM).save_pretrained(tmp_path)
    edit_config(tmp_path, **field)
    with pytest.raises(ConversionError, match=message):
        load(tmp_path)


def test_zoo_models_are_not_official(original, tmp_path):
    zoo = from_official(original)
    zoo.save_pretrained(tmp_path)
    for source in (zoo, tmp_path):
        assert "a model of the zoo already" in refusal(source)


def test_control_codes_do_not_reach_the_terminal(capsys):
    """As they may stand in labels, cards, names of tensors, and tokens."""
    screen.report("a \x1b[31mred\x07 label\nand \u202eanother, \N{LATIN SMALL LETTER U WITH DIAERESIS}")
    shown = "a \\x1b[31mred\\x07 label\nand \\u202eanother, \N{LATIN SMALL LETTER U WITH DIAERESIS}\n"
    assert capsys.readouterr().out == shown


def test_a_log_line_without_control_codes_keeps_its_arguments():
    """uvicorn's formatter reads them."""
    make_record = logging.getLogRecordFactory()
    try:
        quiet.silence_control_codes()
        made = logging.getLogRecordFactory()
        records = [made("name", logging.INFO, "file", 1, "%s asked", (text,), None) for text in ("he", "\x1b[31mhe")]
    finally:
        logging.setLogRecordFactory(make_record)
    assert [record.args for record in records] == [("he",), ()]
    assert [record.getMessage() for record in records] == ["he asked", "\\x1b[31mhe asked"]


def test_the_hub_is_not_asked_for_a_misspelt_folder(tmp_path, monkeypatch):
    """Without a connection, it would take half a minute to say no."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "imdb").mkdir(parents=True)
    (tmp_path / "runs" / "my model2").mkdir()
    monkeypatch.delattr(checkpoint, "snapshot_download")
    monkeypatch.delattr(sys.modules[verify.__module__], "snapshot_download")
    assert refusal("./nowhere") == "There is no folder './nowhere'."
    assert refusal("runs/my model") == "There is no folder 'runs/my model'; did you mean 'runs/my model2'?"
    assert refusal("runs/imbd") == "There is no folder 'runs/imbd'; did you mean 'runs/imdb'?"
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
    assert "did you mean 'user/model-zoo'?" in refusal("user/model-zo")
