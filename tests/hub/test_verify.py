"""A checkpoint proves that it is what it was saved as; each fault is made, and found."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import tfm_zoo
from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmBertForSequenceClassification,
    TfmEncoderDecoderForConditionalGeneration,
    TfmGPTForCausalLM,
)
from tfm_zoo.cli import app
from tfm_zoo.hub import Verdict, contents, fingerprints, manifest, verify, verifying
from tfm_zoo.hub.comparisons import compare_code, compare_tested, compare_versions
from tfm_zoo.hub.origin import origin_of

from ..tiny import HEADS, tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked")]
SOME = [TfmBertForSequenceClassification, TfmEncoderDecoderForConditionalGeneration]


@pytest.fixture
def folder(tmp_path):
    model = tiny_model(TfmBertForMaskedLM)
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_manifest_of_every_head(head, tmp_path):
    model = tiny_model(head).train()
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / manifest.FILE).read_text())
    assert model.training and saved["tfm_zoo"] == tfm_zoo.__version__
    assert saved["code"].keys() == {path.name for path in tmp_path.glob("*.py")}
    assert saved["weights"].keys() == load_file(tmp_path / "model.safetensors").keys()
    inputs = fingerprints.given(saved["fingerprint"]["inputs"], model.dtype)
    with torch.no_grad():
        outputs = model.eval()(**inputs)
    outputs_saved = {name: output for name, output in saved["fingerprint"]["outputs"].items() if name != "loss"}
    assert outputs_saved == fingerprints.sample(outputs)
    assert all(len(set(output["values"])) > 1 for output in outputs_saved.values())


def test_weights_that_are_given_are_those_of_the_fingerprint(tmp_path):
    model = tiny_model(TfmBertForMaskedLM)
    halved = {name: tensor / 2 for name, tensor in model.state_dict().items()}
    model.save_pretrained(tmp_path / "given", state_dict=dict(halved))
    model.load_state_dict(halved)
    model.save_pretrained(tmp_path / "own")
    given, own = (json.loads((tmp_path / name / manifest.FILE).read_text()) for name in ("given", "own"))
    assert given["fingerprint"] == own["fingerprint"]


@pytest.mark.parametrize("head", SOME, ids=lambda head: head.__name__)
def test_moved_elsewhere_and_in_another_type(head, tmp_path):
    tiny_model(head).save_pretrained(tmp_path / "here")
    shutil.move(tmp_path / "here", tmp_path / "there")
    verdict = verify(tmp_path / "there")
    assert verdict.ok and not verdict.warnings, verdict
    assert verdict.figures["drift"] and max(verdict.figures["drift"].values()) == 0
    coarse = verify(tmp_path / "there", dtype="bfloat16")
    assert coarse.ok, coarse
    assert 0 < max(coarse.figures["drift"].values()) <= coarse.figures["tolerance"] == 5e-2


def edit(path, **fields) -> dict:
    """Sets fields of a JSON file; gives its content."""
    content = (json.loads(path.read_text()) if path.exists() else {}) | fields
    path.write_text(json.dumps(content))
    return content


def test_weights_missing(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    differences = verify(folder).differences
    assert "weights missing: model.layers.1.mlp.up_proj.weight" in differences
    assert "weights missing when it is loaded: model.layers.1.mlp.up_proj.weight" in differences
    assert any(difference.startswith("output logits drifted") for difference in differences)


#: as whoever trusts the folder's code, whatever it is
RUN = {"trust_remote_code": True, "run_changed": True}


def accept(path) -> None:
    """Makes a file of code one that the checkpoint was saved with."""
    place = path.parent / manifest.FILE
    edit(place, code=edit(place)["code"] | contents.digests_of_files(path.parent, [path.name]))


def test_weights_that_loading_leaves_random(folder):
    """As code that does not find its weights, under whatever version: the files are whole, the model is not."""
    for path in (folder / "modeling_tfm_bert.py", folder / "encoder_heads.py"):
        path.write_text(re.sub(r"\b(self|model)\.head\b", r"\1.renamed_head", path.read_text()))
        accept(path)
    differences = verify(folder, **RUN).differences
    assert any(one.startswith("weights missing when it is loaded: renamed_head.dense.bias") for one in differences)
    assert any(one.startswith("output logits drifted") for one in differences)


def test_weights_that_loading_changes(folder):
    """Though they are all found; with no outputs to see it by, and loaded in another type."""
    with (folder / "modeling_tfm_bert.py").open("a") as code:
        code.write("""

class TfmBertForMaskedLM(TfmBertForMaskedLM):
    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        model, info = super().from_pretrained(*args, **kwargs)
        model.head.dense.bias.data += 0.1
        return model, info
