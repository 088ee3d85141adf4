"""The zoo beside what people take on a CPU instead: speed, and fidelity to the official class in float32.

`python -m benchmarks leaderboard FOLDER [--only TASK]` times all contenders, task by task, and writes the report. Each
contender is a process of its own, since two engines in one hold each other's threads up. They compute the same batches
in turn; the report gives medians.

The report is written anew after each case, and results and converted models are kept in the folder, where a second run
finds them: a run may be stopped at any time, and its report says so. `--case`, `--beside` and `--batches` run a part:
`--only MiniLM --case "tomatoes, sorted" --beside "zoo, int8; OpenVINO" --batches 2` takes some minutes. Cases of a task
that were measured before stay in its report. `--rounds 0` writes the report of what is saved. Peers are an extra:
`pip install openvino nncf llama-cpp-python gguf torchao` beside what `make test` installs. What is not installed, or
fails, is left out, and the report says why.
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .contenders import CONTENDERS
from .report import circumstances, write
from .tasks import DECODE, TASKS, fidelity, units
from .worker import Worker, load, run

OFFICIAL = "official, float32"


def measure(
    task: str,
    workers: dict[str, Worker],
    folder: Path,
    rounds: int,
    failed: dict[str, str],
    case: str = "",
    most: int | None = None,
) -> Iterator[dict[str, dict]]:
    """Times the contenders in turn, case by case: by case and contender units a second, how many times as fast as the
    official class in float32 that is (the median over batches), and fidelity. Adds to `failed` who fails, and why.
    Of cases whose name holds `case`, and of their first batches, `most` of each.
    """
    kind, batches_by_case = TASKS[task].kind, TASKS[task].cases()
    batches_by_case = {name: found[:most] for name, found in batches_by_case.items() if case in name}
    ready = {name: worker for name, worker in workers.items() if kind in CONTENDERS[name].kinds}

    def of_each(function: Callable[[Worker], Any], reverse: bool = False) -> dict[str, Any]:
        """What the contenders give in turn. Who fails is left out from here on."""
        found = {}
        for name in [*reversed(ready)] if reverse else [*ready]:
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

        def in_a_row(worker: Worker) -> list[float]:
            return [answer(batch, worker)[1] for batch in batches]

        turns = [of_each(in_a_row, reverse=turn % 2 == 0) for turn in range(rounds)]
        return {name: [*map(statistics.median, zip(*(turn[name] for turn in turns), strict=True))] for name in ready}

    of_each(load_one)
    for case, batches in batches_by_case.items():
        of_each(lambda worker, first=batches[0]: worker(run, first))
        parts = {case: batches}
        if kind == DECODE:  # the prompt and its first token; and all tokens, of which those of the prompt are taken off
            parts = {f"{case}, prompt": [batch | {"steps": 1} for batch in batches], f"{case}, tokens": batches}
        found = {part: timed(each) for part, each in parts.items()}
        asked = [batch | {"steps": 0} for batch in batches] if kind == DECODE else batches
        outputs = of_each(lambda worker, asked=asked: [answer(batch, worker)[0] for batch in asked])
        cases = {}
        for part, times in found.items():
            if part.endswith("tokens"):
                first = found[f"{case}, prompt"]
                times = {name: [a - b for a, b in zip(times[name], first[name], strict=True)] for name in times}
            count = sum(len(b["input_ids"]) if part.endswith("prompt") else units(kind, b) for b in batches)
            cases[part] = {
                name: {
                    "rate": count / sum(times[name]),
                    "ratio": statistics.median(a / b for a, b in zip(times[OFFICIAL], times[name], strict=True)),
                    **fidelity(kind, outputs[OFFICIAL], outputs[name]),
                }
                for name in outputs
            }
            print(part, {name: round(row["ratio"], 2) for name, row in cases[part].items()}, flush=True)
        yield cases


def answer(batch: dict, worker: Worker) -> tuple[np.ndarray, float]:
    return worker(run, batch)


def main(
    folder: Annotated[Path, typer.Argument(help="holds results and converted models")],
    only: Annotated[str, typer.Option(help="Tasks whose name holds this.")] = "",
    beside: Annotated[
        str, typer.Option(help="Contenders of these names, or whose name holds one, joined by semicolons.")
    ] = "",
    case: Annotated[str, typer.Option(help="Cases whose name holds this.")] = "",
    batches: Annotated[int | None, typer.Option(help="Of each case, the first ones; by default all.")] = None,
    rounds: Annotated[int, typer.Option(help="How often each batch is computed. 0: only the report is written.")] = 3,
    threads: Annotated[int, typer.Option(help="Of each contender.")] = len(os.sched_getaffinity(0)),
    out: Annotated[Path | None, typer.Option(help="Where report and picture go; by default the folder.")] = None,
) -> None:
    """Times what is installed, and writes a report of all tasks in the folder."""
    os.environ |= {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    lacking = {name: reason for name, contender in CONTENDERS.items() if (reason := contender.lacks())}
    tasks = [name for name in TASKS if only.lower() in name.lower()]
    names = [name for name in CONTENDERS if name not in lacking]
    wanted = map(str.strip, beside.split(";"))
    asked = {each: [each] if each in names else [name for name in names if each in name] for each in wanted}
    if unknown := [each for each, found in asked.items() if not found]:
        raise typer.BadParameter(f"{unknown} are in no name of what runs here. All names: {'; '.join(CONTENDERS)}.")
    names = [name for name in names if name == OFFICIAL or any(name in found for found in asked.values())]
    if not tasks or names == [OFFICIAL]:
        given, there = (beside, CONTENDERS) if tasks else (only, TASKS)
        raise typer.BadParameter(f"{given!r} is in no name of what runs here. All names: {'; '.join(there)}.")
    workers = {name: Worker(name, threads) for name in names} if rounds else {}
    for task in tasks if rounds else ():
        kind = TASKS[task].kind
        left_out = {name: lacking.get(name, "not asked for") for name in CONTENDERS if name not in workers}
        failed = {name: reason for name, reason in left_out.items() if kind in CONTENDERS[name].kinds}
        found = {"task": task, "kind": kind, **circumstances(threads), "finished": False, "cases": {}, "failed": failed}
        path = folder / f"{list(TASKS).index(task)}.json"
        before = json.loads(path.read_text())["cases"] if path.exists() and (case or beside) else {}
        for cases in measure(task, workers, folder, rounds, failed, case, batches):
            found["cases"] |= cases
            save(path, found, before, out or folder)
        save(path, found | {"finished": True}, before, out or folder)
    if not [*folder.glob("*.json")]:
        raise typer.BadParameter(f"{folder} holds no results: they are made by a run without --rounds 0.")
    report(folder, out or folder)


def save(path: Path, found: dict, before: dict, out: Path) -> None:
    """Writes a task's result, with cases that were measured before, and the report anew."""
    path.write_text(json.dumps(found | {"cases": before | found["cases"]}, indent=1))
    report(path.parent, out)


def report(folder: Path, out: Path) -> None:
    """Writes the report of all results in a folder that have a case."""
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    write([result for result in results if result["cases"]], out)
