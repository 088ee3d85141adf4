"""A checkpoint proves that it is what it was saved as; each fault is made, and found."""

import json
import re
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from tfm_zoo import TfmBertForMaskedLM, TfmBertForSequenceClassification, TfmEncoderDecoderForConditionalGeneration
from tfm_zoo.cli import app
from tfm_zoo.hub import verify
from tfm_zoo.models import manifest as manifests

from ..tiny import HEADS, tiny_model

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
    manifest = json.loads((tmp_path / manifests.FILE).read_text())
    assert model.training
    assert manifest["code"].keys() == {path.name for path in tmp_path.glob("*.py")}
    assert manifest["weights"].keys() == load_file(tmp_path / "model.safetensors").keys()
    inputs = {name: torch.tensor(ids) for name, ids in manifest["fingerprint"]["inputs"].items()}
    with torch.no_grad():
        outputs = model.eval()(**inputs)
    assert manifest["fingerprint"]["outputs"] == manifests.sample(outputs)
    assert all(len(set(output["values"])) > 1 for output in manifest["fingerprint"]["outputs"].values())


def test_weights_that_are_given_are_those_of_the_fingerprint(tmp_path):
    model = tiny_model(TfmBertForMaskedLM)
    halved = {name: tensor / 2 for name, tensor in model.state_dict().items()}
    model.save_pretrained(tmp_path / "given", state_dict=dict(halved))
    model.load_state_dict(halved)
    model.save_pretrained(tmp_path / "own")
    given, own = (json.loads((tmp_path / name / manifests.FILE).read_text()) for name in ("given", "own"))
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


def change(folder, name: str, by: float | None) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = tensors[name] + by if by is not None else tensors[name]
    if by is None:
        del tensors[name]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_one_tensor_changed(folder):
    name = "model.layers.0.self_attn.k_proj.bias"  # of which softmax takes no notice: the outputs stay
    change(folder, name, by=1e-3)
    verdict = verify(folder)
    assert f"weights changed: {name}" in verdict.differences


def test_weights_missing(folder):
    change(folder, "model.layers.1.mlp.up_proj.weight", by=None)
    differences = verify(folder).differences
    assert "weights missing: model.layers.1.mlp.up_proj.weight" in differences
    assert "weights missing when it is loaded: model.layers.1.mlp.up_proj.weight" in differences
    assert any(difference.startswith("output logits drifted") for difference in differences)


def test_weights_that_loading_leaves_random(folder):
    """As code that does not find its weights, under whatever version: the files are whole, the model is not."""
    path = folder / "modeling_tfm_bert.py"
    path.write_text(path.read_text().replace("self.head", "self.renamed_head"))
    saved = json.loads((folder / manifests.FILE).read_text())
    saved["code"][path.name] = manifests.digest(path.read_bytes())
    (folder / manifests.FILE).write_text(json.dumps(saved))
    differences = verify(folder).differences
    assert any(one.startswith("weights missing when it is loaded: renamed_head.dense.bias") for one in differences)
    assert any(one.startswith("output logits drifted") for one in differences)


def test_code_edited_by_a_character(folder):
    path = folder / "positions.py"
    path.write_text(path.read_text().replace("10000.0", "10000.1", 1))
    assert verify(folder).differences == ["code file positions.py has been changed"]


def test_code_of_another_version(folder):
    """Files of another version, put over those that were saved; and a checkpoint that was saved with them."""
    path = folder / "manifest.py"
    path.write_text(path.read_text().replace(f'VERSION = "{manifests.VERSION}"', 'VERSION = "0.0.1"'))
    assert verify(folder).differences == ["code file manifest.py has been changed"]
    saved = json.loads((folder / manifests.FILE).read_text())
    saved["code"]["manifest.py"] = manifests.digest(path.read_bytes())
    (folder / manifests.FILE).write_text(json.dumps(saved))
    assert verify(folder).differences == [
        f"code file manifest.py is not the one that tfm_zoo {manifests.VERSION} ships"
    ]
    saved["tfm_zoo"] = "0.0.1"
    (folder / manifests.FILE).write_text(json.dumps(saved))
    verdict = verify(folder)
    assert verdict.ok
    assert verdict.warnings == [f"its code is that of tfm_zoo 0.0.1; {manifests.VERSION} is installed"]


def test_transformers_outside_of_the_tested_range(folder, monkeypatch):
    saved = json.loads((folder / manifests.FILE).read_text())
    monkeypatch.setattr(transformers, "__version__", "6.1.0")
    verdict = verify(folder)
    assert verdict.ok
    (warning,) = verdict.warnings
    wanted = r"transformers 6\.1\.0 is outside of the tested range, <6,>=5\.\d+; it was saved with "
    assert re.fullmatch(wanted + re.escape(saved["transformers"]), warning)


def test_command(folder, tmp_path):
    runner = CliRunner()
    whole = runner.invoke(app, ["verify", str(folder)])
    assert (whole.exit_code, whole.output.strip().splitlines()[-1]) == (
        0,
        f"{folder}: code, weights and outputs match",
    )
    (folder / "norms.py").unlink()
    broken = runner.invoke(app, ["verify", str(folder), "--json"])
    found = json.loads(broken.stdout)
    assert broken.exit_code == 1 and not found["ok"]
    assert "code file norms.py is missing" in found["differences"]
    (tmp_path / "empty").mkdir()
    nothing = runner.invoke(app, ["verify", str(tmp_path / "empty")])
    assert nothing.exit_code == 1 and "it was not saved as a model of the zoo" in " ".join(nothing.output.split())


def test_a_model_that_cannot_be_run_is_saved_all_the_same(tmp_path, monkeypatch):
    model = tiny_model(TfmBertForMaskedLM)
    monkeypatch.setattr(type(model), "forward", lambda *_, **__: 1 / 0)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / manifests.FILE).read_text())["fingerprint"] is None
