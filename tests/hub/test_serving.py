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

from ..tiny import tiny_decoder
from ..words import make_tokenizer
from .editing import both, edited, write

AVAILABLE = "transformers.utils.import_utils.is_serve_available"
HEAD_OF_HELP = "MODEL (FORCE_MODEL below) is a folder"
WEIGHTS = write("model/model.safetensors", "")


def serve(*words: object):
    return CliRunner().invoke(app, ["serve", *map(str, words)])


def has(**fields):
    return edited("model/config.json", **fields)


@pytest.fixture(autouse=True)
def started(monkeypatch):
    """The command lines that transformers' server was started with; it starts nothing."""
    started, transformers = [], SimpleNamespace(main=lambda: started.append(sys.argv))
    monkeypatch.setattr(AVAILABLE, lambda: True)
    monkeypatch.setitem(sys.modules, "transformers.cli.transformers", transformers)
    # Other tests of this process find no class there that the command has put into transformers.
    monkeypatch.setattr("tfm_zoo.plugin.patches.add_classes_to_transformers", lambda: None)
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


NO_CONFIG, NO_WEIGHTS = "no config.json with a model_type", r"no weights \(\*\.safetensors\)"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (write("model/notes", ""), f"^error: FOLDER is not a folder of a model: it has {NO_CONFIG}, {NO_WEIGHTS}.\n$"),
        (both(WEIGHTS, has(pooling_mode="mean")), f"it has {NO_CONFIG}.\n$"),
        (has(model_type="tfm_gpt"), f"it has {NO_WEIGHTS}.\n$"),
        (
            both(WEIGHTS, has(model_type="tfm", architectures=["TfmBertForSequenceClassification"])),
            "^error: .* holds a TfmBertForSeq.*, which does not generate text",
        ),
        (
            both(WEIGHTS, has(model_type="tfm", architectures=["TfmGPTForCausalLM"])),
            "model has no chat template: ask /v1/completions",
        ),
    ],
)
def test_what_no_client_would_get_an_answer_from(change, said, tmp_path, started):
    """It is named before a server would start, which would answer each request with an error."""
    change(tmp_path)
    result = serve(tmp_path / "model", "--port", "1")
    assert re.search(said.replace("FOLDER", str(tmp_path / "model")), result.stderr)
    assert (result.exit_code == 0) == bool(started) == ("template" in said)


def test_a_model_that_is_nowhere(monkeypatch, started):
    """The server would ask the Hub again and again."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for model in ("./nothere", "nothere@main"):
        result = serve(model)
        assert result.exit_code == 1 and result.stderr.startswith("error: ") and "nothere'" in result.stderr
    assert not started


@pytest.mark.slow
@pytest.mark.skipif(not is_serve_available(), reason="transformers[serving] is not installed")
def test_chat_completion(tmp_path):
    tokenizer, folder, log = make_tokenizer(), tmp_path / "model", tmp_path / "log"
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    asked = {"messages": [{"role": "user", "content": "who saw the film"}], "max_tokens": 5, "temperature": 0.0}
    model = tiny_decoder(vocab_size=len(tokenizer))
    model.generation_config.update(do_sample=False, pad_token_id=0, eos_token_id=None)
    for saved in (model, tokenizer):
        saved.save_pretrained(folder)
    prompt = tokenizer.apply_chat_template(asked["messages"], return_tensors="pt", return_dict=True)
    made = model.generate(**prompt, max_new_tokens=5)[0, prompt["input_ids"].shape[1] :]

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1", free.getsockname()[1]
    command = [sys.executable, "-m", "tfm_zoo", "serve", folder, "--host", address[0], "--port", address[1]]
    folders = {"HF_MODULES_CACHE": str(tmp_path / "code"), "HF_HUB_CACHE": str(tmp_path / "hub")}
    with open(log, "w") as file:
        streams = {"stdout": file, "stderr": file, "stdin": subprocess.DEVNULL}
        environment = os.environ | {"HF_HUB_OFFLINE": "1"} | folders
        server = subprocess.Popen([*map(str, command), "--device", "cpu"], env=environment, **streams)
    try:
        url = "http://{}:{}/v1".format(*address)
        answer = ask(server, f"{url}/chat/completions", json.dumps({"model": str(folder)} | asked).encode())
        assert ask(server, f"{url}/models")["object"] == "list"  # of the Hub's cache, which is new and empty
    except (AssertionError, OSError) as error:
        raise AssertionError(log.read_text()) from error
    finally:
        server.terminate()
        server.wait(timeout=300)
    assert (
        answer["choices"][0]["message"]["content"].split() == tokenizer.decode(made, skip_special_tokens=True).split()
    )
    assert '"POST /v1/chat/completions HTTP/1.1" 200' in log.read_text() and "Logging error" not in log.read_text()


def ask(server: subprocess.Popen, address: str, question: bytes | None = None) -> dict:
    """The answer, as soon as the server is there to give one."""
    request = urllib.request.Request(address, question, {"Content-Type": "application/json"})
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
