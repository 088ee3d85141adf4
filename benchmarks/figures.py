"""`python -m benchmarks figures --before CHECKOUT`: do recipes give the figures that an earlier checkout gives?

Each run of `recipe_runs.py` starts a recipe as a program, there and here, with the same options and seed, and with one
thread, so that sums have one order. What the two trainings have logged and found is compared, a figure at a time;
clocks and memory are left out. A figure that one checkout alone has counts as an infinite difference.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from math import inf, isnan
from pathlib import Path
from typing import Annotated, Any

import typer

from .batches import SHARED
from .recipe_runs import Run, make_runs
from .timing import table

ROOT = Path(__file__).parents[1]
LIMIT = 1e-6  # the largest relative difference that passes
RESULTS = ("trainer_state.json", "all_results.json", "comparison.json")
CLOCKS = re.compile("runtime|per_second|memory")  # in the names of what differs between two equal runs


def train(checkout: Path, python: Path, run: Run, folder: Path) -> str:
    """Does a run anew; its output goes to a log. Returns the last line of it if the recipe fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder.with_suffix(".log")
    with tempfile.TemporaryDirectory() as cache, log.open("w", encoding="utf-8") as output:
        env = {"PYTHONPATH": str(checkout), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        env["HF_DATASETS_CACHE"] = cache  # what other code has tokenized must not be found
        streams = {"stdout": output, "stderr": subprocess.STDOUT}
        ended = subprocess.run([python, *run.command(folder)], cwd=checkout, env=os.environ | env, **streams)
    return (log.read_text("utf-8").splitlines() or ["no output"])[-1] if ended.returncode else ""


def figures_of(folder: Path) -> dict[tuple, float]:
    """What a run, or each variant of a comparison, has logged and found, by where it stands."""
    files = [path for name in RESULTS for path in folder.rglob(name) if "checkpoint-" not in path.parent.name]
    found = {}
    for path in files:
        content = json.loads(path.read_text("utf-8"))
        found |= dict(numbers(content.get("log_history", content), (str(path.relative_to(folder)),)))
    return found


def numbers(value: Any, place: tuple) -> Iterator[tuple[tuple, float]]:
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(part, (*place, key))
    elif isinstance(value, int | float) and not CLOCKS.search(str(place[-1])):
        yield place, value


def difference(before: float | None, after: float | None) -> float:
    """The relative one."""
    if before == after:
        return 0.0
    relative = inf if None in (before, after) else abs(before - after) / max(abs(before), abs(after))
    return inf if isnan(relative) else relative


def main(
    before: Annotated[Path, typer.Option(help="The earlier checkout.")],
    before_python: Annotated[
        Path | None, typer.Option("--before_python", help="Its Python; default: .venv/bin/python there.")
    ] = None,
    only: Annotated[str, typer.Option(help="Runs whose name holds this.")] = "",
    work: Annotated[Path, typer.Option(help="Folder of the runs.")] = ROOT / "runs/figures",
    shared: Annotated[Path, typer.Option(help="Folder of data sets and checkpoints.")] = SHARED,
) -> None:
    """Prints a table of the largest relative differences; exit code 1 if one is above 1e-6."""
    before, work, failed = before.resolve(), work.resolve(), []
    python = (before_python or before / ".venv/bin/python").absolute()  # a link, which leads out of its environment
    sides = {"before": (before, python), "here": (ROOT, Path(sys.executable))}

    def cells(name: str, run: Run) -> list:
        if run.missing:
            return ["", f"left out: there is no {run.missing[0]}"]
        for side, how in sides.items():
            if error := train(*how, run, work / side / name):
                failed.append(name)
                return ["", f"{side}: {error}"]
        found = [figures_of(work / side / name) for side in sides]
        differences = {place: difference(*(each.get(place) for each in found)) for place in {**found[0], **found[1]}}
        place, worst = max(differences.items(), key=lambda each: each[1], default=(("no figures",), inf))
        if worst > LIMIT:
            failed.append(name)
        return [len(differences), f"{worst:.2g}" + f" ({', '.join(map(str, place))})" * (worst > LIMIT)]

    runs = {name: run for name, run in make_runs(shared.resolve()).items() if only in name}
    table(["run", "figures", "largest difference"], ([name, *cells(name, run)] for name, run in runs.items()))
    raise typer.Exit(bool(failed))