""")
    accept(folder / "modeling_tfm_bert.py")
    edit(folder / manifest.FILE, fingerprint=None, tfm_zoo="0.0.1")
    verdict = verify(folder, dtype="bfloat16", **RUN)
    assert verdict.differences == ["weights are not as in their file once loaded: head.dense.bias"]
    assert verdict.warnings == ["it was saved without outputs to compare with, since it could not be run then"]


def test_what_lies_beside_the_checkpoint(tmp_path):
    """An adapter, weights that are not read, and a file of code that is the user's own."""
    (tmp_path / "train.py").write_text("from tfm_zoo import nothing")
    tiny_model(TfmGPTForCausalLM).save_pretrained(tmp_path, max_shard_size="20KB")
    stray = {"base_model.lora_A.weight": torch.zeros(2, 2)}
    for name in ("adapter_model.safetensors", "model-00001-of-00002.safetensors"):
        save_file(stray, tmp_path / name)
    (tmp_path / "train.py").write_text("")
    verdict = verify(tmp_path)
    assert verdict.ok and len(contents.weight_files_in(tmp_path)) > 2, verdict
    assert verdict.warnings == ["files of weights that are not read: model-00001-of-00002.safetensors"]
    # One file of all weights goes before an index.
    save_file(stray, tmp_path / "model.safetensors")
    assert contents.digests_of_tensors(tmp_path).keys() == stray.keys()


