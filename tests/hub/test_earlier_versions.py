"""Checkpoints that earlier versions saved load today and compute what they did, with this package and with their own
code.

`version_0_1.zip` was made once, by commit 2492be5, and `version_0_2.zip` by commit 0b044ac. They are never remade. Each
folder holds a tiny model of one head; `code` has the files that all heads of a family share. `recorded.pt` has a ragged
batch, all that the model returned for it, and a prompt with its greedy tokens. Folders with `-from-` in their names
were converted: beside them stand the official configuration, in `official`, and the logits of the official model.
Folders with `-int` are quantised: only the package loads them, and their manifests have what they computed.
"""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tfm_zoo
from tfm_zoo.proof import verify

from ..conversion.comparison import assert_same_config
from . import plain
from .conftest import run_jobs

VERSIONS = ("0.1.0", "0.2.0")


def archive(version: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(Path(__file__).with_name(f"version_{version.removesuffix('.0').replace('.', '_')}.zip"))


def names(version: str) -> list[str]:
    with archive(version) as kept:
        return sorted({name.split("/")[0] for name in kept.namelist()} - {"code"})


ALL = [(version, name) for version in VERSIONS for name in names(version)]
WHOLE = [(version, name) for version, name in ALL if "-int" not in name]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[tuple[str, str], Path]:
    """Version and name -> folder, with its code in it."""
    roots = {version: extracted(version, tmp_path_factory.mktemp("earlier")) for version in VERSIONS}
    return {(version, name): roots[version] / name for version, name in ALL}


def extracted(version: str, root: Path) -> Path:
    with archive(version) as kept:
        kept.extractall(root)
    for name in names(version):
        for file in json.loads((root / name / "zoo_manifest.json").read_text())["code"]:
            (root / name / file).write_bytes((root / "code" / file).read_bytes())
    return root


def assert_replayed(result: dict | str, folder: Path) -> None:
    """The outputs and tokens that were recorded, and no weight missing or left over."""
    assert isinstance(result, dict), f"{folder.name}: {result}"
    recorded = torch.load(folder / "recorded.pt")
    assert not result["unmatched"], f"{folder.name} has weights that are {result['unmatched']}"
    assert result["outputs"].keys() == recorded["outputs"].keys(), f"{folder.name} gives {list(result['outputs'])}"
    for name, tensor in recorded["outputs"].items():
        error = f"output {name} of {folder.name} differs"
        largest = max(1.0, tensor.float().abs().max().item())  # another machine's rounding goes by it
        torch.testing.assert_close(result["outputs"][name], tensor, rtol=1e-6, atol=1e-6 * largest, msg=error)
    tokens, wanted = (each["tokens"].tolist() if "tokens" in recorded else None for each in (result, recorded))
    assert tokens == wanted, f"{folder.name} writes {tokens} and not {wanted}"


@pytest.mark.parametrize(("version", "name"), WHOLE)
def test_loads_by_name(version, name, checkpoints):
    folder = checkpoints[version, name]
    assert_replayed(plain.replay(str(folder)), folder)


@pytest.mark.slow
@pytest.mark.parametrize("version", [*VERSIONS, "today"])
def test_every_one_loads_with_its_own_code(version, checkpoints, plain_forks, tmp_path):
    """Where there is no zoo. Saved again today, they have today's names and code: the tensors of version 0.1 that have
    other names since then are those of encoders' classifiers of sequences."""
    folders = [checkpoints[each] for each in WHOLE if each[0] == version]
    for each, folder in checkpoints.items() if version == "today" else ():
        if each[1].startswith("TfmBertForSequenceClassification"):
            model = tfm_zoo.TfmBertForSequenceClassification.from_pretrained(folder)
            folders.append(tmp_path.joinpath(*each))
            model.save_pretrained(folders[-1])
            shutil.copy(folder / "recorded.pt", folders[-1])
            assert load_file(folders[-1] / "model.safetensors").keys() == model.state_dict().keys()
    arguments = {"sources": [str(folder) for folder in folders], "trust_remote_code": True}
    [results] = run_jobs([("replay_all", arguments)], plain_forks, tmp_path)
    for folder, result in zip(folders, results, strict=True):
        assert_replayed(result, folder)


@pytest.mark.parametrize(("version", "name"), [each for each in ALL if "-from-" in each[1]])
def test_a_converted_one_goes_back(version, name, checkpoints):
    folder = checkpoints[version, name]
    official = tfm_zoo.to_official(getattr(tfm_zoo, name.split("-")[0]).from_pretrained(folder)).eval()
    assert_same_config(official.config, type(official.config).from_pretrained(folder / "official"))
    recorded = torch.load(folder / "recorded.pt")
    with torch.no_grad():
        outputs = official(**recorded["inputs"], use_cache=False)
    logits = outputs.logits if "logits" in outputs else outputs.start_logits
    torch.testing.assert_close(logits, recorded["official_logits"], rtol=1e-5, atol=1e-5)  # CPUs round differently


SOME = [(version, "TfmGPTForCausalLM") for version in VERSIONS] + [each for each in ALL if each not in WHOLE]


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("version", "name"), SOME)
def test_verify_says_at_most_that_the_version_is_another(version, name, checkpoints):
    verdict = verify(checkpoints[version, name])
    assert verdict.ok, verdict
    assert all(warning.startswith(f"its code is that of tfm_zoo {version}; ") for warning in verdict.warnings)
