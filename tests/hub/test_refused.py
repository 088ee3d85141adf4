"""A folder that is not what it should be is refused in one line, before anything runs, is written or is sent; and
nothing outside of it is read, whatever its links, its index or its manifest name."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tfm_zoo import TfmBertForSequenceClassification
from tfm_zoo.commands.models import load
from tfm_zoo.converters.checkpoint import fetch
from tfm_zoo.hub import push, pushing
from tfm_zoo.proof import record, verify, verifying
from tfm_zoo.proof.manifest import complete_manifest, write
from tfm_zoo.utils.folder_kinds import MANIFEST as FILE

from ..command import tfm_zoo
from ..tiny import tiny_model
from .editing import CONFIG, INDEX, TOKENIZER, both, delete, edited, tensors
from .editing import write as writing

SHARD = "model-00001-of-00005.safetensors"


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    tiny_model(TfmBertForSequenceClassification).save_pretrained(folder, max_shard_size="20KB")
    return folder


@pytest.fixture
def folder(saved, tmp_path, monkeypatch):
    monkeypatch.setattr("subprocess.run", None)
    monkeypatch.setattr(pushing, "open_repository", None)
    shutil.copy(saved / FILE, tmp_path / "secret")  # which could be read
    return Path(shutil.copytree(saved, tmp_path / "model"))


def by_command(*words: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        raise ValueError(tfm_zoo(*words, folder, folder.parent / "out", code=1))

    return act


PUSH, OFFICIAL = partial(push, repo_id="user/model"), partial(push, repo_id="user/model", native=True)
READING = (verify, record, PUSH)
#: what else would take files of the folder along
OTHERS = (OFFICIAL, by_command("export"), by_command("convert", "--quantize", "int8"))


def link(name: str, target: str) -> Callable[[Path], None]:
    """To what lies beside the folder."""

    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(folder.parent / target)

    return change


ODD = {name: {} for name in verifying.FIELDS} | {"weights": [], "fingerprint": {"outputs": {"x": 3}}}
LOADING, SENDING = (*READING, load), (verify, PUSH)
CHANGED = tensors(lambda given: {name: value + 1 for name, value in given.items()}, SHARD)
#: what is done to the folder, what would read or send it, and what its refusal says
CASES = [
    (link("vocab.txt", "secret"), (*READING, *OTHERS), "vocab.txt leads out of "),
    (link("1_Pooling", "."), (verify, record), "1_Pooling: a link to a folder"),
    (link("README.md", "secret"), (verify, record), "README.md leads out of "),
    (link(FILE, "secret"), (verify, record), f"{FILE} leads out of "),
    (edited(INDEX, weight_map={"a": "../secret"}), (*LOADING, *OTHERS), "../secret leads out of .*model, to "),
    (edited(FILE, code={"/etc/hostname": "0"}), SENDING, "/etc/hostname leads out of .*model, to "),
    *((writing(CONFIG, text), LOADING, "config.json ") for text in ("", "[]", "[" * 9999)),
    (edited(CONFIG, auto_map=["a.B"]), READING, rf"{CONFIG} has auto_map=\['a.B'\]; it should name a"),
    (edited(f"part/{CONFIG}", auto_map=3), READING, f"part/{CONFIG} has auto_map=3; it should name a class"),
    (edited(CONFIG, num_hidden_layers=100_000), LOADING, f"{CONFIG} has num_hidden_layers=100000, and weights of"),
    (edited(CONFIG, part={"n_embd": 10**9}), LOADING, f"{CONFIG} has part.n_embd=1000000000, and weights of"),
    (edited(CONFIG, num_hidden_layers=-1), LOADING, f"{CONFIG} has num_hidden_layers=-1; it should not be negative"),
    *((writing(INDEX, text), LOADING, INDEX) for text in ("", "[]", "{}", '{"weight_map": ["x"]}')),
    (edited(INDEX, weight_map={"a": 3}), LOADING, INDEX),
    (writing(FILE, "{}"), SENDING, f"{FILE} has no tfm_zoo, no transformers, .* no fingerprint: it is not a manifest"),
    (writing(FILE, json.dumps(ODD)), SENDING, "not a manifest, .*: look at .*weights, .*fingerprint.outputs.x"),
    *((writing(FILE, text), SENDING, f"{FILE} .*{said}") for text, said in (("{", "cannot be"), ("[]", "holds list"))),
    (both(complete_manifest, writing(TOKENIZER, "[]")), (verify,), f"{TOKENIZER} .*holds list"),
    (delete(CONFIG), (verify,), f"{CONFIG} .*cannot be read: .*No such file"),
    (lambda _: None, (partial(verify, dtype="float33"),), "dtype='float33' should be one of: auto, float"),
    (delete(FILE), (verify,), f"has no {FILE}"),
    (delete(FILE), (PUSH,), f"lacks {FILE}"),
    (shutil.rmtree, (verify, PUSH), "There is no folder "),
    (delete(SHARD), (PUSH,), f"it lacks {SHARD}"),
    (writing("positions.py", "\n"), (PUSH,), r"positions.py has been changed\. It differs from what was saved"),
    (CHANGED, (PUSH,), r"weights changed: .*\. It differs from what was saved"),
]


@pytest.mark.parametrize(("change", "acts", "message"), CASES, ids=[row[2] for row in CASES])
def test_it_is_named(change, acts, message, folder):
    change(folder)
    before = {path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file()}
    for act in acts:
        with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
            act(folder)
        assert "\n" not in str(caught.value)
    assert before == {path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file()}


def test_links_that_are_sound(folder):
    """Those of trackers, which are not read; and those of the Hub's cache, which the manifest does not follow."""
    (folder / "wandb" / "run-1").mkdir(parents=True)
    (folder / "wandb" / "latest-run").symlink_to("run-1")
    assert verify(folder, code_only=True).ok
    snapshot, blobs = (folder.parent / "models--user--model" / name for name in ("snapshots/0123", "blobs"))
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in (path for path in folder.iterdir() if path.is_file()):
        file.rename(blobs / file.name)
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    assert fetch(snapshot) == snapshot
    kept, blob = json.loads((snapshot / FILE).read_text()), (snapshot / FILE).resolve()
    write(kept | {"date": "today"}, snapshot / FILE)
    assert json.loads(blob.read_text()) == kept and json.loads((snapshot / FILE).read_text())["date"] == "today"
    (snapshot / "vocab.txt").symlink_to("../../../secret")
    with pytest.raises(ValueError, match=r"vocab\.txt leads out of"):
        fetch(snapshot)
