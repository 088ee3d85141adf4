"""`python -m tests.benchmarks.leaderboard FOLDER [--only TASK]`: times all contenders, task by task; then the report.

Each task is saved in the folder when it is done, and so are converted models, which a second run finds there. Peers are
an extra: `pip install openvino nncf llama-cpp-python gguf torchao` beside what `make test` installs. What is not
installed is left out, and the report says so.
"""

import json
import os
import statistics
import time
from pathlib import Path
from typing import Annotated

import typer

from .contenders import CONTENDERS
from .report import write
from .tasks import DECODE, TASKS, fidelity, units
from .worker import Worker, load, run

OFFICIAL = "official, float32"


def measure(task: str, workers: dict[str, Worker], folder: Path, rounds: int) -> dict:
    """Times the contenders in turn: by case and contender units a second, how many times as fast as the official class
    in float32 that is (the median over batches), and fidelity."""
    kind, failed, ready = TASKS[task].kind, {}, []
    for name, worker in workers.items():
        if kind not in CONTENDERS[name].kinds:
            continue
        start = time.perf_counter()
        try:
            worker(load, name, task, folder / "models" / task.replace(" ", "-"))
            for batches in TASKS[task].cases().values():
                worker(run, batches[0])
            ready.append(name)
        except Exception as error:  # of another engine: it is left out by name
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
        print(f"{task}: {name} {failed.get(name, 'ran')}, {time.perf_counter() - start:.0f} s", flush=True)
    cases = {}
    for case, batches in TASKS[task].cases().items():
        parts = {case: batches}
        if kind == DECODE:  # the prompt and its first token; and all tokens, of which those of the prompt are taken off
            parts = {f"{case}, prompt": [batch | {"steps": 1} for batch in batches], f"{case}, tokens": batches}
        found = {part: timed(ready, workers, each, rounds) for part, each in parts.items()}
        asked = [batch | {"steps": 0} for batch in batches] if kind == DECODE else batches
        outputs = {name: [workers[name](run, batch)[0] for batch in asked] for name in ready}
        for part, times in found.items():
            if part.endswith("tokens"):
                first = found[f"{case}, prompt"]
                times = {
                    name: [whole - one for whole, one in zip(times[name], first[name], strict=True)] for name in times
                }
            count = sum(len(b["input_ids"]) if part.endswith("prompt") else units(kind, b) for b in batches)
            cases[part] = {
                name: {
                    "rate": count / sum(seconds),
                    "ratio": statistics.median(a / b for a, b in zip(times[OFFICIAL], seconds, strict=True)),
                    **fidelity(kind, outputs[OFFICIAL], outputs[name]),
                }
                for name, seconds in times.items()
            }
            print(part, {name: round(row["ratio"], 2) for name, row in cases[part].items()}, flush=True)
    return {"kind": kind, "cases": cases, "failed": failed}


def timed(names: list[str], workers: dict[str, Worker], batches: list[dict], rounds: int) -> dict[str, list[float]]:
    """The seconds of each batch, medians over the rounds."""
    times = {name: [[] for _ in batches] for name in names}
    for turn in range(rounds):
        for place, batch in enumerate(batches):
            for name in names if turn % 2 else reversed(names):
                times[name][place].append(workers[name](run, batch)[1])
    return {name: [statistics.median(each) for each in found] for name, found in times.items()}


def main(
    folder: Annotated[Path, typer.Argument(help="holds results and converted models")],
    only: Annotated[str, typer.Option(help="Tasks whose name holds this.")] = "",
    beside: Annotated[str, typer.Option(help="Contenders whose name holds one of these, joined by commas.")] = "",
    rounds: Annotated[int, typer.Option(help="How often each batch is computed.")] = 3,
    threads: Annotated[int, typer.Option(help="Of each contender.")] = len(os.sched_getaffinity(0)),
    out: Annotated[Path | None, typer.Option(help="Where report and picture go; by default the folder.")] = None,
) -> None:
    """Times what is installed, and writes a report of all tasks in the folder."""
    os.environ |= {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    lacking = {name: reason for name, contender in CONTENDERS.items() if (reason := contender.lacks())}
    tasks = [name for name in TASKS if only.lower() in name.lower()]
    names = [name for name in CONTENDERS if name not in lacking]
    names = [name for name in names if name == OFFICIAL or any(each in name for each in beside.split(","))]
    workers = {name: Worker(name, threads) for name in names} if rounds else {}
    for task in tasks if rounds else ():
        found = measure(task, workers, folder, rounds)
        left_out = {name: lacking.get(name, "not asked for") for name in CONTENDERS if name not in workers}
        found["failed"] |= {name: why for name, why in left_out.items() if found["kind"] in CONTENDERS[name].kinds}
        path = folder / f"{list(TASKS).index(task)}.json"
        path.write_text(json.dumps({"task": task, "threads": threads} | found, indent=1))
    write([json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))], out or folder)


if __name__ == "__main__":
    typer.run(main)
