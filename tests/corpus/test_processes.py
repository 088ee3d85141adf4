"""One process, two of which one is killed, and Ray write the same files."""

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

from tfm_zoo.corpus.folder import LOCK

pytestmark = pytest.mark.slow
RECIPES = Path(__file__).parents[2] / "recipes"
LAUNCH = ["-m", "accelerate.commands.launch", "--quiet", "--config_file", RECIPES / "accelerate" / "cpu.yaml"]


@pytest.fixture(scope="module")
def command(encoder, texts, tmp_path_factory):
    """Makes the arguments of a run into a folder: 80 parts of texts of many lengths."""
    file = tmp_path_factory.mktemp("texts") / "texts.parquet"
    pq.write_table(pa.table({"text": texts * 160}), file, row_group_size=3333)
    return lambda out: [encoder, "--pooling", "mean", "--data_files", file, "--rows_per_part", 200, "--output_dir", out]


def kill(process: subprocess.Popen) -> None:
    """Kills a launcher and its processes, which would go on without it (and would refuse another run)."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        member.kill()
    process.communicate()
    psutil.wait_procs(family)


def start(*arguments) -> subprocess.Popen:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": str(RECIPES.parent),
    }
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, cwd=RECIPES.parent, start_new_session=True, stderr=subprocess.PIPE, text=True
    )


def contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name != LOCK}


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("alone") / "out"
    process = start(RECIPES / "predict.py", *command(out))
    assert "tokens/s" in process.communicate()[1] and process.returncode == 0
    assert len(contents(out)) == 81
    return contents(out)


def test_two_processes_that_are_killed(command, undisturbed, tmp_path):
    out = tmp_path / "out"
    process = start(*LAUNCH, RECIPES / "predict.py", *command(out))
    while len([*out.glob("part-*")]) < 5:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    kill(process)
    begun = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert 5 <= len(begun) < 80
    process = start(*LAUNCH, RECIPES / "predict.py", *command(out))
    assert process.communicate() and process.returncode == 0
    assert contents(out) == undisturbed
    assert {name: (out / name).stat().st_mtime_ns for name in begun} == begun


def test_a_row_that_is_no_text_ends_all_processes(command, texts, tmp_path):
    pq.write_table(pa.table({"text": [*texts, None]}), tmp_path / "bad.parquet")
    arguments = command(tmp_path / "out")
    arguments[arguments.index("--data_files") + 1] = tmp_path / "bad.parquet"
    process = start(*LAUNCH, RECIPES / "predict.py", *arguments)
    assert "row 100 (counted from 0) of column 'text' is no text: None" in process.communicate()[1]
    assert process.returncode and not (tmp_path / "out").exists()


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install '.[ray]'")
def test_ray(command, undisturbed, tmp_path):
    """A worker is killed in the middle."""
    import psutil

    out, is_killed = tmp_path / "out", False
    process = start(RECIPES / "ray_predict.py", *command(out))
    while process.poll() is None and not is_killed:
        time.sleep(0.02)
        if len([*out.glob("part-*")]) >= 5:
            workers = psutil.Process(process.pid).children(recursive=True)
            victim = next(worker for worker in workers if "MapWorker" in " ".join(worker.cmdline()))
            victim.kill()
            is_killed = True
    error = process.communicate()[1]
    assert is_killed and process.returncode == 0, error
    assert contents(out) == undisturbed