def test_settings(tmp_path):
    """Values that are written out, or left out, where they are the default, and where it was loaded from, are none."""
    tiny_model(TfmGPTForCausalLM).save_pretrained(tmp_path)
    config = edit(tmp_path / "config.json", norm_eps=0.5, transformers_version="5.99", _name_or_path="elsewhere")
    del config["attention_bias"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    edit(tmp_path / "generation_config.json", num_beams=4)
    eps, beams, drift, loss, where = verify(tmp_path).differences
    assert eps == "config.json: norm_eps was 1e-05 and is 0.5"
    assert beams == "generation_config.json: num_beams was None and is 4"
    assert drift.startswith("output logits drifted by ") and loss.startswith("output loss drifted by ")
    part = "model.layers.0.self_attn_norm (LayerNorm)"
    assert where.startswith(f"the first part that differs is {part}") and where.endswith("a norm")


def test_settings_that_do_not_load(folder, monkeypatch):
    monkeypatch.undo()  # in a process that is really its own
    edit(folder / "config.json", hidden_size=64)
    *sizes, failure = verify(folder).differences
    assert "config.json: hidden_size was 32 and is 64" in sizes and failure.startswith("it does not load: ")
    assert "head.dense.bias is (32,) and should be (64,)" in failure


def test_a_class_that_no_auto_class_gives(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("import tfm_zoo\n\nclass Mine(tfm_zoo.TfmBertForMaskedLM):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    tiny_model(__import__("mine").Mine).save_pretrained(tmp_path / "model")
    monkeypatch.setattr("subprocess.run", None)
    nothing = "it does not load: no Auto class in the auto_map of config.json gives a Mine"
    assert verify(tmp_path / "model").differences == [nothing]


def test_code_of_ones_own(folder):
    """Its files are no other than they were; what the zoo ships has no say in them."""
    (folder / "mine.py").write_text("from .modeling_tfm_bert import *\n\nclass Mine(TfmBertForMaskedLM):\n    pass\n")
    auto_map = edit(folder / "config.json")["auto_map"] | {"AutoModelForMaskedLM": "mine.Mine"}
    edit(folder / "config.json", architectures=["Mine"], auto_map=auto_map)
    manifest.write_manifest(tiny_model(TfmBertForMaskedLM), folder)
    (not_run,) = verify(folder).differences
    assert not_run == "it was not run, since that needs trust_remote_code=True"
    assert verify(folder, trust_remote_code=True).ok
    (folder / "more.py").write_text("")
    (folder / "mine.py").write_text("from .more import *\n" + (folder / "mine.py").read_text())
    assert of_code(folder).differences == [
        "code file mine.py has been changed",
        "code file more.py was not saved with the checkpoint",
    ]


def test_code_edited_by_a_character(folder):
    path = folder / "positions.py"
    path.write_text(path.read_text().replace("10000.0", "10000.1", 1))
    changed, not_run = verify(folder, trust_remote_code=True).differences
    assert changed == "code file positions.py has been changed"
    assert not_run == "it was not run, since that needs run_changed=True"
    assert verify(folder, **RUN).differences == [changed]
    result = CliRunner().invoke(app, ["verify", str(folder)])  # which names its own options
    verdict = f"{folder}: {changed}; it was not run, since that needs --trust-remote-code and --run-changed\n"
    assert result.exit_code == 1 and result.stdout.endswith(verdict) and result.stdout.count("with changes") == 1
    assert "process" not in CliRunner().invoke(app, ["verify", str(folder), "--code-only"]).stderr  # it runs nothing


def of_code(folder) -> Verdict:
    """On its files of code and its versions alone."""
    saved, verdict = edit(folder / manifest.FILE), Verdict("model")
    compare_code(saved, folder, verdict)
    compare_versions(saved, origin_of(folder), verdict)
    return verdict


def test_code_of_another_version(folder):
    """Files of another version, put over those that were saved; and a checkpoint that was saved with them."""
    path = folder / "norms.py"
    path.write_text(path.read_text() + "\n# of another version\n")
    assert of_code(folder).differences == ["code file norms.py has been changed"]
    accept(path)
    assert of_code(folder).differences == [
        f"code file norms.py is not the one that tfm_zoo {tfm_zoo.__version__} ships"
    ]
    edit(folder / manifest.FILE, tfm_zoo="0.0.1")
    assert verify(folder).differences[0] == "it was not run, since that needs trust_remote_code=True"
    assert verify(folder, trust_remote_code=True).ok


def test_transformers_outside_of_the_tested_range(folder):
    """Which the manifest names, for the release that loads it."""
    saved, verdict = json.loads((folder / manifest.FILE).read_text()), Verdict("model")
    (oldest, *_, newest) = saved["tested"]["transformers"]
    for release in (oldest, f"{oldest}.3", f"{newest}.9", newest):
        compare_tested(saved, release, verdict)
    assert verdict.ok and verdict.warnings == []
    for release in ("5.11.0", "6.1.0"):
        compare_tested(saved, release, verdict)
    wanted = f" is outside of the tested range, {oldest} to {newest}; it was saved with {saved['transformers']}"
    assert verdict.ok and verdict.warnings == [f"transformers 5.11.0{wanted}", f"transformers 6.1.0{wanted}"]


def test_command(folder, tmp_path):
    runner = CliRunner()
    whole = runner.invoke(app, ["verify", str(folder)])
    assert whole.stderr.startswith(f"Verifying {folder}: ")  # before what takes long
    assert (whole.exit_code, whole.output.strip().splitlines()[-1]) == (
        0,
        f"{folder}: code, weights and outputs match",
    )
    (folder / "positions.py").unlink()
    broken = runner.invoke(app, ["verify", str(folder), "--json"])
    found = json.loads(broken.stdout)
    assert broken.exit_code == 1 and not found["ok"]
    assert "code file positions.py is missing" in found["differences"]
    (tmp_path / "empty").mkdir()
    nothing = runner.invoke(app, ["verify", str(tmp_path / "empty")])
    assert nothing.exit_code == 1 and "it was not saved as a model of the zoo" in " ".join(nothing.output.split())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            manifest.FILE,
            "{}",
            "zoo_manifest.json has no tfm_zoo, no transformers, .* no fingerprint: it is no manifest",
        ),
        (
            manifest.FILE,
            json.dumps({name: {} for name in verifying.FIELDS} | {"weights": [], "fingerprint": {"outputs": {"x": 3}}}),
            "zoo_manifest.json is no manifest, .*: look at .*transformers, .*weights, .*fingerprint.outputs.x",
        ),
        (manifest.FILE, "[" * 9999, "zoo_manifest.json cannot be read: "),
        (manifest.FILE, "[]", "zoo_manifest.json holds list where a JSON object is wanted"),
        (manifest.FILE, "{", "zoo_manifest.json cannot be read: "),
        ("tokenizer_config.json", "[]", "tokenizer_config.json holds list where"),
        ("config.json", None, "config.json cannot be read: .*No such file"),
    ],
)
def test_files_that_cannot_be_read(folder, name, content, message):
    if "tokenizer" in name:
        manifest.complete_manifest(folder)
    (folder / name).unlink() if content is None else (folder / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        verify(folder)


def test_unknown_dtype(folder):
    with pytest.raises(ValueError, match="dtype='float33' should be one of: auto, float32, float64, float16, bfloat16"):
        verify(folder, dtype="float33")


def test_neither_a_folder_nor_a_repository(online):
    with pytest.raises(FileNotFoundError, match="'runs/nothere' is neither a folder nor a model on the Hub"):
        verify("runs/nothere")


def test_nothing_is_announced_for_a_folder_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = CliRunner().invoke(app, ["verify", "runs/nothere/x"])
    assert outcome.exit_code == 1 and outcome.output == "error: There is no folder 'runs/nothere/x'.\n"
    outcome = CliRunner().invoke(app, ["verify", "my-missing"])
    assert outcome.exit_code == 1 and outcome.output.startswith("error: 'my-missing' is neither a folder nor a model")


def test_a_repository_without_a_manifest(online, monkeypatch):
    online().create_repo("user/plain")
    with pytest.raises(FileNotFoundError, match=r"user/plain on its main branch .* has no zoo_manifest.json"):
        verify("user/plain")
    with pytest.raises(FileNotFoundError, match="'user/plain' has no revision 'v9' on the Hub"):
        verify("user/plain", revision="v9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match="its cache lacks files of user/plain"):
        verify("user/plain")


def test_command_on_what_cannot_be_checked(tmp_path):
    outcome = CliRunner().invoke(app, ["verify", str(tmp_path), "--json"])
    answer = json.loads(outcome.stdout)
    assert outcome.exit_code == 1 and answer.pop("error").startswith(f"{tmp_path} has no zoo_manifest.json")
    assert answer == {"source": str(tmp_path), "ok": False}


def test_a_model_that_cannot_be_run_is_saved_all_the_same(tmp_path, monkeypatch, caplog):
    model = tiny_model(TfmBertForMaskedLM)
    monkeypatch.setattr(type(model), "forward", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(manifest.logger.parent, "propagate", True)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / manifest.FILE).read_text())["fingerprint"] is None
    assert "keeps no outputs to compare with later: ZeroDivisionError" in caplog.text
