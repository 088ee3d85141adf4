"""The Hub that tests push to, as the real client sees it."""

import os
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import torch
from huggingface_hub import CommitOperationAdd, CommitOperationDelete
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from tfm_zoo import TfmBertForSequenceClassification

from ..tiny import tiny_model

REPOSITORY = "user/model"
LARGE = {"a.safetensors": b"a" * 999, "b.bin": bytes(range(256)) * 9}
FILES = LARGE | {"config.json": b"{}", "in/side.txt": b"text", "in/deep/empty.bin": b""}
FILE = {"path_or_fileobj": b"", "path_in_repo": "file", "repo_id": REPOSITORY}
UPLOAD = "import sys, huggingface_hub as hub; hub.upload_folder(repo_id=sys.argv[1], folder_path=sys.argv[2])"


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "folder"


@pytest.fixture
def user(client):
    """A client whose repository there is."""
    client().create_repo(REPOSITORY)
    return client()


@pytest.fixture
def repository(user, hub_server):
    return hub_server.repositories[REPOSITORY]


def downloaded(user, revision: str | None = None) -> dict[str, bytes]:
    folder = user.snapshot_download(REPOSITORY, revision=revision)
    paths = user.list_repo_files(REPOSITORY, revision=revision)
    return {path: open(os.path.join(folder, path), "rb").read() for path in paths if path != ".gitattributes"}


def test_upload_and_download(user, folder, repository, hub_server):
    commit = user.upload_folder(repo_id=REPOSITORY, folder_path=folder, commit_message="one", commit_description="two")
    assert downloaded(user) == downloaded(user, commit.oid) == FILES
    assert {path for path, file in repository.at("main").files.items() if file.large} == LARGE.keys()
    assert hub_server.served["upload"] == hub_server.served["verify"] == len(LARGE)
    with open(user.hf_hub_download(REPOSITORY, "in/side.txt")) as file:
        assert file.read() == "text"
    info = user.model_info(REPOSITORY)
    assert (info.sha, info.private, info.author) == (commit.oid, False, "user")
    assert {sibling.rfilename for sibling in info.siblings} == FILES.keys() | {".gitattributes"}
    last, first = user.list_repo_commits(REPOSITORY)
    assert (last.commit_id, last.title, last.message, first.title) == (commit.oid, "one", "two", "initial commit")


def test_listings(user, folder):
    user.upload_folder(repo_id=REPOSITORY, folder_path=folder)

    def listed(*path, **how):
        return {entry.path: type(entry).__name__ for entry in user.list_repo_tree(REPOSITORY, *path, **how)}

    top = {".gitattributes", "a.safetensors", "b.bin", "config.json"}
    assert listed() == dict.fromkeys(top, "RepoFile") | {"in": "RepoFolder"}
    assert listed("in") == {"in/side.txt": "RepoFile", "in/deep": "RepoFolder"}
    assert listed(recursive=True).keys() == listed().keys() | listed("in").keys() | {"in/deep/empty.bin"}
    weights, folder, *others = user.get_paths_info(REPOSITORY, ["a.safetensors", "in", "nowhere"])
    assert (weights.size, weights.lfs.size, folder.path, others) == (999, 999, "in", [])


def test_revisions(user, folder, repository):
    first = user.upload_folder(repo_id=REPOSITORY, folder_path=folder).oid
    user.create_tag(REPOSITORY, tag="v1")
    user.create_branch(REPOSITORY, branch="side/track", revision="v1")
    add = CommitOperationAdd("a.safetensors", b"new")
    user.create_commit(REPOSITORY, [add, CommitOperationDelete("in/")], commit_message="on")
    user.delete_file("b.bin", REPOSITORY, revision="side/track")
    without = {path: content for path, content in FILES.items() if path != "b.bin"}
    changed = {"a.safetensors": b"new", "b.bin": LARGE["b.bin"], "config.json": b"{}"}
    assert downloaded(user, "v1") == downloaded(user, first) == FILES
    assert downloaded(user) == downloaded(user, "main") == changed
    assert downloaded(user, "side/track") == without
    refs = user.list_repo_refs(REPOSITORY)
    assert {branch.name: branch.target_commit for branch in refs.branches} == repository.branches
    assert {tag.name: tag.target_commit for tag in refs.tags} == {"v1": first}
    user.create_branch(REPOSITORY, branch="side/track", exist_ok=True)


