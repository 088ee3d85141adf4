"""`tfm-zoo serve`, which is `transformers serve`, answers a chat completion with a zoo checkpoint."""

import re
import socket
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest
import requests
from transformers.utils.import_utils import is_serve_available
from typer.testing import CliRunner

from tfm_zoo.cli import app

from ..tiny import tiny_decoder
from ..words import make_tokenizer
from .editing import edit


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "model is not a folder of a model: it lacks config.json with a model_type, weights"),
        ({"architectures": ["TfmBertForSequenceClassification"]}, "a TfmBertForSeq.*, which does not generate text"),
        ({"architectures": ["TfmGPTForCausalLM"]}, "model has no chat template: ask /v1/completions"),
        (None, "error: .*model'"),  # the server would ask the Hub again and again
        ({"architectures": ["TfmGPTForCausalLM"]}, "error: What serves a model is not installed: pip install"),
    ],
)
def test_what_no_client_would_get_an_answer_from(fields, said, tmp_path, monkeypatch):
    """It is named before a server would start, which would answer each request with an error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setitem(sys.modules, "transformers.cli.transformers", server := Mock())
    monkeypatch.setattr("transformers.utils.import_utils.is_serve_available", lambda: "install" not in said)
    # Other tests of this process find no class there that the command has put into transformers.
    monkeypatch.setattr("tfm_zoo.plugin.patches.add_classes_to_transformers", lambda: None)
    if fields is not None:
        edit(tmp_path, "model/config.json", **fields)
    if fields:
        edit(tmp_path, "model/config.json", model_type="tfm")
        (tmp_path / "model/model.safetensors").touch()
    result = CliRunner().invoke(app, ["serve", "./model", "--port", "1", "--help"])
    assert re.search(said, result.stderr)
    assert ("tfm-zoo serve MODEL" in result.stdout) == ("template" in said or "install" in said)
    assert (result.exit_code == 0) == server.main.called == ("template" in said)


def is_there(*place: object) -> bool:
    with socket.socket() as one:
        return one.connect_ex(place) == 0


@pytest.mark.slow
@pytest.mark.skipif(not is_serve_available(), reason="transformers[serving] is not installed")
def test_chat_completion(tmp_path, monkeypatch):
    tokenizer, folder, log = make_tokenizer(), tmp_path / "model", tmp_path / "log"
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    asked = {"messages": [{"role": "user", "content": "who saw the film"}], "max_tokens": 5, "temperature": 0.0}
    model = tiny_decoder(vocab_size=len(tokenizer))
    model.generation_config.update(do_sample=False, pad_token_id=0, eos_token_id=None)
    for saved in (model, tokenizer):
        saved.save_pretrained(folder)
    prompt = tokenizer.apply_chat_template(asked["messages"], return_tensors="pt", return_dict=True)
    made = model.generate(**prompt, max_new_tokens=5)[0, prompt["input_ids"].shape[1] :]

    with socket.create_server(("127.0.0.1", 0)) as free:
        place = free.getsockname()
    command = [sys.executable, "-m", "tfm_zoo", "serve", folder, "--host", place[0], "--port", place[1]]
    monkeypatch.setenv("NO_PROXY", place[0])
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "code"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    with log.open("w") as file:
        server = subprocess.Popen([*map(str, command), "--device", "cpu"], stdout=file, stderr=file)
    try:
        while server.poll() is None and not is_there(*place):
            time.sleep(0.5)
        url = "http://{}:{}/v1/chat/completions".format(*place)
        answer = requests.post(url, json=asked | {"model": str(folder)}, timeout=240).json()
    finally:
        server.terminate()
        server.wait(timeout=300)
    text = tokenizer.decode(made, skip_special_tokens=True)
    assert answer["choices"][0]["message"]["content"].split() == text.split(), log.read_text()
