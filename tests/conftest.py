"""Settings for every test: no network, one thread a worker (pytest-xdist runs one worker a core); a Hub on loopback."""

import gc
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import torch
from huggingface_hub import HfApi, close_session, constants
from transformers.utils import hub

from .forks import with_transformers
from .hub.server import HubServer
from .precision import in_double

if SHIFT := int(os.environ.get("TFM_ZOO_SEED", 0)):  # who asks torch for the numbers of a seed gets those of another
    seed_all = torch.manual_seed
    torch.manual_seed = lambda seed: seed_all(seed + SHIFT)

    class ShiftedGenerator(torch.Generator):
        def manual_seed(self, seed: int) -> torch.Generator:
            return super().manual_seed(seed + SHIFT)

    torch.Generator = ShiftedGenerator

gc.disable()  # until all tests are collected: what their modules import stays

#: the packages that take longest: they go first, so that no worker is left with one of them at the end
LONGEST = ("tests/recipes/", "tests/hub/", "tests/documents/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_collection_finish() -> None:
    """What has been imported stays: the garbage collector, which Accelerate and compilers call often, skips it."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def seeded():
    """What a test draws does not depend on the tests before it. `TFM_ZOO_SEED=1` gives all of them other numbers."""
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def double():
    """The module's tests compute in double precision: `pytestmark = pytest.mark.usefixtures("double")`."""
    with in_double():
        yield


@pytest.fixture
def forked(monkeypatch):
    """`verify` loads a checkpoint in a fresh process that has imported transformers already."""
    monkeypatch.setattr("subprocess.run", with_transformers().run)


@pytest.fixture
def hub_server():
    """A Hub that serves, and holds nothing yet."""
    with HubServer() as server:
        yield server


@pytest.fixture
def online(hub_server, tmp_path, monkeypatch):
    """This process is at that Hub, as one of its users, with one empty cache; makes clients of it."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub_server.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", hub_server.url)
    monkeypatch.setattr(hub, "_hf_api", None, raising=False)  # transformers keeps the client that it made first
    monkeypatch.setenv("HF_TOKEN", "hf_user")
    close_session()
    yield lambda token="hf_user": HfApi(hub_server.url, token=token or False)
    close_session()
