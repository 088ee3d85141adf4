"""Checkpoints that version 0.1 saved load today and compute what they did, with this package and with their own code.

`version_0_1.zip` was made once, by commit 2492be5 (transformers 5.23, torch 2.13), and is never remade. Each folder
holds what `save_pretrained` wrote for a tiny model of one head; the code files, the same for all heads, are kept once,
in `code`. The axes of the configuration vary over the heads. `recorded.pt` beside each checkpoint holds a ragged batch,
every tensor that the model returned for it (hidden states included) and, for a model that generates, a prompt and its
greedy tokens; a decoder's prompt is padded on the left, and `no_repeat_ngram_size=1` keeps the tokens from repeating.
Folders with `-from-` in their names were converted: beside them stand the official configuration that they came from,
in `official`, and, in `recorded.pt`, the logits of the official model.
"""

import json
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import tfm_zoo
from tfm_zoo.hub import verify

from ..conversion.comparison import assert_same_config
from ..tiny import HEADS
from . import plain
from .conftest import run_jobs

ARCHIVE = Path(__file__).with_name("version_0_1.zip")
with zipfile.ZipFile(ARCHIVE) as _archive:
    NAMES = sorted({name.split("/")[0] for name in _archive.namelist()} - {"code"})


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    """Name -> folder, with its code in it."""
    root = tmp_path_factory.mktemp("version_0_1")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(root)
    for name in NAMES:
        for file in json.loads((root / name / "zoo_manifest.json").read_text())["code"]:
            (root / name / file).write_bytes((root / "code" / file).read_bytes())
    return {name: root / name for name in NAMES}


def assert_replayed(result: dict, folder: Path) -> None:
    """The outputs and tokens that were recorded, and no weight missing or left over."""
    recorded = torch.load(folder / "recorded.pt")
    assert not result["unmatched"]
    assert result["outputs"].keys() == recorded["outputs"].keys()
    for name, tensor in recorded["outputs"].items():
        error = f"output {name} of {folder.name} differs"
        torch.testing.assert_close(result["outputs"][name], tensor, rtol=1e-6, atol=1e-6, msg=error)
    if "tokens" in recorded:
        assert result["tokens"].tolist() == recorded["tokens"].tolist()


def test_every_head_is_among_them():
    later = {"TfmEncoderDecoderForQuestionAnswering", "TfmEncoderDecoderForTokenClassification"}
    assert {name.split("-")[0] for name in NAMES} == {head.__name__ for head in HEADS} - later


@pytest.mark.parametrize("name", NAMES)
def test_loads_by_name(name, checkpoints):
    folder = checkpoints[name]
    for model_class in (getattr(tfm_zoo, name.split("-")[0]), None):  # its own, and its Auto class
        assert_replayed(plain.replay(str(folder), model_class), folder)


@pytest.mark.slow
def test_every_one_loads_with_its_own_code(checkpoints, plain_forks, tmp_path):
    arguments = {"sources": [str(folder) for folder in checkpoints.values()], "trust_remote_code": True}
    [results] = run_jobs([("replay_all", arguments)], plain_forks, tmp_path)
    for folder, result in zip(checkpoints.values(), results, strict=True):
        assert_replayed(result, folder)


@pytest.mark.slow
def test_saved_again_they_have_todays_names_and_code(checkpoints, plain_forks, tmp_path):
    """The tensors that have other names since then are those of encoders' classifiers of sequences."""
    folders = [folder for name, folder in checkpoints.items() if name.startswith("TfmBertForSequenceClassification")]
    for folder in folders:
        model = tfm_zoo.TfmBertForSequenceClassification.from_pretrained(folder)
        model.save_pretrained(tmp_path / folder.name)
        (tmp_path / folder.name / "recorded.pt").write_bytes((folder / "recorded.pt").read_bytes())
        with safe_open(tmp_path / folder.name / "model.safetensors", "pt") as file:
            assert set(file.keys()) == model.state_dict().keys()
    arguments = {"sources": [str(tmp_path / folder.name) for folder in folders], "trust_remote_code": True}
    [results] = run_jobs([("replay_all", arguments)], plain_forks, tmp_path)
    for folder, result in zip(folders, results, strict=True):
        assert_replayed(result, folder)


@pytest.mark.parametrize("name", [name for name in NAMES if "-from-" in name])
def test_a_converted_one_goes_back(name, checkpoints):
    official = tfm_zoo.to_official(getattr(tfm_zoo, name.split("-")[0]).from_pretrained(checkpoints[name])).eval()
    assert_same_config(official.config, type(official.config).from_pretrained(checkpoints[name] / "official"))
    recorded = torch.load(checkpoints[name] / "recorded.pt")
    with torch.no_grad():
        logits = official(**recorded["inputs"], use_cache=False).logits
    torch.testing.assert_close(logits, recorded["official_logits"], rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_verify_says_at_most_that_the_version_is_another(checkpoints):
    verdict = verify(checkpoints["TfmGPTForCausalLM"])
    assert verdict.ok, verdict
    assert all(warning.startswith("its code is that of tfm_zoo 0.1.0; ") for warning in verdict.warnings)
