"""`python -m benchmarks figures --before CHECKOUT`: do recipes give the figures that an earlier checkout gives?

Each run of `recipe_runs.py` starts a recipe as a program, there and here, with the same options and seed, and with one
thread, so that sums have one order. The logs of the two trainings are compared, and the final results, a figure at a
time; clocks and memory are left out. A figure that one checkout alone has counts as an infinite difference.

With `--resume`, what the earlier checkout wrote is copied, and made to look as if that run had been killed after its
checkpoint. This checkout goes on with it: to the figures of the run that was not killed, or it refuses in a line.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import Annotated, Any

import typer

from .batches import SHARED
from .recipe_runs import KILLED, Run, make_runs
from .timing import table

ROOT = Path(__file__).parents[1]
WORK = ROOT / "runs/figures"
LIMIT = 1e-6  # the largest relative difference that passes
STATE, RESULTS, COMPARISON = "trainer_state.json", "all_results.json", "comparison.json"
CLOCKS = re.compile("runtime|per_second|memory")  # in the names of what differs between two equal runs
REFUSAL = re.compile(r"\w+\.py: error: .+")


@dataclass(frozen=True)
class Checkout:
    """A checkout of the repository, and the Python that runs its recipes."""

    folder: Path
    python: Path

    def start(self, command: list[str], log: Path) -> str | None:
        """Run a recipe; its output goes to a log. Returns the last line of it if the recipe fails."""
        with tempfile.TemporaryDirectory() as cache, open(log, "w", encoding="utf-8") as output:
            env = {"PYTHONPATH": str(self.folder), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
            env["HF_DATASETS_CACHE"] = cache  # what other code has tokenized must not be found
            streams = {"stdout": output, "stderr": subprocess.STDOUT}
            ended = subprocess.run([self.python, *command], cwd=self.folder, env=os.environ | env, **streams)
        return (log.read_text("utf-8").splitlines() or ["no output"])[-1] if ended.returncode else None

    def train(self, run: Run, folder: Path) -> str | None:
        """Do a run anew. Returns the last line of its log if it fails."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return self.start(run.command(folder), folder.with_suffix(".log"))

    def train_once(self, run: Run, folder: Path) -> str | None:
        """Do a run, unless the folder holds its results."""
        made_by, command = folder.with_suffix(".json"), [str(self.folder), *run.command(folder)]
        if made_by.is_file() and json.loads(made_by.read_text("utf-8")) == command:
            return None
        made_by.unlink(missing_ok=True)
        error = self.train(run, folder)
        if error is None:
            made_by.write_text(json.dumps(command, indent=1) + "\n", encoding="utf-8")
        return error

    def resume(self, run: Run, finished: Path, folder: Path) -> str | None:
        """Go on with a copy of a finished run, which looks as if the run had been killed."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(finished, folder)
        make_killed(run, folder)
        resumes = {} if run.variants else {"resume_from_checkpoint": "auto"}
        error = self.start(run.command(folder, **resumes), folder.with_suffix(".log"))
        states = [each / run.kept / STATE for each in (finished, folder)]  # each has seconds of its own
        began_again = error is None and states[0].read_bytes() != states[1].read_bytes()
        return "it began again" if began_again else error


def make_killed(run: Run, folder: Path) -> None:
    """Remove from a finished run what came after its checkpoint; of a comparison, its last variant and the report."""
    later = [folder / RESULTS]
    if run.variants:
        later = [folder / COMPARISON, folder / "variants" / run.variants[-1]]
    elif json.loads((folder / STATE).read_text("utf-8"))["best_step"] > KILLED:
        later = [path for path in folder.iterdir() if path.name != run.kept.name]
    for path in later:
        remove = shutil.rmtree if path.is_dir() else Path.unlink
        remove(path)


def log_of(folder: Path) -> dict[tuple[str, int, str], Any]:
    """What a run, or each variant of a comparison, has logged: by variant, step and name."""
    states = sorted(path for path in folder.rglob(STATE) if not path.parent.name.startswith("checkpoint-"))
    return {
        (state.parent.name if state.parent != folder else "", entry["step"], name): value
        for state in states
        for entry in json.loads(state.read_text("utf-8"))["log_history"]
        for name, value in entry.items()
        if not CLOCKS.search(name)
    }


def results_of(folder: Path) -> dict[tuple[str, str], float]:
    """The final figures of a run, or those of each variant of a comparison."""
    if not (folder / COMPARISON).exists():
        parts = {"": json.loads((folder / RESULTS).read_text("utf-8"))}
    else:
        comparison = json.loads((folder / COMPARISON).read_text("utf-8"))
        parts = {"": comparison["levels"]} | {variant["name"]: variant for variant in comparison["variants"]}
    return {
        (part, name): value
        for part, values in parts.items()
        for name, value in values.items()
        if isinstance(value, int | float) and not CLOCKS.search(name)
    }


def difference(before: Any, after: Any) -> float:
    """The relative difference of two numbers; of texts, 0 or infinity."""
    if before == after:
        return 0.0
    if not (isinstance(before, int | float) and isinstance(after, int | float)):
        return inf
    relative = abs(before - after) / max(abs(before), abs(after))
    return inf if isnan(relative) else relative


def largest(before: Mapping[tuple, Any], after: Mapping[tuple, Any]) -> tuple[float, str]:
    """The largest difference, and a text for it, which says where it is if it is too large."""
    differences = {name: difference(before.get(name), after.get(name)) for name in {**before, **after}}
    name, worst = max(differences.items(), key=lambda item: item[1], default=(("no figures",), inf))
    where = f" ({', '.join(map(str, filter(None, name)))})" if worst > LIMIT else ""
    return worst, f"{worst:.2g}{where}"


def compare(finished: Path, folder: Path) -> tuple[bool, list]:
    """Whether two folders of a run hold the same figures, and what the table says of them."""
    logs, results = ([read(each) for each in (finished, folder)] for read in (log_of, results_of))
    (logged, logged_text), (final, final_text) = largest(*logs), largest(*results)
    steps = max((step for _, step, _ in logs[1]), default=0)
    return max(logged, final) <= LIMIT, [steps, len(logs[1]), logged_text, final_text]


def main(
    before: Annotated[Path, typer.Option(help="The earlier checkout.")],
    before_python: Annotated[
        Path | None, typer.Option("--before_python", help="Its Python; default: .venv/bin/python there.")
    ] = None,
    only: Annotated[str, typer.Option(help="Runs whose name holds this.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with killed runs of the earlier checkout.")] = False,
    work: Annotated[Path, typer.Option(help="Folder of the runs; those of the earlier checkout are kept.")] = WORK,
    shared: Annotated[Path, typer.Option(help="Folder of data sets and checkpoints.")] = SHARED,
) -> None:
    """Prints a table of the largest relative differences; exit code 1 if one is above 1e-6."""
    work, before = work.resolve(), before.resolve()
    python = (before_python or before / ".venv/bin/python").absolute()  # a link, which leads out of its environment
    earlier, here = Checkout(before, python), Checkout(ROOT, Path(sys.executable))
    failed = []

    def row(name: str, run: Run) -> tuple[bool, list]:
        """Whether a run passes, and its cells."""
        finished, folder = work / "before" / name, work / ROOT.name / ("resumed" if resume else "whole") / name
        if run.missing:
            return True, ["", "", f"left out: there is no {run.missing[0]}", ""]
        if not (before / run.script).exists():
            return True, ["", "", f"left out: the earlier checkout has no {run.script}", ""]
        if error := earlier.train_once(run, finished):
            return False, ["", "", f"the earlier checkout failed: {error}", ""]
        if error := here.resume(run, finished, folder) if resume else here.train(run, folder):
            return resume and bool(REFUSAL.fullmatch(error)), ["", "", error, ""]
        return compare(finished, folder)

    def rows() -> Iterator[list]:
        for name, run in make_runs(shared.resolve()).items():
            if only in name:
                passes, cells = row(name, run)
                if not passes:
                    failed.append(name)
                yield [name, *cells]

    table(["run", "steps", "figures logged", "largest difference", "of the results"], rows())
    raise typer.Exit(bool(failed))
