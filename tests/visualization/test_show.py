"""`tfm-zoo show`: each command writes its file; a mistake ends in one line and writes nothing."""

import json
import subprocess
import sys

import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

import tfm_zoo
from tfm_zoo.cli import app

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


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("encoder", []),
        ("decoder", ["--layer", 1]),
        ("translator", ["--head", 2]),
        ("translator", ["--layer", 1, "--head", 2]),
    ],
)
def test_attention_as_a_picture(kind, options, folders, here):
    code, output = show("attention", folders[kind], TEXT, *options, "-o", "map.png")
    assert code == 0, output
    assert f"Attention of {folders[kind]} in map.png" in output
    height, width, _ = imread(here / "map.png").shape
    assert height >= 400 and width >= 600


def test_attention_as_a_page(folders, here):
    code, output = show("attention", folders["translator"], TEXT, "--target", TARGET, "--kind", "decoder", "--layer", 1)
    assert code == 0, output
    assert written(here) == ["attention.html"]
    page = (here / "attention.html").read_text("utf-8")
    assert '"start":["decoder",1,0]' in page and '"queries":["[CLS]","[CLS]","a","bright","film"]' in page


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_the_suffix_is_the_format(suffix, folders, here):
    code, output = show("rollout", folders["classifier"], TEXT, "-o", f"new/rollout{suffix}")
    assert code == 0, output
    beginning = (here / f"new/rollout{suffix}").read_bytes()[:8]
    assert beginning.startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix])


def test_heads(folders, here):
    (here / "texts.txt").write_text(f"{TEXT}\n\n{TARGET}\n")
    code, output = show("heads", folders["encoder"], "the film", "--file", "texts.txt")
    assert code == 0, output
    assert "[SEP]: layer " in output and "the token after: layer " in output and "attends to it most, with" in output
    assert output.count("evenly spread: ") > 5 and output.count("attends to all tokens alike") == 1
    height, width, _ = imread(here / "heads.png").shape
    assert height >= 500 and width >= 900


@pytest.mark.parametrize("kind", ["encoder", "decoder", "translator"])
def test_positions(kind, folders, here):
    code, output = show("positions", folders[kind], "--length", 20)
    assert code == 0, output
    height, width, _ = imread(here / "positions.png").shape
    assert height >= 500 and width >= 1000


def test_schedules(here):
    (here / "schedule.png").touch()
    code, output = show("schedule", "linear", "cosine", "noam", "--steps", 100, "--warmup-steps", 10)
    assert code == 0, output
    assert output == "linear, cosine, noam in schedule.png, in place of the one that was there"
    height, width, _ = imread(here / "schedule.png").shape
    assert height >= 800 and width >= 1000


def test_from_the_hub(online, client, tokenizer, here, tmp_path_factory):
    official, zoo = tmp_path_factory.mktemp("official"), tmp_path_factory.mktemp("zoo")
    build_tiny(BY_NAME["BertForSequenceClassification"]).save_pretrained(official)
    tiny_model(tfm_zoo.TfmBertForSequenceClassification).save_pretrained(zoo)
    for name, folder in (("user/official", official), ("user/zoo", zoo)):
        tokenizer.save_pretrained(folder)
        client().create_repo(name)
        client().upload_folder(repo_id=name, folder_path=folder)
        code, output = show("rollout", name, TEXT, "-o", f"{name}.png")
        assert code == 0, output
    assert written(here / "user") == ["official.png", "zoo.png"]


