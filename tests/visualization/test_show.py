"""`tfm-zoo show`: each command writes its file; a mistake ends in one line and writes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

import tfm_zoo
from tfm_zoo.cli import app

from ..hub.editing import edit
from ..official_models import BY_NAME, build_tiny
from ..tiny import tiny_model
from .conftest import TARGET, TEXT


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def show(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["show", *map(str, arguments)])
    return result.exit_code, " ".join(result.output.split())


def written(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def run_folder(kind: str) -> Path:
    """A folder as recipes leave it, or as the Trainer does."""
    history = [{"step": 3, "eval_loss": 2.0, "train_runtime": 60}]
    name = "" if kind == "recipe" else "checkpoint-3/"
    edit(Path("runs", kind), f"{name}trainer_state.json", log_history=history)
    return Path("runs", kind)


@pytest.mark.parametrize(
    ("command", "arguments", "size"),
    [
        ("attention", ["encoder", TEXT], (600, 400)),
        ("attention", ["translator", TEXT, "--layer", 1, "--head", 2], (600, 400)),
        ("heads", ["encoder", "the film", "--file", "texts.txt"], (900, 500)),
        ("rollout", ["classifier", TEXT], (400, 200)),
        ("block", ["t5-small"], (400, 400)),
        ("masks", [], (400, 200)),
        ("positions", ["encoder", "--length", 20], (1000, 500)),
        ("positions", ["sinusoidal", "--hidden-size", 64, "--length", 100], (1000, 500)),
        ("schedule", ["linear", "cosine", "noam", "--steps", 100, "--warmup-steps", 10], (1000, 800)),
        ("training", ["recipe", "Trainer"], (600, 400)),
    ],
)
def test_a_picture(command, arguments, size, folders, here):
    (here / "texts.txt").write_text(f"{TEXT}\n\n{TARGET}\n")
    made = {"recipe": run_folder, "Trainer": run_folder}
    arguments = [folders.get(each) or (made[each](each) if each in made else each) for each in arguments]
    (here / "a.png").touch()
    code, output = show(command, *arguments, "-o", "a.png")
    assert code == 0, output
    assert "a.png" in output and "in place of the one that was there" in output
    height, width, _ = imread(here / "a.png").shape
    assert height >= size[1] and width >= size[0]
    if command == "heads":
        assert "[SEP]: layer " in output and "attends to it most, with" in output and "evenly spread: " in output


def test_attention_as_a_page(folders, here):
    code, output = show("attention", folders["translator"], TEXT, "--target", TARGET, "--kind", "decoder", "--layer", 1)
    assert code == 0, output
    assert written(here) == ["attention.html"]
    page = (here / "attention.html").read_text("utf-8")
    assert '"start":["decoder",1,0]' in page and '"queries":["[CLS]","[CLS]","a","bright","film"]' in page


@pytest.mark.parametrize(
    ("command", "kind", "arguments", "complaint"),
    [
        ("attention", "encoder", [TEXT, "--layer", 2], "layer 2: the encoder attention of encoder has 0 to 1."),
        ("attention", "encoder", [TEXT, "--head", 4], "head 4: the encoder attention of encoder has 0 to 3."),
        ("attention", "encoder", [TEXT, "--kind", "cross"], "kind 'cross': encoder has attention of the kind encoder."),
        ("attention", "encoder", [TEXT, "-o", "map.jpg"], "'map.jpg' should end in one of .html, .htm, .png"),
        ("attention", "encoder", ["film " * 30], "The text has 32 tokens, and encoder reads at most 24."),
        ("attention", "encoder", [TEXT, "--target", TARGET], "target 'a bright film': encoder reads no target"),
        ("rollout", "encoder", [TEXT], "encoder (TfmBertForMaskedLM) is not a classifier of the zoo"),
        ("rollout", "classifier", [TEXT, "-o", "page.html"], "'page.html' should end in one of .png, .svg, .pdf"),
        ("heads", "encoder", [], "Give texts, or a --file with one text per line."),
        ("positions", "encoder", ["--length", 25], "length 25 should be at least 2, and at most 24."),
        ("positions", "sinusoidal", ["--length", 10**9], "length 1000000000 should be at least 2, and at most 8192."),
        ("positions", "rotary", ["--hidden-size", 10**9], "hidden_size 1000000000 should be at most 131072"),
        ("schedule", "linear", ["--steps", 10**9], "steps 1000000000 should be at most 10000000"),
        ("rollout", "classifier", [TEXT, "-o", f"{'x' * 300}.png"], "x.png' cannot be written: File name too long."),
        ("block", "gpt2", ["-o", f"{'x' * 300}.png"], "x.png' cannot be written: File name too long."),
        ("heads", "encoder", [TEXT, "-o", f"{__file__}/heads.png"], "test_show.py is a file."),
    ],
)
def test_bad_input(command, kind, arguments, complaint, folders, here):
    code, output = show(command, folders.get(kind, kind), *arguments)
    assert code == 1
    assert output.startswith("error: ") and complaint in output
    assert not written(here)


@pytest.mark.parametrize(("command", "is_official"), [("attention", True), ("rollout", False)])
def test_code_of_a_tokenizer_runs_on_request_alone(command, is_official, tokenizer, here, tmp_path_factory):
    folder, ran = tmp_path_factory.mktemp("model"), here / "ran"
    official = build_tiny(BY_NAME["BertForSequenceClassification"])
    (official if is_official else tiny_model(tfm_zoo.TfmBertForSequenceClassification)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    own = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    edit(folder, "tokenizer_config.json", **own)
    code = f"from transformers import PreTrainedTokenizerFast as Fast\nopen({str(ran)!r}, 'w')\nclass Own(Fast): pass\n"
    (folder / "own.py").write_text(code)
    _, output = show(command, folder, TEXT)
    assert not ran.exists(), output
    code, output = show(command, folder, TEXT, "--trust-remote-code")
    assert code == 0 and ran.exists(), output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["attention", "no-such-folder", TEXT], "'no-such-folder' is neither a folder nor a model on the Hub"),
        (["attention", "bare", TEXT], "bare holds no tokenizer that can be loaded"),
        (["positions", "bare"], "has no positions to show"),
        (["block", "gemma-3-270"], "the Hub cannot be reached. Did you mean 'gemma-3-270m'?"),
        (["schedule", "cosign"], "unknown schedule 'cosign'; choose from linear"),
        (["training", "bare"], "bare has no trainer_state.json"),
    ],
)
def test_a_folder_or_name_that_has_no_such_thing(arguments, complaint, here):
    tiny_model(tfm_zoo.TfmBertModel, position_embedding_type="none").save_pretrained("bare")
    code, output = show(*arguments)
    assert code == 1
    assert all(part in output for part in complaint.split(". ")), output
    assert written(here) == ["bare"]


@pytest.mark.slow
def test_without_matplotlib(here):
    """Only the pictures need matplotlib."""
    script = "import sys; sys.modules['matplotlib'] = None; from tfm_zoo.cli import main; main()"
    command = [sys.executable, "-c", script, "show", "schedule", "linear"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "error: `tfm-zoo show` needs matplotlib, which is not installed" in " ".join(ended.stderr.split())
    assert not written(here)
