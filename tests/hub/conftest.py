"""Checkpoints saved by every head, and an environment without `tfm_zoo`."""

import importlib.metadata
import json
import re
import subprocess
import venv
from pathlib import Path

import pytest
import torch

from tfm_zoo.proof import model_recording, verifying
from tfm_zoo.proof.check import check

from ..forks import Forks
from ..tiny import DECODERS, ENCODER_DECODERS, ENCODERS, HEADS, tiny_model
from . import plain

ROTARY = {"position_embedding_type": "rotary", "norm_type": "rmsnorm", "norm_position": "pre", "mlp_type": "gated"}
ROTARY |= {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0}}
ROTARY |= {"sliding_window": 3, "num_key_value_heads": 2}
COUNTED = {"position_ids_from_padding": True, "sinusoid_type": "tensor2tensor"}
#: models with tables that no checkpoint stores, and with what the defaults leave out
VARIANTS = {
    "rotary": (ENCODERS[0], ROTARY),
    "sinusoidal": (ENCODERS[0], {"position_embedding_type": "sinusoidal", "classifier_pooling": "mean"}),
    "decoder_rotary": (DECODERS[0], ROTARY | {"layer_types": ["full_attention", "sliding_attention"]}),
    "encoder_decoder_rotary": (ENCODER_DECODERS[0], ROTARY),
    "encoder_decoder_counted": (ENCODER_DECODERS[0], COUNTED),
}


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    """A folder saved by each head, and one for each variant."""
    models = {head.__name__: tiny_model(head) for head in HEADS}
    models |= {name: tiny_model(head, **fields) for name, (head, fields) in VARIANTS.items()}
    root = tmp_path_factory.mktemp("saved")
    for name, model in models.items():
        model.save_pretrained(root / name)
    return {name: root / name for name in models}


@pytest.fixture(scope="module")
def here():
    """`verify` and `record` load checkpoints in this process, which takes no seconds."""

    def load(*asked: object) -> tuple[dict, str | None]:
        loaded: dict = {}
        try:
            for part in check(*asked[:5]):  # without the interpreter
                loaded |= json.loads(json.dumps(part, default=str))
        except (Exception, SystemExit) as error:
            return loaded, repr(error)
        return loaded, None

    with pytest.MonkeyPatch.context() as patches:
        for module in (verifying, model_recording):
            patches.setattr(module, "load_in_fresh_process", load)
        yield


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
    """Of Hugging Face, where what is downloaded is kept."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def plain_python(tmp_path_factory) -> str:
    """The interpreter of an environment that holds torch, transformers and what those require, and nothing else."""
    return make_environment(tmp_path_factory.mktemp("plain"), "torch", "transformers")


@pytest.fixture(scope="session")
def plain_forks(plain_python, home):
    """What runs jobs in that environment, with no network."""
    with Forks(plain_python, HF_HOME=str(home)) as forks:
        yield forks


@pytest.fixture
def online_forks(plain_python, hub_server, tmp_path):
    """What runs jobs in that environment, with that Hub, as one of its users."""
    with Forks(plain_python, **hub_server.environment(tmp_path / "home")) as forks:
        yield forks


def make_environment(root: Path, *distributions: str) -> str:
    """Its packages are links to the ones that run this test, so that nothing is downloaded."""
    venv.create(root, symlinks=True)
    python = root / "bin" / "python"
    where = [python, "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.check_output(where, text=True).strip())
    for entry in required_by(*distributions):
        if not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    return str(python)


def required_by(*names: str) -> set[Path]:
    """What the named distributions, and those they require, have put into their site-packages."""
    known, entries = list(names), set()
    for name in known:  # which becomes longer meanwhile
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # required on another platform only
        tops = {file.parts[0] for file in distribution.files if not file.parts[0].startswith((".", "__pycache__"))}
        entries |= {Path(distribution.locate_file(top)) for top in tops}
        required = [re.match(r"[\w.-]+", line)[0] for line in distribution.requires or () if "extra" not in line]
        known += [name for name in required if name not in known]
    return entries


def run_jobs(jobs: list[tuple[str, dict]], forks: Forks, folder: Path, **environment: str) -> list:
    """Runs functions of `plain.py`, each in a fresh process; gives their results, in order."""
    results, environment = [], environment | {"HF_MODULES_CACHE": str(folder / "code")}
    for job in jobs:
        forks.run([forks, plain.__file__, folder / "result.pt"], env=environment, input=json.dumps(job), check=True)
        results.append(torch.load(folder / "result.pt"))
    return results
