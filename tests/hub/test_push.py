"""Models on their way to the Hub and back: all in one commit, or nothing."""

import threading

import pytest
from huggingface_hub import ModelCard, close_session
from transformers import Trainer, TrainingArguments
from typer.testing import CliRunner

from tfm_zoo import TfmBertForSequenceClassification, TfmGPTForCausalLM
from tfm_zoo.cli import app
from tfm_zoo.hub import PushError, push, verify
from tfm_zoo.hub.manifest import FILE
from tfm_zoo.hub.model_card import MARK

from ..tiny import tiny_model

REPOSITORY = "user/model"


@pytest.fixture
def folder(tmp_path):
    tiny_model(TfmBertForSequenceClassification).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
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


@pytest.mark.parametrize("action", ["preupload", "commit"])
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


def test_no_connection(folder, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    close_session()
    message = (
        r"The Hub \(http://127\.0\.0\.1:9\) cannot be reached: .* Nothing was sent; .*: tfm-zoo push .* user/model"
    )
    with pytest.raises(PushError, match=message):
        push(folder, REPOSITORY, token="hf_user")
    close_session()


def test_nothing_is_sent_of_what_is_no_model(online, tmp_path, hub_server):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"it has no zoo_manifest\.json, no code, no weights\."):
        push(tmp_path, REPOSITORY)
    assert REPOSITORY not in hub_server.repositories


@pytest.mark.parametrize("name", ["positions.py", "model.safetensors"])
def test_what_nobody_could_verify_is_not_pushed(online, folder, hub_server, name):
    if name == "positions.py":
        (folder / name).write_text((folder / name).read_text() + "\n")
    else:
        tiny_model(TfmBertForSequenceClassification, seed=1).save_pretrained(folder.parent / "other")
        (folder / name).write_bytes((folder.parent / "other" / name).read_bytes())
    wanted = r"(positions.py has been changed|weights changed: .*)\. It is not what was saved"
    with pytest.raises(ValueError, match=wanted):
        push(folder, REPOSITORY)
    assert REPOSITORY not in hub_server.repositories


def test_command(online, folder, hub_server):
    done = CliRunner().invoke(app, ["push", str(folder), REPOSITORY, "--commit-message", "First"])
    assert done.exit_code == 0 and hub_server.url in done.output.replace("\n", "")
    refused = CliRunner().invoke(app, ["push", str(folder), "other/model"])
    assert refused.exit_code == 1 and "error:" in refused.output


def served(hub_server, revision: str = "main") -> set[str]:
    return set(hub_server.repositories[REPOSITORY].at(revision).files) - {".gitattributes"}


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_what_an_earlier_push_left_goes(online, tmp_path, hub_server):
    """Shards beside a whole file, or beside fewer; code of another family: what loads is what was pushed last."""
    heads = [TfmBertForSequenceClassification] * 3 + [TfmGPTForCausalLM]
    for seed, (head, size) in enumerate(zip(heads, ("1GB", "8KB", "20KB", "1GB"), strict=True)):
        model = tiny_model(head, seed=seed)
        model.save_pretrained(tmp_path / str(seed), max_shard_size=size)
        push(tmp_path / str(seed), REPOSITORY)
        names = {path.name for path in (tmp_path / str(seed)).iterdir()}
        assert served(hub_server) == names | {"README.md"}
        verdict = verify(REPOSITORY, token="hf_user")
        assert verdict.ok, verdict
    model = tiny_model(heads[0])
    model.push_to_hub(REPOSITORY, max_shard_size="8KB")
    assert "model.safetensors" not in served(hub_server) and "modeling_tfm_gpt.py" not in served(hub_server)
    assert verify(REPOSITORY, token="hf_user").ok


def test_save_and_push_sends_what_was_saved(online, tmp_path, hub_server):
    model = tiny_model(TfmBertForSequenceClassification)
    halved = {name: tensor / 2 for name, tensor in model.state_dict().items()}
    options = {"repo_id": REPOSITORY, "max_shard_size": "8KB", "commit_message": "Halved", "tags": "given"}
    model.save_pretrained(tmp_path, state_dict=halved, push_to_hub=True, **options)
    repository = hub_server.repositories[REPOSITORY]
    assert served(hub_server) == {path.name for path in tmp_path.iterdir()} | {"README.md"}
    assert "given" in ModelCard(repository.read("README.md", "main").decode()).data.tags
    for path in tmp_path.iterdir():
        assert repository.read(path.name, "main") == path.read_bytes(), path.name


