"""One process, two that are killed, and Ray with a killed worker write the same files; none of them is half written."""

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ..recipes.conftest import run_python
from .conftest import contents

pytestmark = pytest.mark.slow
RECIPES = Path(__file__).parents[2] / "recipes"
PREDICT = RECIPES / "predict.py"
LAUNCH = ["-m", "accelerate.commands.launch", "--quiet", "--config_file", RECIPES / "accelerate" / "cpu.yaml", PREDICT]


@pytest.fixture(scope="module")
def command(encoder, texts, tmp_path_factory):
    """Makes the arguments of a run into a folder: 30 parts of texts of many lengths."""
    file = tmp_path_factory.mktemp("texts") / "texts.parquet"
    pq.write_table(pa.table({"text": texts * 30}), file, row_group_size=1333)
    options = [encoder, "--pooling", "mean", "--data_files", file, "--rows_per_part", 100, "--output_dir"]
    return lambda out: [*options, out]


def start(*arguments) -> subprocess.Popen:
    settings = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(RECIPES.parent)}
    options = {"cwd": RECIPES.parent, "start_new_session": True, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *map(str, arguments)], env=os.environ | settings, **options)


def wait_for_parts(process: subprocess.Popen, out: Path) -> list[psutil.Process]:
    """Returns the process with its children, once five parts of 30 are there."""
    while len([*out.glob("part-*")]) < 5:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    return [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("alone") / "out"
    assert "tokens/s" in run_python(PREDICT, *command(out)).stderr and len(contents(out)) == 32
    return contents(out)


def test_two_processes_that_are_killed(command, undisturbed, tmp_path):
    process = start(*LAUNCH, *command(out := tmp_path / "out"))
    family = wait_for_parts(process, out)
    for member in family:  # they would go on without their launcher, and refuse another run
        member.kill()
    process.communicate()
    psutil.wait_procs(family)
    assert 5 <= len([*out.glob("part-*")]) < 30
    run_python(*LAUNCH, *command(out))
    assert contents(out) == undisturbed


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install '.[ray]'")
def test_ray_whose_worker_is_killed(command, undisturbed, tmp_path):
    process = start(RECIPES / "ray_predict.py", *command(tmp_path / "out"))
    family = wait_for_parts(process, tmp_path / "out")
    next(member for member in family if "MapWorker" in " ".join(member.cmdline())).kill()
    assert process.communicate() and process.returncode == 0 and contents(tmp_path / "out") == undisturbed