def test_second_upload_sends_nothing(user, folder, repository, hub_server):
    first = user.upload_folder(repo_id=REPOSITORY, folder_path=folder).oid
    user.create_branch(REPOSITORY, branch="other", revision=repository.at(first).parent)
    blobs, commits = set(repository.blobs), set(repository.commits)
    assert user.upload_folder(repo_id=REPOSITORY, folder_path=folder).oid == first
    assert set(repository.commits) == commits
    user.upload_folder(repo_id=REPOSITORY, folder_path=folder, revision="other")
    assert downloaded(user, "other") == FILES
    assert set(repository.blobs) == blobs
    assert hub_server.served["upload"] == len(LARGE)


@pytest.mark.parametrize(
    ("error", "request_of"),
    [
        (RepositoryNotFoundError, lambda user: user.model_info("user/nothing")),
        (RepositoryNotFoundError, lambda user: user.snapshot_download("user/nothing")),
        (RevisionNotFoundError, lambda user: user.model_info(REPOSITORY, revision="never")),
        (RevisionNotFoundError, lambda user: user.snapshot_download(REPOSITORY, revision="never")),
        (RevisionNotFoundError, lambda user: user.upload_file(**FILE, revision="0" * 40)),
        (RemoteEntryNotFoundError, lambda user: user.hf_hub_download(REPOSITORY, "nothing-é.json")),
        (EntryNotFoundError, lambda user: list(user.list_repo_tree(REPOSITORY, "nothing"))),
        (EntryNotFoundError, lambda user: user.delete_file("nothing.json", REPOSITORY)),
        (EntryNotFoundError, lambda user: user.delete_folder("nothing", REPOSITORY)),
        (HfHubHTTPError, lambda user: user.upload_file(**FILE, create_pr=True)),
        (HfHubHTTPError, lambda user: user.create_repo(REPOSITORY)),
        (HfHubHTTPError, lambda user: user.create_branch(REPOSITORY, branch="main")),
        (HfHubHTTPError, lambda user: user.create_repo("user/data", repo_type="dataset")),
    ],
)
def test_refused(user, repository, error, request_of):
    with pytest.raises(error):
        request_of(user)
    assert len(repository.commits) == 1


def test_tokens(user, client, folder, repository):
    assert user.whoami()["name"] == "user"
    assert user.create_repo("mine").repo_id == "user/mine"
    for token, status in (("hf_bad", 401), (None, 401), ("hf_other", 403)):
        for write in (
            lambda api: api.create_repo("user/new"),
            lambda api: api.create_tag(REPOSITORY, tag="v1"),
            lambda api: api.upload_folder(repo_id=REPOSITORY, folder_path=folder),
        ):
            with pytest.raises(HfHubHTTPError) as refused:
                write(client(token))
            assert refused.value.response.status_code == status
    with pytest.raises(HfHubHTTPError, match="Invalid user token"):
        client("hf_bad").whoami()
    with pytest.raises(HfHubHTTPError, match="Invalid credentials"):
        client("hf_bad").model_info(REPOSITORY)
    assert client(None).model_info(REPOSITORY).sha
    assert len(repository.commits) == 1


def test_private(client, folder):
    user = client()
    user.create_repo(REPOSITORY, private=True)
    user.upload_folder(repo_id=REPOSITORY, folder_path=folder)
    assert user.model_info(REPOSITORY).private
    for token in (None, "hf_other"):
        stranger = client(token)
        assert not stranger.repo_exists(REPOSITORY)
        with pytest.raises(RepositoryNotFoundError):
            stranger.hf_hub_download(REPOSITORY, "config.json")
        with pytest.raises(RepositoryNotFoundError):
            stranger.upload_folder(repo_id=REPOSITORY, folder_path=folder)
    assert downloaded(user) == FILES


def test_commit_on_what_it_was_made_for(user, repository):
    parent = repository.branches["main"]
    user.upload_file(**FILE, parent_commit=parent)
    with pytest.raises(HfHubHTTPError, match="412"):
        user.upload_file(**FILE | {"path_or_fileobj": b"other"}, parent_commit=parent)
    assert repository.read("file") == b""


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ("base_model: /home/me/model", "base_model"),
        ("datasets: [imdb, 7 days]", "datasets"),
        ("license: [", "YAML"),
        (
            "model-index: [{name: x, results: [{task: {type: fill-mask}, metrics: [{type: accuracy}]}]}]",
            "metrics.value",
        ),
    ],
)
def test_cards(user, repository, fields, named):
    def upload(card: str):
        user.upload_file(path_or_fileobj=card.encode(), path_in_repo="README.md", repo_id=REPOSITORY)

    with pytest.raises(ValueError, match=named):
        upload(f"---\n{fields}\n---\ntext")
    assert len(repository.commits) == 1
    with pytest.warns(UserWarning, match="empty or missing"):
        upload("text")
    upload("---\nlicense: mit\nlanguage: [en, de]\ntags:\n- one\n---\ntext")
    info = user.model_info(REPOSITORY)
    assert (info.card_data.license, info.tags) == ("mit", ["one"])


