"""`python -m benchmarks verifying [--layers 12]`: seconds and memory of `record` and `verify` beside loading,
for GPT-2's shape in float32 (498 MB), by transformers' class and by the zoo's.

Each is a process of its own, whose imports count: seconds by the clock, and of the processor in it and in the process
that it starts. The memory is the most that one of them ever had, mapped files included.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter
from typing import Annotated

import typer
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

from tfm_zoo import from_official

from .timing import table

#: runs a line of Python on a folder, and prints the most memory in KiB: its own, and of a process that it started. (The
#: operating system counts what started a process as the process's own, but for VmHWM.)
PROGRAM = """
import re, sys
from resource import RUSAGE_CHILDREN, getrusage
folder = sys.argv[1]
{}
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], getrusage(RUSAGE_CHILDREN).ru_maxrss)
"""
LOAD = "import {}; from transformers import AutoModelForCausalLM as auto; auto.from_pretrained(folder)"
STEPS = {
    "record": "import tfm_zoo; tfm_zoo.record(folder)",
    "verify": "from tfm_zoo.proof import verify; verdict = verify(folder); assert verdict.ok, verdict",
    "verify --code-only": "from tfm_zoo.proof import verify; assert verify(folder, code_only=True).ok",
}


def measured(step: str, folder: Path) -> list[str]:
    """The seconds of a process by the clock and of the processor, and the MB that it or its child had at most."""
    start, command = perf_counter(), [sys.executable, "-c", PROGRAM.format(step), str(folder)]
    before = getrusage(RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after, peak = getrusage(RUSAGE_CHILDREN), max(map(int, done.stdout.split()))
    computed = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [f"{perf_counter() - start:.1f} s", f"{computed:.1f} s", f"{peak * 1024 / 10**6:,.0f} MB"]


def rows(layers: int) -> Iterator[list[str]]:
    official = GPT2LMHeadModel(GPT2Config(n_layer=layers))
    for name, model in {"transformers": official, "tfm_zoo": from_official(official)}.items():
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            for step, line in ({"load": LOAD.format(name)} | STEPS).items():
                yield [name, step, *measured(line, Path(folder))]


def main(layers: Annotated[int, typer.Option(help="GPT-2 has 12.")] = 12) -> None:
    logging.disable_progress_bar()
    table(["class", "step", "seconds", "of the processor", "memory"], rows(layers))
