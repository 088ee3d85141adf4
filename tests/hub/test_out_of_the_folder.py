"""Nothing outside of a checkpoint's folder is read or sent, whatever its links, its index or its manifest name."""

import json
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tfm_zoo import TfmBertForSequenceClassification
from tfm_zoo.cli import app
from tfm_zoo.converters.checkpoint import fetch
from tfm_zoo.hub import push, record, verify
from tfm_zoo.hub.manifest import FILE, write

from ..tiny import tiny_model
from .editing import edit


@pytest.fixture
def folder(tmp_path):
    tiny_model(TfmBertForSequenceClassification).save_pretrained(tmp_path / "model", max_shard_size="20KB")
    (tmp_path / "secret").write_text("private")
    return tmp_path / "model"


def link(name: str, target: str, folder: Path) -> str:
    place = folder.parent / target
    if (folder / name).exists():
        (folder / name).rename(place)
    elif not place.exists():
        place.mkdir()
    (folder / name).symlink_to(place)
    return name


def index(folder: Path) -> str:
    names = edit(folder, "model.safetensors.index.json")["weight_map"]
    edit(folder, "model.safetensors.index.json", weight_map=names | {min(names): "../secret"})
    return "../secret"


def manifest(folder: Path) -> str:
    edit(folder, FILE, code=edit(folder, FILE)["code"] | {"/etc/hostname": "0"})
    return "/etc/hostname"


VOCABULARY = partial(link, "vocab.txt", "secret")
LINKS = [
    VOCABULARY,
    partial(link, "1_Pooling", "1_Pooling"),
    partial(link, "README.md", "secret"),
    partial(link, FILE, FILE),
]


@pytest.mark.parametrize("attack", [VOCABULARY, index, manifest])
def test_push(online, folder, hub_server, attack):
    name = attack(folder)
    for native in (False, True):
        with pytest.raises(ValueError, match=f"{name} leads out of"):
            push(folder, "user/model", native=native)
    assert not hub_server.repositories


@pytest.mark.parametrize("attack", [index, manifest])
def test_verify(folder, attack, monkeypatch):
    """Wherever one stands."""
    monkeypatch.setattr("subprocess.run", None)  # nothing runs
    name = attack(folder)
    for place, source in ((folder, folder), (folder.parent, folder.name), (folder, ".")):
        monkeypatch.chdir(place)
        with pytest.raises(ValueError, match=f"{name} leads out of .*model, to "):
            verify(source)


@pytest.mark.parametrize("attack", LINKS, ids=lambda attack: attack.args[0])
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


@pytest.mark.parametrize("attack", [VOCABULARY, index])
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
