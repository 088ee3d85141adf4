"""Nothing outside of a checkpoint's folder is read or sent, whatever its links, its index or its manifest name."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tfm_zoo import TfmBertForSequenceClassification
from tfm_zoo.cli import app
from tfm_zoo.converters.checkpoint import fetch
from tfm_zoo.hub import push, verify
from tfm_zoo.hub.manifest import FILE

from ..tiny import tiny_model

REPOSITORY = "user/model"


@pytest.fixture
def folder(tmp_path):
    tiny_model(TfmBertForSequenceClassification).save_pretrained(tmp_path / "model", max_shard_size="20KB")
    (tmp_path / "secret").write_text("private")
    return tmp_path / "model"


def link(folder: Path) -> str:
    (folder / "vocab.txt").symlink_to(folder.parent / "secret")
    return "vocab.txt"


def index(folder: Path) -> str:
    path = folder / "model.safetensors.index.json"
    fields = json.loads(path.read_text())
    name = sorted(fields["weight_map"])[0]
    fields["weight_map"][name] = "../secret"
    path.write_text(json.dumps(fields))
    return "../secret"


def manifest(folder: Path) -> str:
    fields = json.loads((folder / FILE).read_text())
    fields["code"]["/etc/hostname"] = "0"
    (folder / FILE).write_text(json.dumps(fields))
    return "/etc/hostname"


@pytest.mark.parametrize("attack", [link, index, manifest])
def test_push(online, folder, hub_server, attack):
    with pytest.raises((ValueError, OSError), match=attack(folder)):
        push(folder, REPOSITORY)
    assert REPOSITORY not in hub_server.repositories


@pytest.mark.parametrize("attack", [index, manifest])
def test_verify(folder, attack, monkeypatch):
    monkeypatch.setattr("subprocess.run", None)  # nothing runs
    with pytest.raises(ValueError, match=f"{attack(folder)} leads out of .*model, to "):
        verify(folder)


@pytest.mark.parametrize("attack", [link, index])
def test_commands(folder, tmp_path, attack):
    name = attack(folder)
    for command in (["export"], ["convert", "--quantize", "int8"]):
        done = CliRunner().invoke(app, [*command, str(folder), str(tmp_path / "out")])
        assert done.exit_code == 1 and f"{name} leads out of {folder}, to " in done.output, done.output
    assert not (tmp_path / "out").exists()


def test_links_of_the_cache_are_sound(folder):
    snapshot, blobs = (folder.parent / "models--user--model" / name for name in ("snapshots/0123", "blobs"))
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in folder.iterdir():
        file.rename(blobs / file.name)
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    assert fetch(snapshot) == snapshot
    (snapshot / "vocab.txt").symlink_to("../../../secret")
    with pytest.raises(ValueError, match=r"vocab\.txt leads out of"):
        fetch(snapshot)