@pytest.mark.parametrize(
    ("command", "kind", "arguments", "complaint"),
    [
        ("attention", "encoder", [TEXT, "--layer", 2, "-o", "map.png"], "layer 2: the encoder attention of"),
        ("attention", "encoder", [TEXT, "--layer", 2], "has 0 to 1."),
        ("attention", "encoder", [TEXT, "--head", 4], "head 4: the encoder attention of encoder has 0 to 3."),
        ("attention", "encoder", [TEXT, "--kind", "cross"], "kind 'cross': encoder has attention of the kind encoder."),
        (
            "attention",
            "encoder",
            [TEXT, "-o", "map.jpg"],
            "'map.jpg' should end in one of .html, .htm, .png",
        ),
        ("attention", "encoder", ["film " * 30], "The text has 32 tokens, and encoder reads at most 24."),
        ("attention", "encoder", [TEXT, "--target", TARGET], "target 'a bright film': encoder reads no target"),
        ("rollout", "encoder", [TEXT], "encoder (TfmBertForMaskedLM) is no classifier of the zoo"),
        ("rollout", "classifier", [TEXT, "-o", "page.html"], "'page.html' should end in one of .png, .svg, .pdf"),
        ("heads", "encoder", [], "Give texts, or a --file with one text per line."),
        ("positions", "encoder", ["--length", 25], "length 25 should be at least 2, and at most 24."),
        ("positions", "sinusoidal", ["--length", 10**9], "length 1000000000 should be at least 2, and at most 8192."),
        ("positions", "rotary", ["--length", 0], "length 0 should be at least 2"),
        ("positions", "rotary", ["--hidden-size", 10**9], "hidden_size 1000000000 should be at most 131072"),
        ("schedule", "linear", ["--steps", 10**9], "steps 1000000000 should be at most 10000000"),
        *(
            (command, kind, [*texts, "-o", "x" * 300 + ".png"], "x.png' cannot be written: File name too long.")
            for command, kind, *texts in (
                ("attention", "encoder", TEXT),
                ("rollout", "classifier", TEXT),
                ("block", "gpt2"),
                ("training", "encoder"),
            )
        ),
        ("heads", "encoder", [TEXT, "-o", f"{__file__}/heads.png"], "test_show.py is a file."),
    ],
)
def test_bad_input(command, kind, arguments, complaint, folders, here):
    code, output = show(command, folders.get(kind, kind), *arguments)
    assert code == 1
    assert output.startswith("error: ") and complaint in output
    assert not written(here)


@pytest.mark.parametrize(
    ("head", "fields", "arguments", "complaint"),
    [
        (tfm_zoo.TfmEncoderDecoderModel, {}, ["attention", TEXT], "writes no target by itself: give it one"),
        (
            tfm_zoo.TfmGPTForCausalLM,
            {"attention_type": "linear"},
            ["attention", TEXT],
            "linear attention has no weights",
        ),
        (
            tfm_zoo.TfmBertModel,
            {"position_embedding_type": "none"},
            ["positions"],
            "has no positions to show",
        ),
    ],
)
def test_models_that_have_no_such_thing(head, fields, arguments, complaint, tokenizer, here, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_model(head, **fields).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    code, output = show(arguments[0], folder, *arguments[1:])
    assert code == 1
    assert output.startswith("error: ") and complaint in output
    assert not written(here)


@pytest.mark.parametrize("is_official", [False, True])
@pytest.mark.parametrize("command", ["attention", "rollout"])
def test_code_of_a_tokenizer_runs_on_request_alone(command, is_official, tokenizer, here, tmp_path_factory):
    folder, ran = tmp_path_factory.mktemp("model"), here / "ran"
    official = build_tiny(BY_NAME["BertForSequenceClassification"])
    (official if is_official else tiny_model(tfm_zoo.TfmBertForSequenceClassification)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    code = f"from transformers import PreTrainedTokenizerFast as Fast\nopen({str(ran)!r}, 'w')\nclass Own(Fast): pass\n"
    (folder / "own.py").write_text(code)
    _, output = show(command, folder, TEXT)
    assert not ran.exists(), output
    code, output = show(command, folder, TEXT, "--trust-remote-code")
    assert code == 0 and ran.exists(), output


def test_no_model_and_no_tokenizer(here, tmp_path_factory):
    code, output = show("attention", "no-such-folder", TEXT)
    assert code == 1 and "'no-such-folder' is neither a folder nor a model on the Hub" in output
    folder = tmp_path_factory.mktemp("model")
    tiny_model(tfm_zoo.TfmBertModel).save_pretrained(folder)
    code, output = show("attention", folder, TEXT)
    assert code == 1 and f"{folder} holds no tokenizer that can be loaded" in output
    code, output = show("block", "gemma-3-270")
    assert code == 1 and "the Hub cannot be reached" in output and "Did you mean 'gemma-3-270m'?" in output
    code, output = show("schedule", "cosign")
    assert code == 1 and "unknown schedule 'cosign'; choose from linear" in output
    assert not written(here)


@pytest.mark.slow
def test_without_matplotlib(here):
    """Only the pictures need matplotlib."""
    script = "import sys; sys.modules['matplotlib'] = None; from tfm_zoo.cli import main; main()"
    command = [sys.executable, "-c", script, "show", "schedule", "linear"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "error: `tfm-zoo show` needs matplotlib, which is not installed" in " ".join(ended.stderr.split())
    assert not written(here)
