"""`python -m tests.benchmarks.corpus_runs [--rows 1000000]`: a corpus that is killed on its way, and its memory.

Short texts are generated and read through a tiny encoder by `recipes/predict.py`: a hundredth of them, a tenth and all
by one process, whose peak memory is printed; then all by two processes, which are killed (`kill -9`) twice and started
again. The parts of both have to be the same, byte for byte.
"""

import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from ..tiny_corpus import save_tiny_encoder

RECIPE = Path(__file__).parents[2] / "recipes"
ALONE = [sys.executable]
TWO = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(RECIPE / "accelerate/cpu.yaml")]
FILES = 8


def write_texts(folder: Path, rows: int) -> None:
    """Files of short texts, which do not depend on how many are asked for."""
    folder.mkdir()
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlucm", k=rng.randint(2, 6))) for _ in range(5000)]
    for file in range(FILES):
        texts = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(rows // FILES)]
        table = pa.table({"text": texts, "place": range(file * len(texts), (file + 1) * len(texts))})
        pq.write_table(table, folder / f"{file}.parquet", row_group_size=10_000)


def start(launcher: list[str], model: Path, texts: Path, out: Path) -> subprocess.Popen:
    arguments = [model, "--pooling", "mean", "--data_files", f"{texts}/*.parquet", "--keep_columns", "place"]
    command = [*launcher, RECIPE / "predict.py", *arguments, "--output_dir", out]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    log = out.with_suffix(".log").open("a")
    return subprocess.Popen([*map(str, command)], env=environment, stdout=log, stderr=log)


def finish(process: subprocess.Popen) -> int:
    """Waits for a run; returns its peak memory, in bytes."""
    peak, watched = 0, psutil.Process(process.pid)
    while process.poll() is None:
        try:
            peak = max(peak, watched.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.05)
    if process.wait():
        raise RuntimeError("the run failed: see its log")
    return peak


def kill_after(process: subprocess.Popen, out: Path, parts: int) -> int:
    """Kills a run and its launcher once so many parts are there; returns how many there are then."""
    while len(found := [*out.glob("part-*.parquet")]) < parts:
        if process.poll() is not None:
            raise RuntimeError("the run ended by itself: see its log")
        time.sleep(0.02)
    kill(process)
    return len(found)


def kill(process: subprocess.Popen) -> None:
    """Kills a launcher and its processes, which would go on without it (and would refuse another run)."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        member.kill()
    process.communicate()
    psutil.wait_procs(family)


def digests(out: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.glob("part-*.parquet"))}


def main(
    rows: Annotated[int, typer.Option(help="texts of the largest corpus")] = 1_000_000,
    folder: Annotated[Path | None, typer.Option(help="an empty folder for texts and results")] = None,
) -> None:
    """Reads a corpus of short texts, undisturbed and killed twice, and compares."""
    folder = folder or Path(tempfile.mkdtemp())
    save_tiny_encoder(folder / "model")
    for size in (rows // 100, rows // 10, rows):
        write_texts(folder / f"texts-{size}", size)
        begin = time.perf_counter()
        peak = finish(start(ALONE, folder / "model", folder / f"texts-{size}", folder / f"alone-{size}"))
        seconds = time.perf_counter() - begin
        print(f"{size:9,} rows: peak {peak / 2**20:,.0f} MiB, {seconds:.0f} s with the start", flush=True)
    texts, alone, killed = (folder / f"{name}-{rows}" for name in ("texts", "alone", "killed"))
    parts = len(digests(alone))
    for share in (0.3, 0.6):
        found = kill_after(start(TWO, folder / "model", texts, killed), killed, int(parts * share))
        print(f"killed with {found} of {parts} parts, and {len([*killed.glob('.part-*')])} unfinished", flush=True)
    finish(start(TWO, folder / "model", texts, killed))
    ids = pq.read_table(killed, columns=["id", "place"])
    print(f"{rows:,} rows in, {len(ids):,} out; ids in order: {ids['id'].to_pylist() == [*range(rows)]}")
    print(f"kept columns beside their rows: {ids['place'].to_pylist() == ids['id'].to_pylist()}")
    print(f"the same {parts} parts, byte for byte: {digests(killed) == digests(alone)}")


if __name__ == "__main__":
    typer.run(main)