@pytest.mark.parametrize(
    ("action", "fault"), [("upload", 403), ("batch", 403), ("preupload", 403), ("commit", 500), ("commit", "drop")]
)
def test_interrupted_upload(user, folder, repository, hub_server, action, fault):
    former = repository.branches["main"]
    hub_server.fail(action, fault, first=2 if action == "upload" else 1)
    with pytest.raises(Exception):  # noqa: B017, the client's or its HTTP library's
        user.upload_folder(repo_id=REPOSITORY, folder_path=folder)
    assert repository.branches == {"main": former} and len(repository.commits) == 1
    completes(user, folder, repository, hub_server)


def completes(user, folder, repository, hub_server) -> None:
    """The same upload again sends what is missing, and no more."""
    hub_server.faults.clear()
    missing = len(LARGE) - sum(len(content) in map(len, LARGE.values()) for content in repository.blobs.values())
    before = hub_server.served["upload"]
    user.upload_folder(repo_id=REPOSITORY, folder_path=folder)
    assert hub_server.served["upload"] - before == missing
    assert downloaded(user) == FILES


@pytest.mark.slow
def test_killed_in_the_middle(user, folder, repository, hub_server, tmp_path):
    former = repository.branches["main"]
    hub_server.fail("upload", lambda: process.kill(), first=2)
    environment = os.environ | hub_server.environment(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", UPLOAD, REPOSITORY, str(folder)], env=environment)
    assert process.wait(timeout=300) < 0
    assert repository.branches == {"main": former}
    completes(user, folder, repository, hub_server)


def test_answer_that_is_lost(user, folder, repository, hub_server):
    hub_server.fail("commit", "cut")
    with pytest.raises(Exception):  # noqa: B017
        user.upload_folder(repo_id=REPOSITORY, folder_path=folder)
    assert len(repository.commits) == 2
    user.upload_folder(repo_id=REPOSITORY, folder_path=folder)
    assert len(repository.commits) == 2
    assert downloaded(user) == FILES


@pytest.mark.parametrize("fault", [500, "drop"])
def test_client_tries_again(user, folder, hub_server, fault):
    hub_server.fail("upload", fault, times=1)
    user.upload_folder(repo_id=REPOSITORY, folder_path=folder)
    hub_server.fail("download", "cut", times=1)  # it goes on from there
    assert downloaded(user) == FILES


def test_parts_of_files(user, folder, hub_server):
    user.upload_folder(repo_id=REPOSITORY, folder_path=folder)

    def read(path: str, part: str) -> tuple[int, bytes]:
        request = urllib.request.Request(f"{hub_server.url}/{REPOSITORY}/resolve/main/{path}", headers={"Range": part})
        with urllib.request.urlopen(request) as response:
            return response.status, response.read()

    assert read("in/side.txt", "bytes=1-2") == (206, b"ex")
    assert read("in/side.txt", "bytes=-3") == (206, b"ext")
    assert read("b.bin", "bytes=256-") == (206, LARGE["b.bin"][256:])
    with pytest.raises(urllib.error.HTTPError, match="416"):
        read("in/side.txt", "bytes=9-")


@pytest.mark.slow
def test_models_are_pushed_and_loaded(do_online, hub_server, tmp_path):
    models = {
        branch: tiny_model(TfmBertForSequenceClassification, seed=seed) for seed, branch in enumerate(("main", "on"))
    }
    auto, jobs = {"auto_class": "AutoModelForSequenceClassification"}, []
    for branch, model in models.items():
        model.save_pretrained(tmp_path / branch)
        arguments = {"source": str(tmp_path / branch), "repository": REPOSITORY, "revision": branch}
        jobs.append(("fine_tune_and_push", auto | arguments))
    jobs += [
        ("outputs", auto | {"source": REPOSITORY, "revision": branch, "trust_remote_code": True}) for branch in models
    ]
    *pushed, one, other = do_online(jobs)
    commits, outputs = zip(*pushed, strict=True)
    assert list(commits) == list(hub_server.repositories[REPOSITORY].branches.values())
    torch.testing.assert_close((one, other), outputs, rtol=0, atol=0)