def test_tags_and_a_card_of_ones_own(online, hub_server):
    model = tiny_model(TfmBertForSequenceClassification)
    model.add_model_tags(["mine"])
    model.push_to_hub(REPOSITORY, tags=["given"])
    repository = hub_server.repositories[REPOSITORY]
    assert {"mine", "given", "tfm_zoo"} <= set(ModelCard(repository.read("README.md", "main").decode()).data.tags)
    own = "---\n# a comment\nlicense: mit   # yes\ntags: [mine]\n---\nmy own"
    online().upload_file(path_or_fileobj=own.encode(), path_in_repo="README.md", repo_id=REPOSITORY)
    model.push_to_hub(REPOSITORY)
    assert repository.read("README.md", "main").decode() == own  # to the letter
    model.push_to_hub(REPOSITORY, tags=["given"])
    card = ModelCard(repository.read("README.md", "main").decode())
    assert card.data.tags == ["mine", "given"] and card.text.strip() == "my own" and card.data.license == "mit"


def test_nothing_goes_that_is_no_part_of_the_model(online, folder, hub_server):
    before = {path.name for path in folder.iterdir()}
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tools.jinja").write_text("part of a tokenizer")
    for name in (
        "optimizer.pt",
        "training_args.bin",
        ".env",
        "events.out.tfevents.1",
        "wandb/run/x.txt",
        "sub/checkpoint-3/model.safetensors",
        "sub/state.pkl",
        ".git/config",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("private")
    push(folder, REPOSITORY)
    assert served(hub_server) == before | {"additional_chat_templates/tools.jinja", "README.md"}
    assert not (folder / "README.md").exists()


def test_a_shard_that_is_missing_is_missed(online, tmp_path, hub_server):
    tiny_model(TfmBertForSequenceClassification).save_pretrained(tmp_path, max_shard_size="20KB")
    lost = sorted(tmp_path.glob("model-*.safetensors"))[0]
    lost.unlink()
    with pytest.raises(FileNotFoundError, match=f"it has no {lost.name}"):
        push(tmp_path, REPOSITORY)
    assert REPOSITORY not in hub_server.repositories


def test_a_folder_that_cannot_be_written_to(online, folder, hub_server):
    (folder / "README.md").write_text(f"---\nlicense: mit\n---\n{MARK.format('model')}\nfrom a recipe")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    push(folder, REPOSITORY)
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    assert MARK.format(REPOSITORY) in hub_server.repositories[REPOSITORY].read("README.md", "main").decode()


def test_revisions_and_privacy_that_cannot_be(online, folder, hub_server):
    push(folder, REPOSITORY, private=False)
    commit = hub_server.repositories[REPOSITORY].branches["main"]
    online().create_tag(REPOSITORY, tag="v1")
    for revision, kind in ((commit, "commit"), ("v1", "tag")):
        with pytest.raises(ValueError, match=f"revision {revision} is a {kind} of user/model: a push goes to a branch"):
            push(folder, REPOSITORY, revision=revision)
    with pytest.raises(ValueError, match="user/model is public"):
        push(folder, REPOSITORY, private=True)
    assert hub_server.repositories[REPOSITORY].branches == {"main": commit}


def test_an_adapter_goes_as_transformers_sends_it(online, hub_server):
    from peft import LoraConfig

    model = tiny_model(TfmBertForSequenceClassification)
    model.add_adapter(LoraConfig(target_modules=["q_proj"]))
    model.push_to_hub(REPOSITORY)
    assert {"adapter_config.json", "adapter_model.safetensors"} <= served(hub_server)
    assert "zoo_manifest.json" not in served(hub_server)


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_trainer_pushes_a_whole_checkpoint_at_its_end(online, tmp_path, hub_server):
    data = [{"input_ids": [1, 2, 3], "labels": 0}, {"input_ids": [3, 2, 1], "labels": 1}]
    options = {"push_to_hub": True, "hub_model_id": REPOSITORY, "hub_strategy": "end", "report_to": "none"}
    arguments = TrainingArguments(str(tmp_path / "out"), max_steps=1, use_cpu=True, save_strategy="no", **options)
    trainer = Trainer(tiny_model(TfmBertForSequenceClassification), arguments, train_dataset=data)
    trainer.train()
    trainer.push_to_hub()
    assert verify(REPOSITORY, token="hf_user").ok


def test_a_commit_whose_answer_is_lost(online, folder, hub_server):
    """The Hub made it: it is asked, and nothing is sent a second time."""
    hub_server.fail("commit", "cut", times=1)
    commit = push(folder, REPOSITORY)
    repository = hub_server.repositories[REPOSITORY]
    assert commit.oid == repository.branches["main"] and commit.oid in commit.commit_url
    assert len(repository.commits) == 2


@pytest.mark.parametrize("action", ["create", "preupload", "commit"])
def test_a_hub_that_hangs(online, folder, hub_server, monkeypatch, action):
    monkeypatch.setattr("tfm_zoo.hub.uploading.PATIENCE", 0.3)
    hangs = threading.Event()
    hub_server.fail(action, lambda: hangs.wait(60))
    message = r"there was no answer for 0\.3 seconds\. (Nothing was sent|The repository does not)"
    with pytest.raises(PushError, match=message):
        push(folder, REPOSITORY)
    hangs.set()
    assert hub_server.served[action] <= 2
