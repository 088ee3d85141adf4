"""Every format that checkpoints are found in."""

import json
import os

import pytest
import torch

from tests.conversion.comparison import assert_same_model, assert_same_weights
from tfm_zoo import TfmBertForMaskedLM
from tfm_zoo.converters import ConversionError, from_official, to_official
from tfm_zoo.converters.checkpoint import open_checkpoint


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
    mapped = open_checkpoint(folder, mapped=True).tensors
    assert mapped.keys() == original.state_dict().keys()
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


@pytest.mark.parametrize(
    "asked", [{"output_attentions": True}, {"output_hidden_states": True}, {"return_dict": False}], ids=str
)
def test_outputs_that_a_configuration_asks_for(folder, asked):
    """They are returned, also by what was saved and loaded again; a field of the file that asks for attention weights
    chooses the attention that has them, as transformers does where one is set."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | asked))
    from_official(folder).save_pretrained(folder / "zoo")
    model = TfmBertForMaskedLM.from_pretrained(folder / "zoo")
    assert {name: getattr(model.config, name) for name in asked} == asked
    outputs = model(torch.ones(1, 3, dtype=torch.long))
    if "return_dict" in asked:
        assert type(outputs) is tuple
    else:
        assert len(outputs[-1]) == model.config.num_hidden_layers + ("output_hidden_states" in asked)
    to_official(model).save_pretrained(folder / "back")
    assert asked.items() <= json.loads((folder / "back" / "config.json").read_text()).items()
