"""Models on their way to the Hub and back: all in one commit, or nothing; what a person wrote there stays."""

import threading
from pathlib import Path

import pytest
from huggingface_hub import ModelCard, close_session
from typer.testing import CliRunner

from tfm_zoo import TfmBertForSequenceClassification, TfmGPTForCausalLM
from tfm_zoo.cli import app
from tfm_zoo.hub import PushError, push
from tfm_zoo.hub.model_card import MARK
from tfm_zoo.proof import verify
from tfm_zoo.proof.manifest import FILE

from ..tiny import tiny_model
from .editing import write

NAME = "user/model"
RECIPE_CARD = f"---\nlicense: mit\n---\n{MARK.format('model')}\nfrom a recipe"


def save(folder: Path, seed: int = 0, size: str = "1GB", head: type = TfmBertForSequenceClassification) -> Path:
    tiny_model(head, seed=seed).save_pretrained(folder, max_shard_size=size)
    return folder


@pytest.fixture
def folder(tmp_path):
    return save(tmp_path / "model")


@pytest.fixture
def there(online, hub_server):
    """The repository on the Hub, once it is there."""
    return lambda: hub_server.repositories[NAME]


def served(repository) -> set[str]:
    return set(repository.at("main").files) - {".gitattributes"}


def card(repository) -> str:
    return repository.read("README.md").decode()


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_one_commit_holds_the_model_and_nothing_else(folder, there):
    before = {path.name for path in folder.iterdir()}
    write("additional_chat_templates/tools.jinja", "part of a tokenizer")(folder)
    left = ("optimizer.pt", "training_args.bin", ".env", "events.out.tfevents.1", "wandb/run/x.txt", "sub/state.pkl")
    for name in (*left, "sub/checkpoint-3/model.safetensors", ".git/config"):
        write(name, "private")(folder)
    push(folder, NAME, private=True)
    assert served(there()) == before | {"additional_chat_templates/tools.jinja", "README.md"} and FILE in before
    assert there().private and len(there().commits) == 2 and not (folder / "README.md").exists()
    push(folder, NAME)
    assert len(there().commits) == 2
    assert verify(NAME, token="hf_user").ok


def test_a_card_that_a_person_wrote_stays(folder, there):
    """In the folder, which need not be one to write to, and on the Hub; one that the zoo wrote names the repository."""
    write("README.md", RECIPE_CARD)(folder)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    push(folder, NAME)
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    assert "from a recipe" in card(there()) and MARK.format(NAME) in card(there())
    for text in ("---\nlicense: mit\n---\nmy own", RECIPE_CARD):
        write("README.md", text)(folder)
        push(folder, NAME)
        assert "my own" in card(there())


def test_tags_and_a_card_of_ones_own(online, there):
    model = tiny_model(TfmBertForSequenceClassification)
    model.add_model_tags(["mine"])
    model.push_to_hub(NAME, tags=["given"])
    assert {"mine", "given", "tfm_zoo"} <= set(ModelCard(card(there())).data.tags)
    own = "---\n# a comment\nlicense: mit   # yes\ntags: [mine]\n---\nmy own"
    online().upload_file(path_or_fileobj=own.encode(), path_in_repo="README.md", repo_id=NAME)
    model.push_to_hub(NAME)
    assert card(there()) == own  # to the letter
    model.push_to_hub(NAME, tags=["given"])
    tagged = ModelCard(card(there()))
    assert (tagged.data.tags, tagged.data.license, tagged.text.strip()) == (["mine", "given"], "mit", "my own")


@pytest.mark.parametrize("action", ["preupload", "commit"])
def test_interrupted_and_run_again(folder, there, hub_server, action):
    push(folder, NAME)
    before = there().branches["main"]
    write("new.txt", "new")(save(folder, seed=1))
    hub_server.fail(action, 403)
    failed = r"The upload to user/model failed: .* It lacks new.txt: .* Push again \(tfm-zoo push .* user/model\)"
    with pytest.raises(PushError, match=failed):
        push(folder, NAME)
    assert there().branches["main"] == before
    hub_server.faults.clear()
    push(folder, NAME)
    assert there().branches["main"] != before
    assert there().read(FILE) == (folder / FILE).read_bytes()


