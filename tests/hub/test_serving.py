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

TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
ASKED = {"messages": [{"role": "user", "content": "who saw the film"}], "max_tokens": 5, "temperature": 0.0}


@pytest.fixture(autouse=True)
def transformers_as_it_was(monkeypatch):
    """Other tests of this process find no class there that the command has put into transformers."""
    monkeypatch.setattr("tfm_zoo.plugin.patches.add_classes_to_transformers", lambda: None)


@pytest.fixture
def started(monkeypatch):
    """The command lines that transformers' server was started with; it starts nothing."""
    started = []
    monkeypatch.setattr("transformers.utils.import_utils.is_serve_available", lambda: True)
    monkeypatch.setitem(
        sys.modules, "transformers.cli.transformers", SimpleNamespace(main=lambda: started.append(sys.argv))
    )
    monkeypatch.setattr(sys, "argv", [])
    return started


def test_help_begins_with_how_to_ask(started):
    """The rest of it is transformers' own, which calls the model FORCE_MODEL."""
    result = CliRunner().invoke(app, ["serve", "--help"])
    assert "FORCE_MODEL, is a folder or a Hub id" in result.stdout and "/v1/completions" in result.stdout
    assert started == [["transformers", "serve", "--help"]]


def test_without_what_serves(monkeypatch):
    """Even then the help begins with what the zoo says of it."""
    monkeypatch.setattr("transformers.utils.import_utils.is_serve_available", lambda: False)
    result = CliRunner().invoke(app, ["serve", "--port", "1"])
    assert result.exit_code == 1
    assert result.stderr == "error: What serves a model is not installed: pip install 'transformers[serving]'\n"
    assert "FORCE_MODEL, is a folder or a Hub id" in CliRunner().invoke(app, ["serve", "--help"]).stdout


NO_WRITER = "error: .* holds a TfmBertForSequenceClassification, which writes nothing"
NO_TEMPLATE = "model has no chat template: ask /v1/completions"


@pytest.mark.parametrize(
    ("architecture", "complaint", "starts"),
    [("TfmBertForSequenceClassification", NO_WRITER, False), ("TfmGPTForCausalLM", NO_TEMPLATE, True)],
)
def test_what_no_client_would_get_an_answer_from(architecture, complaint, starts, tmp_path, started):
    """A server would start, and answer each request with an error."""
    edit(tmp_path, "model/config.json", model_type="tfm", architectures=[architecture])
    (tmp_path / "model" / "model.safetensors").touch()
    result = CliRunner().invoke(app, ["serve", str(tmp_path / "model"), "--port", "1"])
    assert re.search(complaint, result.stderr)
    assert (result.exit_code == 0) == bool(started) == starts


@pytest.mark.parametrize(
    ("files", "lacking"),
    [
        ({}, "no config.json with a model_type, no weights (*.safetensors)"),
        ({"config.json": '{"pooling_mode": "mean"}', "model.safetensors": ""}, "no config.json with a model_type"),
        ({"config.json": '{"model_type": "tfm_gpt"}'}, "no weights (*.safetensors)"),
    ],
)
def test_a_folder_without_a_model(files, lacking, tmp_path, monkeypatch):
    """It is named before anything else is, even what has to be installed."""
    monkeypatch.setattr("transformers.utils.import_utils.is_serve_available", lambda: False)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    result = CliRunner().invoke(app, ["serve", "--port", "1", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (1, f"error: {tmp_path} is no folder of a model: it has {lacking}.\n")


def test_a_model_that_is_nowhere(monkeypatch):
    """The server would ask the Hub again and again."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for model in ("./nothere", "nothere@main"):
        result = CliRunner().invoke(app, ["serve", model])
        assert result.exit_code == 1 and result.stderr.startswith("error: ") and "nothere'" in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not is_serve_available(), reason="transformers[serving] is not installed")
def test_chat_completion(tmp_path):
    """A converted model, which keeps its template."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE
    model = build_tiny(BY_NAME["Qwen3ForCausalLM"], vocab_size=len(tokenizer))
    model.generation_config.update(do_sample=False, pad_token_id=0, eos_token_id=None)
    for saved in (model, tokenizer):
        saved.save_pretrained(tmp_path / "official")
    assert CliRunner().invoke(app, ["convert", str(tmp_path / "official"), str(tmp_path / "model")]).exit_code == 0
    prompt = tokenizer.apply_chat_template(ASKED["messages"], return_tensors="pt", return_dict=True)
    made = model.generate(**prompt, max_new_tokens=5)[0, prompt["input_ids"].shape[1] :]
    wanted = tokenizer.decode(made, skip_special_tokens=True)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    command = [sys.executable, "-m", "tfm_zoo", "serve", str(tmp_path / "model"), *options]
    folders = {"HF_MODULES_CACHE": str(tmp_path / "code"), "HF_HUB_CACHE": str(tmp_path / "hub")}
    environment = os.environ | {"HF_HUB_OFFLINE": "1"} | folders
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        answer = ask(server, f"http://127.0.0.1:{port}/v1/chat/completions", {"model": str(tmp_path / "model")} | ASKED)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=240) as response:
            assert json.load(response)["object"] == "list"  # of the Hub's cache, which is new and empty
    except (AssertionError, OSError) as error:
        raise AssertionError((tmp_path / "log").read_text()) from error
    finally:
        server.terminate()
        server.wait(timeout=300)
    assert answer["choices"][0]["message"]["content"].split() == wanted.split()
    log = (tmp_path / "log").read_text()
    assert '"POST /v1/chat/completions HTTP/1.1" 200' in log and "Logging error" not in log


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
