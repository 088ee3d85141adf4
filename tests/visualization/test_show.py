"""`tfm-zoo show` and the functions behind it: each writes its picture. What cannot be shown is refused in a line,
before a file is written, and the model is left as it was."""

import pytest
import torch
from matplotlib.image import imread

import tfm_zoo
from tfm_zoo import visualization as pictures

from ..command import tfm_zoo as command
from ..hub.editing import edit
from ..official_models import BY_NAME, build_tiny
from ..tiny import tiny_model
from .conftest import TARGET, TEXT, model_of


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


PICTURES = (
    ["attention", "translator", TEXT, "--layer", 1, "--head", 2],
    ["heads", "encoder", "the film", "--file", "texts.txt"],
    ["rollout", "classifier", TEXT],
    ["block", "t5-small"],
    ["masks"],
    ["positions", "encoder", "--length", 20],
    ["positions", "sinusoidal", "--hidden-size", 64, "--length", 100],
    ["schedule", "linear", "cosine", "noam", "--steps", 100, "--warmup-steps", 10],
    *(["training", "runs", "trainer"], ["training", "unclocked"]),  # a recipe's folder, and the Trainer's
)


@pytest.mark.parametrize("words", PICTURES, ids=lambda words: words[0])
def test_a_picture(words, folders, here):
    (here / "texts.txt").write_text(f"{TEXT}\n\n{TARGET}\n")
    for folder in ("runs", "trainer/checkpoint-3", "unclocked"):
        entry = {"step": 3, "eval_loss": 2.0} | ({} if folder == "unclocked" else {"train_runtime": 60})
        edit(here / folder, "trainer_state.json", log_history=[entry])
    (here / "a.png").touch()
    said = command("show", *(folders.get(each, each) for each in words), "-o", "a.png")
    assert "a.png" in said and "in place of the one that was there" in said
    height, width, _ = imread(here / "a.png").shape
    assert height >= 200 and width >= 400


def test_attention_as_a_page(folders, here):
    command("show", "attention", folders["translator"], TEXT, "--target", TARGET, "--kind", "decoder", "--layer", 1)
    assert '"start":["decoder",1,0]' in (here / "attention.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["attention", "encoder", TEXT, "--layer", 2], "layer 2: the encoder attention of encoder has 0 to 1."),
        (["attention", "encoder", TEXT, "--kind", "cross"], "kind 'cross': encoder has attention of the kind encoder."),
        (["attention", "encoder", "film " * 30], "The text has 32 tokens, and encoder reads at most 24."),
        (["attention", "encoder", TEXT, "--target", TARGET], "target 'a bright film': encoder reads no target"),
        (["attention", "no-folder", TEXT], "'no-folder' is neither a folder nor a model on the Hub"),
        (["attention", "bare", TEXT], "bare holds no tokenizer that can be loaded"),
        (["rollout", "encoder", TEXT], "encoder (TfmBertForMaskedLM) is not a classifier of the zoo"),
        (["rollout", "classifier", TEXT, "-o", "page.html"], "'page.html' should end in one of .png, .svg, .pdf"),
        (["block", "gpt2", "-o", f"{'x' * 300}.png"], "x.png' cannot be written: File name too long."),
        (["block", "gpt2", "-o", "texts.txt/a.png"], "texts.txt is a file."),
        (["block", "gemma-3-270"], "Did you mean 'gemma-3-270m'?"),
        *((["block", "gpt2-small"], "mean 'gpt2'?"), (["block", "gpt2-medum"], "mean 'gpt2-medium'?")),
        (["block", "t5-base"], "Did you mean 't5-small'?"),
        (["heads", "encoder"], "Give texts, or a --file with one text per line."),
        (["positions", "bare"], "has no positions to show"),
        (["positions", "gpt2"], "positions are among the weights, which a configuration lacks"),
        (["positions", "encoder", "--length", 25], "length 25 should be at least 2, and at most 24."),
        (["positions", "rotary", "--hidden-size", 10**9], "hidden_size 1000000000 should be at most 131072"),
        (["schedule", "linear", "--warmup-steps", -1], "warmup_steps -1 should be at least 0"),
        (["schedule", "linear", "--steps", 10**9], "steps 1000000000 should be at most"),
        (["schedule", "reduce_lr_on_plateau"], "unknown schedule 'reduce_lr_on_plateau'"),  # it follows the losses
        (["training", "bare"], "bare has no trainer_state.json"),
    ],
)
def test_what_the_command_refuses(words, complaint, folders, here):
    if "bare" in words:
        tiny_model(tfm_zoo.TfmBertModel, position_embedding_type="none").save_pretrained("bare")
    (here / "texts.txt").touch()
    before = {*here.iterdir()}
    said = command("show", *(folders.get(each, each) for each in words), code=1)
    assert said.startswith("error: ") and complaint in said and {*here.iterdir()} == before


@pytest.mark.parametrize(
    ("make", "given", "complaint"),
    [
        (lambda: tiny_model(tfm_zoo.TfmEncoderDecoderModel), {"text": TEXT}, "writes no target by itself: give it one"),
        (lambda: tiny_model(tfm_zoo.TfmBertModel, attention_type="linear"), {"text": TEXT}, "attention has no weights"),
        (lambda: build_tiny(BY_NAME["MarianModel"]), {"text": TEXT, "target": TARGET}, "MarianModel has no head: load"),
        (lambda: model_of("translator"), {}, "takes these, or input_ids"),
        (lambda: model_of("encoder"), {"input_ids": torch.ones(9).long()}, "should be of shape .*: one text"),
        (lambda: model_of("encoder"), {"input_ids": torch.ones(1, 0).long()}, "The text has no token"),
        (lambda: model_of("translator"), {"input_ids": torch.ones(1, 9).long(), "target": TARGET}, "needs a tokenizer"),
    ],
)
def test_what_has_no_maps(make, given, complaint, tokenizer):
    """The model is left in training mode, and with its kernel of attention."""
    model = make().train()
    with pytest.raises(ValueError, match=complaint):
        pictures.attention_maps(model, None if "input_ids" in given else tokenizer, **given)
    assert model.training and model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(("what", "is_official"), [("attention", True), ("rollout", False)])
def test_code_of_a_tokenizer_runs_on_request_alone(what, is_official, tokenizer, here):
    official = build_tiny(BY_NAME["BertForSequenceClassification"])
    (official if is_official else tiny_model(tfm_zoo.TfmBertForSequenceClassification)).save_pretrained(what)
    tokenizer.save_pretrained(what)
    own = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    edit(here / what, "tokenizer_config.json", **own)
    code = "from transformers import PreTrainedTokenizerFast as Fast\nopen('ran', 'w')\nclass Own(Fast): pass\n"
    (here / what / "own.py").write_text(code)
    command("show", what, what, TEXT, code=0 if is_official else 1)
    assert not (here / "ran").exists()
    command("show", what, what, TEXT, "--trust-remote-code")
    assert (here / "ran").exists()
