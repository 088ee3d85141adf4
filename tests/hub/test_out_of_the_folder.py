"""Nothing outside of a checkpoint's folder is read or sent, whatever its links, its index or its manifest name."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tfm_zoo import TfmBertForSequenceClassification
from tfm_zoo.cli import app
from tfm_zoo.converters.checkpoint import fetch
from tfm_zoo.hub import push, record, verify
from tfm_zoo.hub.manifest import FILE, write

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


def link_to_folder(folder: Path) -> str:
    (folder.parent / "1_Pooling").mkdir()
    (folder / "1_Pooling").symlink_to(folder.parent / "1_Pooling")
    return "1_Pooling"


def link_of_card(folder: Path) -> str:
    (folder / "README.md").symlink_to(folder.parent / "secret")
    return "README.md"


def link_of_manifest(folder: Path) -> str:
    (folder / FILE).rename(folder.parent / FILE)
    (folder / FILE).symlink_to(folder.parent / FILE)
    return FILE


@pytest.mark.parametrize("attack", [link, index, manifest])
def test_push(online, folder, hub_server, attack):
    name = attack(folder)
    for native in (False, True):
        with pytest.raises(ValueError, match=f"{name} leads out of"):
            push(folder, REPOSITORY, native=native)
    assert REPOSITORY not in hub_server.repositories


@pytest.mark.parametrize("attack", [index, manifest])
def test_verify(folder, attack, monkeypatch):
    """Wherever one stands."""
    monkeypatch.setattr("subprocess.run", None)  # nothing runs
    name = attack(folder)
    for place, source in ((folder, folder), (folder.parent, folder.name), (folder, ".")):
        monkeypatch.chdir(place)
        with pytest.raises(ValueError, match=f"{name} leads out of .*model, to "):
            verify(source)


@pytest.mark.parametrize("attack", [link, link_to_folder, link_of_card, link_of_manifest])
def test_links(folder, attack, monkeypatch):
    """What they lead to is neither read nor, by `record` and the line of a card, written."""
    monkeypatch.setattr("subprocess.run", None)
    name, before = attack(folder), {path: path.read_bytes() for path in folder.parent.glob("*") if path.is_file()}
    for act in (verify, record):
        with pytest.raises(ValueError, match=name):
            act(folder)
    assert before == {path: path.read_bytes() for path in folder.parent.glob("*") if path.is_file()}


def test_a_link_in_what_is_not_read(folder):
    """Trackers of trainings leave some."""
    (folder / "wandb" / "run-1").mkdir(parents=True)
    (folder / "wandb" / "latest-run").symlink_to("run-1")
    assert verify(folder, code_only=True).ok


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
    kept, blob = json.loads((snapshot / FILE).read_text()), (snapshot / FILE).resolve()
    write(kept | {"date": "today"}, snapshot / FILE)
    assert json.loads(blob.read_text()) == kept and json.loads((snapshot / FILE).read_text())["date"] == "today"
    (snapshot / "vocab.txt").symlink_to("../../../secret")
    with pytest.raises(ValueError, match=r"vocab\.txt leads out of"):
        fetch(snapshot)
