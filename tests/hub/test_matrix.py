"""`verify` under several releases, each in an environment of its own."""

import json
import subprocess
import sys

import pytest
import yaml
from typer.testing import CliRunner

from tfm_zoo import TfmBertForMaskedLM
from tfm_zoo.cli import app
from tfm_zoo.hub import matrix, verify_matrix, verifying

from ..documents.document import ROOT
from ..tiny import tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    tiny_model(TfmBertForMaskedLM).save_pretrained(folder)
    return folder


def test_each_release_has_its_own(folder, monkeypatch):
    """One cannot be installed, and in another the model computes otherwise."""
    made = []

    def environment(place, requirement):
        assert place.is_dir()
        made.append(requirement)
        if requirement == "transformers==5.1.*":
            raise RuntimeError(f"{requirement} cannot be installed: there is none")
        return requirement, requirement.partition("==")[2] or "newest"

    def load(*arguments):
        saved, python = arguments[-2:]
        outputs = json.loads(json.dumps(saved["fingerprint"]["outputs"]))
        if python == "transformers==5.2.0":
            outputs["logits"]["values"][0] += 1
        kinds = dict.fromkeys(("missing", "unexpected", "changed"), ())
        return {"settings": {}, "outputs": outputs, "dtype": "float32"} | kinds, None

    monkeypatch.setattr(matrix, "environment", environment)
    monkeypatch.setattr(verifying, "load_in_fresh_process", load)
    found = verify_matrix(folder, "transformers == 5.1, 5.2.0, 5.3, latest")
    assert made == ["transformers==5.1.*", "transformers==5.2.0", "transformers==5.3.*", "transformers"]
    assert [row["ok"] for row in found.matrix.values()] == [False, False, True, True] and not found.ok
    code, *table = str(found).splitlines()
    assert code.startswith("code: that of tfm_zoo") and len(table) == 5
    assert "cannot be installed" in table[1] and "output logits drifted" in table[2]
    assert table[3].startswith("5.3.*") and table[4].startswith("newest") and table[4].endswith("outputs match")

    for releases, code in (("5.3,latest", 0), ("5.2.0,5.3", 1)):
        done = CliRunner().invoke(app, ["verify", str(folder), "--json", "--matrix", f"transformers=={releases}"])
        answer = json.loads(done.stdout)
        assert done.exit_code == code and answer["ok"] == (code == 0) and len(answer["matrix"]) == 2
    done = CliRunner().invoke(app, ["verify", str(folder), "--matrix", "transformers==5.3"])
    assert done.exit_code == 0 and "code, weights and outputs match" in done.stdout


@pytest.mark.parametrize("wrong", ["transformers", "transformers==", "==5.12", "transformers==5.12,newest", "t==5;x"])
def test_what_is_no_matrix(folder, wrong):
    with pytest.raises(ValueError, match=r"is no release\. It should be like 'transformers==5.12,"):
        verify_matrix(folder, wrong)


@pytest.mark.slow
def test_an_environment(tmp_path):
    """With what is installed here already, so that nothing is downloaded."""
    python, installed = matrix.environment(tmp_path, "packaging")
    program = "import packaging, torch, sys; print(sys.prefix)"
    assert subprocess.check_output([python, "-c", program], text=True).strip() == str(tmp_path)
    assert installed and python != sys.executable


def test_the_action_calls_what_there_is():
    action = yaml.safe_load((ROOT / ".github/actions/verify/action.yml").read_text())
    run = action["runs"]["steps"][1]["run"]
    for option in ("--matrix", "--json"):
        assert option in run and option in CliRunner().invoke(app, ["verify", "--help"]).output
    names = {name for step in action["runs"]["steps"] for name in step["env"]}
    assert {name.lower() for name in names} == action["inputs"].keys()
