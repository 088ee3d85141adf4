"""A checkpoint proves that it is what it was saved as: by its files, its code and what it computes; each difference is
named, and so is what cannot be checked. (`test_faults.py` has more of them, `test_refused.py` what is not read.)"""

import json

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from tfm_zoo import TfmBertForMaskedLM, TfmGPTForCausalLM
from tfm_zoo.cli import app
from tfm_zoo.proof import manifest, matrix, verify, verify_matrix, verifying

from ..forks import with_transformers
from ..tiny import tiny_model
from .editing import CONFIG, MANIFEST, accept, edit, replace, tensors, write

POSITIONS = "positions.py"
IN_FRESH_PROCESS = verifying.load_in_fresh_process


@pytest.fixture
def folder(tmp_path, here):
    tiny_model(TfmBertForMaskedLM).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def run(*arguments: object):
    return CliRunner().invoke(app, ["verify", *map(str, arguments)])


def test_what_lies_beside_the_checkpoint(tmp_path, here):
    """An adapter, weights that are not read, and a file of code that is the user's own."""
    write("train.py", "from tfm_zoo import nothing")(tmp_path)
    tiny_model(TfmGPTForCausalLM).save_pretrained(tmp_path, max_shard_size="20KB")
    stray = {"base_model.lora_A.weight": torch.zeros(2, 2)}
    for name in ("adapter_model.safetensors", "model-00001-of-00002.safetensors"):
        save_file(stray, tmp_path / name)
    write("train.py", "")(tmp_path)
    verdict = verify(tmp_path)
    assert verdict.ok and verdict.warnings == ["files of weights that are not read: model-00001-of-00002.safetensors"]
    save_file(stray, tmp_path / "model.safetensors")  # which goes before an index
    assert "weights not the checkpoint's: base_model.lora_A.weight" in verify(tmp_path).differences


@pytest.mark.slow
def test_in_a_process_of_its_own(folder, monkeypatch):
    """Code of an unknown version runs there if it is trusted, and what does not load is told."""
    monkeypatch.setattr(verifying, "load_in_fresh_process", IN_FRESH_PROCESS)
    replace(POSITIONS, "10000.0", "10000.1")(folder)
    accept(folder, POSITIONS)  # as if it had been saved with it
    edit(folder, MANIFEST, tfm_zoo="0.0.1")
    assert verify(folder, trust_remote_code=True).ok
    monkeypatch.setattr("subprocess.run", with_transformers().run)  # which takes fewer seconds
    edit(folder, CONFIG, hidden_size=64)
    *sizes, failure = verify(folder, trust_remote_code=True).differences
    assert "config.json: hidden_size was 32 and is 64" in sizes and failure.startswith("it does not load: ")
    assert "head.dense.bias is (32,) and should be (64,)" in failure


def test_command(folder, tmp_path):
    whole = run(folder)
    assert whole.exit_code == 0 and whole.output.rstrip().endswith(f"\n{folder}: code, weights and outputs match")
    (folder / POSITIONS).unlink()
    broken, nothing = run(folder, "--json"), run(tmp_path, "--json")
    found, answer = json.loads(broken.stdout), json.loads(nothing.stdout)
    assert broken.exit_code == nothing.exit_code == 1 and not found["ok"]
    assert "code file positions.py is missing" in found["differences"]
    assert answer.pop("error").startswith(f"{tmp_path} is not a folder of a model: it lacks config")
    assert answer == {"source": str(tmp_path), "ok": False}


def test_a_repository_that_is_not_there_or_has_no_manifest(online, monkeypatch):
    online().create_repo("user/plain")
    for name, revision, offline, message in (
        ("runs/nothere", None, False, "'runs/nothere' is neither a folder nor a model on the Hub"),
        ("user/plain", None, False, r"user/plain on its main branch .* has no zoo_manifest.json"),
        ("user/plain", "v9", False, "'user/plain' has no revision 'v9' on the Hub"),
        ("user/plain", None, True, "its cache lacks files of user/plain"),
    ):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
        with pytest.raises(FileNotFoundError, match=message):
            verify(name, revision=revision)


def test_a_model_that_cannot_be_run_is_saved_all_the_same(tmp_path, here, monkeypatch, caplog):
    model = tiny_model(TfmBertForMaskedLM)
    monkeypatch.setattr(manifest.logger.parent, "propagate", True)
    with monkeypatch.context() as broken:
        broken.setattr(type(model), "forward", lambda *_, **__: 1 / 0)
        model.save_pretrained(tmp_path)
    assert "keeps no outputs to compare with later: ZeroDivisionError" in caplog.text
    edit(tmp_path, MANIFEST, tested={"transformers": ["4.0.0", "4.1.0"]})
    verdict = verify(tmp_path)
    assert verdict.ok and verdict.match == "code and weights match"
    untested, without = verdict.warnings
    assert without == "it was saved without outputs to compare with, since it could not be run then"
    assert "is outside of the tested range, 4.0.0 to 4.1.0; it was saved with " in untested
    with pytest.raises(RuntimeError, match="the model is offloaded or sharded"):
        manifest.fingerprint(model.to("meta"))


def test_a_model_of_nan(tmp_path, here):
    model = tiny_model(TfmBertForMaskedLM)
    model.lm_head.bias.data[0] = torch.nan
    model.save_pretrained(tmp_path)
    json.loads((tmp_path / MANIFEST).read_text(), parse_constant=pytest.fail)  # NaN is not JSON
    assert verify(tmp_path).ok
    tensors(lambda given: {name: tensor.nan_to_num() for name, tensor in given.items()})(tmp_path)
    assert "values that are finite and were not, or the reverse" in str(verify(tmp_path))


def test_each_release_has_an_environment_of_its_own(folder, monkeypatch):
    """One cannot be installed, and in another the model computes otherwise."""
    made = []

    def environment(place, requirement):
        made.append(requirement)
        if requirement == "transformers==5.1.*":
            raise RuntimeError(f"{requirement} cannot be installed: there is none")
        return requirement, requirement.partition("==")[2] or "newest"

    def load(*arguments):
        saved, python = arguments[-2:]
        outputs = json.loads(json.dumps(saved["fingerprint"]["outputs"]))
        outputs["logits"]["values"][0] += python == "transformers==5.2.0"
        kinds = dict.fromkeys(("missing", "unexpected", "not_as_in_file"), ())
        return {"settings": {}, "outputs": outputs, "dtype": "float32"} | kinds, None

    monkeypatch.setattr(matrix, "environment", environment)
    monkeypatch.setattr(verifying, "load_in_fresh_process", load)
    found = verify_matrix(folder, "transformers == 5.1, 5.2.0, 5.3, latest")
    assert made == ["transformers==5.1.*", "transformers==5.2.0", "transformers==5.3.*", "transformers"]
    assert [row["ok"] for row in found.matrix.values()] == [False, False, True, True] and not found.ok
    said = str(found)
    assert "cannot be installed" in said and "output logits drifted" in said and said.endswith("outputs match")
    for releases, code in (("5.3,latest", 0), ("5.2.0,5.3", 1)):
        done = run(folder, "--json", "--matrix", f"transformers=={releases}")
        answer = json.loads(done.stdout)
        assert done.exit_code == code and answer["ok"] == (code == 0) and len(answer["matrix"]) == 2
    for wrong in ("transformers==", "==5.12", "transformers==5.12,newest"):
        with pytest.raises(ValueError, match=r"is not a release\. It should be like 'transformers==5.12,"):
            verify_matrix(folder, wrong)
