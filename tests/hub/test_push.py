"""Models on their way to the Hub and back: all in one commit, or nothing."""

import pytest
from typer.testing import CliRunner

from tfm_zoo import TfmBertForSequenceClassification
from tfm_zoo.cli import app
from tfm_zoo.hub import PushError, push, verify
from tfm_zoo.models.card import MARK
from tfm_zoo.models.manifest import FILE

from ..tiny import tiny_model

REPOSITORY = "user/model"


@pytest.fixture
def folder(tmp_path):
    tiny_model(TfmBertForSequenceClassification).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_one_commit_holds_all(online, folder, hub_server):
    (folder / "checkpoint-5").mkdir()
    (folder / "checkpoint-5" / "optimizer.pt").write_text("not the model's")
    push(folder, REPOSITORY, private=True)
    repository = hub_server.repositories[REPOSITORY]
    head = repository.branches["main"]
    files = {path.name for path in folder.iterdir() if path.is_file()}
    assert files <= set(repository.at("main").files) and FILE in files
    assert "checkpoint-5/optimizer.pt" not in repository.at("main").files
    push(folder, REPOSITORY)
    assert repository.branches["main"] == head
    assert verify(REPOSITORY, token="hf_user").ok


def test_a_revision_of_its_own(online, folder, hub_server):
    push(folder, REPOSITORY)
    before = hub_server.repositories[REPOSITORY].branches["main"]
    tiny_model(TfmBertForSequenceClassification, seed=1).save_pretrained(folder)
    push(folder, REPOSITORY, revision="tuned")
    branches = hub_server.repositories[REPOSITORY].branches
    assert branches["main"] == before != branches["tuned"]


def test_a_card_that_a_person_wrote_stays(online, folder, hub_server):
    (folder / "README.md").write_text(f"---\nlicense: mit\n---\n{MARK.format('model')}\nfrom a recipe")
    push(folder, REPOSITORY)
    repository = hub_server.repositories[REPOSITORY]
    assert b"from a recipe" in repository.read("README.md", "main")
    (folder / "README.md").write_text("---\nlicense: mit\n---\nmy own")
    push(folder, REPOSITORY)
    assert b"my own" in repository.read("README.md", "main")
    (folder / "README.md").write_text(f"---\nlicense: mit\n---\n{MARK.format('model')}\nfrom a recipe")
    push(folder, REPOSITORY)
    assert b"my own" in repository.read("README.md", "main")


@pytest.mark.parametrize("action", ["upload", "commit"])
def test_interrupted_and_run_again(online, folder, hub_server, action):
    push(folder, REPOSITORY)
    repository = hub_server.repositories[REPOSITORY]
    before = repository.branches["main"]
    tiny_model(TfmBertForSequenceClassification, seed=1).save_pretrained(folder)
    (folder / "new.txt").write_text("new")
    hub_server.fail(action, 403)
    with pytest.raises(
        PushError,
        match=r"The upload to user/model failed: .* It lacks new.txt: .* Push again \(tfm-zoo push .* user/model\)",
    ):
        push(folder, REPOSITORY)
    assert repository.branches["main"] == before
    hub_server.faults.clear()
    push(folder, REPOSITORY)
    assert repository.branches["main"] != before
    assert repository.read(FILE, "main") == (folder / FILE).read_bytes()


def test_nothing_is_sent_of_what_is_no_model(online, tmp_path, hub_server):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"it has no zoo_manifest\.json, no code, no weights\."):
        push(tmp_path, REPOSITORY)
    assert REPOSITORY not in hub_server.repositories


def test_command(online, folder, hub_server):
    done = CliRunner().invoke(app, ["push", str(folder), REPOSITORY, "--commit-message", "First"])
    assert done.exit_code == 0 and hub_server.url in done.output.replace("\n", "")
    refused = CliRunner().invoke(app, ["push", str(folder), "other/model"])
    assert refused.exit_code == 1 and "error:" in refused.output