def test_no_connection(folder, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    close_session()
    unreachable = (
        r"The Hub \(http://127\.0\.0\.1:9\) cannot be reached: .* Nothing was sent; .*: tfm-zoo push .* user/m"
    )
    with pytest.raises(PushError, match=unreachable):
        push(folder, NAME, token="hf_user")
    close_session()


def test_a_commit_whose_answer_is_lost(folder, there, hub_server):
    """The Hub made it: it is asked, and nothing is sent a second time."""
    hub_server.fail("commit", "cut", times=1)
    commit = push(folder, NAME)
    assert commit.oid == there().branches["main"] and commit.oid in commit.commit_url
    assert len(there().commits) == 2


@pytest.mark.parametrize("action", ["create", "preupload", "commit"])
def test_a_hub_that_hangs(online, folder, hub_server, monkeypatch, action):
    monkeypatch.setattr("tfm_zoo.hub.uploading.PATIENCE", 0.3)
    hangs = threading.Event()
    hub_server.fail(action, lambda: hangs.wait(60))
    message = r"there was no answer for 0\.3 seconds\. (Nothing was sent|The repository does not)"
    with pytest.raises(PushError, match=message):
        push(folder, NAME)
    hangs.set()
    assert hub_server.served[action] <= 2


def test_command(folder, there, hub_server):
    done = CliRunner().invoke(app, ["push", str(folder), NAME, "--commit-message", "First"])
    assert done.exit_code == 0 and hub_server.url in done.output.replace("\n", "")
    assert there().at("main").title == "First"
    refused = CliRunner().invoke(app, ["push", str(folder), "other/model"])
    assert refused.exit_code == 1 and "error:" in refused.output


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_what_an_earlier_push_left_goes(tmp_path, there):
    """Shards beside a whole file, or beside fewer; code of another family: what loads is what was pushed last."""
    for seed, size in enumerate(("1GB", "8KB", "20KB", "1GB")):
        head = TfmGPTForCausalLM if seed == 3 else TfmBertForSequenceClassification
        folder = save(tmp_path / str(seed), seed, size, head)
        push(folder, NAME)
        assert served(there()) == {path.name for path in folder.iterdir()} | {"README.md"}
        verdict = verify(NAME, token="hf_user")
        assert verdict.ok, verdict
    tiny_model(TfmBertForSequenceClassification).push_to_hub(NAME, max_shard_size="8KB")
    assert not {"model.safetensors", "modeling_tfm_gpt.py"} & served(there())
    assert verify(NAME, token="hf_user").ok


def test_save_and_push_sends_what_was_saved(tmp_path, there):
    model = tiny_model(TfmBertForSequenceClassification)
    halved = {name: tensor / 2 for name, tensor in model.state_dict().items()}
    options = {"repo_id": NAME, "max_shard_size": "8KB", "commit_message": "Halved", "tags": "given"}
    model.save_pretrained(tmp_path, state_dict=halved, push_to_hub=True, **options)
    assert served(there()) == {path.name for path in tmp_path.iterdir()} | {"README.md"}
    assert "given" in ModelCard(card(there())).data.tags
    for path in tmp_path.iterdir():
        assert there().read(path.name) == path.read_bytes(), path.name


def test_revisions_and_privacy(folder, there):
    """A branch is made and moves alone; a tag or a commit takes no push, and what is public does not become private."""
    push(folder, NAME, private=False)
    commit = there().branches["main"]
    push(save(folder, seed=1), NAME, revision="tuned")
    branches = dict(there().branches)
    assert branches["main"] == commit != branches["tuned"]
    there().tags["v1"] = commit
    for revision, kind in ((commit, "commit"), ("v1", "tag")):
        with pytest.raises(ValueError, match=f"revision {revision} is a {kind} of user/model: a push goes to a branch"):
            push(folder, NAME, revision=revision)
    with pytest.raises(ValueError, match="user/model is public"):
        push(folder, NAME, private=True)
    assert there().branches == branches


def test_an_adapter_goes_as_transformers_sends_it(there):
    from peft import LoraConfig

    model = tiny_model(TfmBertForSequenceClassification)
    model.add_adapter(LoraConfig(target_modules=["q_proj"]))
    model.push_to_hub(NAME)
    assert {"adapter_config.json", "adapter_model.safetensors"} <= served(there())
    assert FILE not in served(there())
