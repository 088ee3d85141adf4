"""The zoo beside what people take on a CPU instead: speed, and fidelity to the official class in float32.

`python -m benchmarks leaderboard FOLDER [--only TASK]` times all contenders, task by task, and writes the report. Each
contender is a process of its own, since two engines in one hold each other's threads up. They compute the same batches
in turn; the report gives medians.

The report is written anew after each case, and results and converted models are kept in the folder, where a second run
finds them: a run may be stopped at any time, and its report says so. `--beside` and `--batches` run a part: `--only
MiniLM --beside "zoo, int8; OpenVINO" --batches 2` takes some minutes. Peers are an extra: `pip install openvino nncf
llama-cpp-python gguf torchao` beside what `make test` installs. What is not installed, or fails, is left out, and the
report says why.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from ..timing import ratio
from .contenders import CONTENDERS
from .report import circumstances, write
from .tasks import DECODE, TASKS, fidelity
from .worker import Worker, load, run

OFFICIAL, ROUNDS = "official, float32", 3


def measure(
    task: str, workers: dict[str, Worker], folder: Path, failed: dict[str, str], most: int | None
) -> Iterator[dict[str, dict]]:
    """Times the contenders in turn, case by case: by case and contender units a second, how many times as fast as the
    official class in float32 that is (the median over batches), and fidelity. Adds to `failed` who fails, and why.
    Of each case, computes the first `most` batches."""
    kind = TASKS[task].kind
    ready = {name: worker for name, worker in workers.items() if kind in CONTENDERS[name].kinds}

    def of_each(function: Callable[[Worker], Any]) -> dict[str, Any]:
        """What the contenders give in turn. Who fails is left out from here on."""
        found = {}
        for name in [*ready]:
            try:
                found[name] = function(ready[name])
            except Exception as error:  # of another engine
                failed[name] = (f"{type(error).__name__}: {error}".splitlines() or [""])[0][:160]
                print(f"{task}: {name} is left out, {failed[name]}", flush=True)
                del ready[name]
        if OFFICIAL in failed:
            raise SystemExit(f"{task}: the class that all are compared with fails. {failed[OFFICIAL]}")
        return found

    def load_one(worker: Worker) -> None:
        start = time.perf_counter()
        worker(load, worker.name, task, folder / "models" / task.replace(" ", "-"))
        print(f"{task}: {worker.name} ran, {time.perf_counter() - start:.0f} s", flush=True)

    def timed(batches: list[dict]) -> dict[str, list[float]]:
        """The seconds of each batch, medians over the rounds. In its turn a contender computes all batches in a row, as
        a user would: a process that others have interrupted finds its caches cold."""
        turns = [of_each(lambda worker: [worker(run, batch)[1] for batch in batches]) for _ in range(ROUNDS)]
        return {name: [*map(median, zip(*(turn[name] for turn in turns), strict=True))] for name in ready}

    of_each(load_one)
    for case, found in TASKS[task].cases().items():
        batches = found[:most]
        of_each(lambda worker, first=batches[0]: worker(run, first))
        whole, rows = timed(batches), sum(len(batch["input_ids"]) for batch in batches)
        parts, asked = {case: (whole, rows)}, batches
        if kind == DECODE:  # the prompt and its first token; and the tokens behind that
            first, steps = timed([batch | {"steps": 1} for batch in batches]), batches[0]["steps"] - 1
            others = {name: [a - b for a, b in zip(whole[name], first[name], strict=True)] for name in first}
            parts = {f"{case}, prompt": (first, rows), f"{case}, tokens": (others, rows * steps)}
            asked = [batch | {"steps": 0} for batch in batches]  # which gives logits
        outputs = of_each(lambda worker, asked=asked: [worker(run, batch)[0] for batch in asked])
        yield {
            part: {
                name: {
                    "rate": count / sum(times[name]),
                    "ratio": ratio(times[OFFICIAL], times[name]),
                    **fidelity(kind, outputs[OFFICIAL], outputs[name]),
                }
                for name in outputs
            }
            for part, (times, count) in parts.items()
        }


def main(
    folder: Annotated[Path, typer.Argument(help="holds results and converted models")],
    only: Annotated[str, typer.Option(help="Tasks whose name holds this.")] = "",
    beside: Annotated[str, typer.Option(help="Contenders whose name holds one of these, joined by semicolons.")] = "",
    batches: Annotated[int | None, typer.Option(help="Of each case, the first ones; by default all.")] = None,
) -> None:
    """Times what is installed, and writes a report of all tasks in the folder."""
    threads = len(os.sched_getaffinity(0))
    os.environ |= {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    tasks = [name for name in TASKS if only.lower() in name.lower()]
    asked = [name for name in CONTENDERS if name == OFFICIAL or any(each.strip() in name for each in beside.split(";"))]
    if not tasks or asked == [OFFICIAL]:
        given, there = (beside, CONTENDERS) if tasks else (only, TASKS)
        raise typer.BadParameter(f"{given!r} is in no name of what runs here. All names: {'; '.join(there)}.")
    left_out = {name: CONTENDERS[name].lacks() if name in asked else "not asked for" for name in CONTENDERS}
    workers = {name: Worker(name, threads) for name, reason in left_out.items() if not reason}
    for task in tasks:
        kind = TASKS[task].kind
        failed = {name: reason for name, reason in left_out.items() if reason and kind in CONTENDERS[name].kinds}
        found = {"task": task, "kind": kind, **circumstances(threads), "finished": False, "cases": {}, "failed": failed}
        path = folder / f"{list(TASKS).index(task)}.json"
        for cases in measure(task, workers, folder, failed, batches):
            found["cases"] |= cases
            save(path, found)
        save(path, found | {"finished": True})


def save(path: Path, found: dict) -> None:
    """Writes a task's result, and anew the report of all results in its folder."""
    path.write_text(json.dumps(found, indent=1))
    write([json.loads(each.read_text()) for each in sorted(path.parent.glob("*.json"))], path.parent)
