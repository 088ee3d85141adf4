"""`tfm-zoo serve`, which is `transformers serve`, answers a chat completion with a zoo checkpoint."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
from transformers.utils.import_utils import is_serve_available
from typer.testing import CliRunner

from tfm_zoo.cli import app

from ..official_models import BY_NAME, build_tiny
from ..words import make_tokenizer
from .editing import edit

AVAILABLE = "transformers.utils.import_utils.is_serve_available"
ASKED = {"messages": [{"role": "user", "content": "who saw the film"}], "max_tokens": 5, "temperature": 0.0}
HEAD_OF_HELP = "MODEL (FORCE_MODEL below) is a folder"


def serve(*words: object):
    return CliRunner().invoke(app, ["serve", *map(str, words)])


@pytest.fixture(autouse=True)
def transformers_as_it_was(monkeypatch):
    """Other tests of this process find no class there that the command has put into transformers."""
    monkeypatch.setattr("tfm_zoo.plugin.patches.add_classes_to_transformers", lambda: None)


@pytest.fixture
def started(monkeypatch):
    """The command lines that transformers' server was started with; it starts nothing."""
    started = []
    monkeypatch.setattr(AVAILABLE, lambda: True)
    monkeypatch.setitem(
        sys.modules, "transformers.cli.transformers", SimpleNamespace(main=lambda: started.append(sys.argv))
    )
    monkeypatch.setattr(sys, "argv", [])
    return started


def test_help_and_what_is_not_installed(started, monkeypatch):
    """The help begins with how to ask, even where nothing serves; the rest of it is transformers' own."""
    result = serve("--help")
    assert HEAD_OF_HELP in result.stdout and "/v1/completions" in result.stdout
    assert started == [["transformers", "serve", "--help"]]
    monkeypatch.setattr(AVAILABLE, lambda: False)
    assert HEAD_OF_HELP in serve("--help").stdout
    missing = "error: What serves a model is not installed: pip install 'transformers[serving]'\n"
    assert serve("--port", "1").stderr == missing


@pytest.mark.parametrize(
    ("files", "lacking"),
    [
        ({}, "no config.json with a model_type, no weights (*.safetensors)"),
        ({"config.json": '{"pooling_mode": "mean"}', "model.safetensors": ""}, "no config.json with a model_type"),
        ({"config.json": '{"model_type": "tfm_gpt"}'}, "no weights (*.safetensors)"),
    ],
)
def test_what_is_no_model(files, lacking, tmp_path, monkeypatch):
    """It is named before anything else is, even what has to be installed. (Of a model that is nowhere, the server would
    ask the Hub again and again.)"""
    monkeypatch.setattr(AVAILABLE, lambda: False)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    said = f"error: {tmp_path} is not a folder of a model: it has {lacking}.\n"
    assert serve("--port", "1", tmp_path).stderr == said
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for model in ("./nothere", "nothere@main"):
        result = serve(model)
        assert result.exit_code == 1 and result.stderr.startswith("error: ") and "nothere'" in result.stderr


@pytest.mark.parametrize(
    ("architecture", "complaint", "starts"),
    [
        ("TfmBertForSequenceClassification", "error: .* holds a TfmBertForSeq.*, which does not generate text", False),
        ("TfmGPTForCausalLM", "model has no chat template: ask /v1/completions", True),
    ],
)
def test_what_no_client_would_get_an_answer_from(architecture, complaint, starts, tmp_path, started):
    """A server would start, and answer each request with an error."""
    edit(tmp_path, "model/config.json", model_type="tfm", architectures=[architecture])
    (tmp_path / "model" / "model.safetensors").touch()
    result = serve(tmp_path / "model", "--port", "1")
    assert re.search(complaint, result.stderr)
    assert (result.exit_code == 0) == bool(started) == starts


@pytest.mark.slow
@pytest.mark.skipif(not is_serve_available(), reason="transformers[serving] is not installed")
def test_chat_completion(tmp_path):
    """A converted model, which keeps its template."""
    tokenizer, folder, log = make_tokenizer(), tmp_path / "model", tmp_path / "log"
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    model = build_tiny(BY_NAME["Qwen3ForCausalLM"], vocab_size=len(tokenizer))
    model.generation_config.update(do_sample=False, pad_token_id=0, eos_token_id=None)
    for saved in (model, tokenizer):
        saved.save_pretrained(tmp_path / "official")
    assert CliRunner().invoke(app, ["convert", str(tmp_path / "official"), str(folder)]).exit_code == 0
    prompt = tokenizer.apply_chat_template(ASKED["messages"], return_tensors="pt", return_dict=True)
    made = model.generate(**prompt, max_new_tokens=5)[0, prompt["input_ids"].shape[1] :]
    wanted = tokenizer.decode(made, skip_special_tokens=True)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tfm_zoo", "serve", str(folder), "--host", "127.0.0.1"]
    folders = {"HF_MODULES_CACHE": str(tmp_path / "code"), "HF_HUB_CACHE": str(tmp_path / "hub")}
    with open(log, "w") as file:
        streams = {"stdout": file, "stderr": file, "stdin": subprocess.DEVNULL}
        environment = os.environ | {"HF_HUB_OFFLINE": "1"} | folders
        server = subprocess.Popen([*command, "--port", str(port), "--device", "cpu"], env=environment, **streams)
    try:
        answer = ask(server, f"http://127.0.0.1:{port}/v1/chat/completions", {"model": str(folder)} | ASKED)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=240) as response:
            assert json.load(response)["object"] == "list"  # of the Hub's cache, which is new and empty
    except (AssertionError, OSError) as error:
        raise AssertionError(log.read_text()) from error
    finally:
        server.terminate()
        server.wait(timeout=300)
    assert answer["choices"][0]["message"]["content"].split() == wanted.split()
    assert '"POST /v1/chat/completions HTTP/1.1" 200' in log.read_text() and "Logging error" not in log.read_text()


def ask(server: subprocess.Popen, address: str, question: dict) -> dict:
    """The answer, as soon as the server is there to give one."""
    request = urllib.request.Request(address, json.dumps(question).encode(), {"Content-Type": "application/json"})
    for _ in range(300):
        assert server.poll() is None, "the server has ended"
        try:
            with urllib.request.urlopen(request, timeout=240) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error
        except urllib.error.URLError:  # not yet there
            time.sleep(1)
    raise AssertionError("no answer")
