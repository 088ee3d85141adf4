"""Plant small faults in the package, and see which of them the tests catch.

    python -m benchmarks mutations draw BEFORE AFTER FAULTS    # those that two checkouts have
    python -m benchmarks mutations run CHECKOUT FAULTS OUT     # plants each of them, and runs the tests of its room
    python -m benchmarks mutations compare OUT OUT             # caught by both, by one, by neither

A fault is one small change inside a function: a comparison, a sign, a number, a default, a dropped argument, a dropped
check. Two versions of the tests are judged by the faults whose lines stand once in each package.
"""

import ast
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Annotated

import typer

from tests.forks import TRANSFORMERS, Forks

from .timing import table

PACKAGE = "tfm_zoo"
#: an operator, and what stands in its place
SYMBOLS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}
SYMBOLS |= {ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is")}
SYMBOLS |= {ast.In: ("in", "not in"), ast.NotIn: ("not in", "in")}
SYMBOLS |= {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")}
#: what a process of tests finds imported; no fault is to stay behind as bytecode
IMPORTS = "import sys; sys.dont_write_bytecode = True; import datasets, pytest, torch._dynamo; " + TRANSFORMERS
#: seconds that the tests of one fault may take; a fault that stops them from ending is caught, too
LIMIT = 1200
#: room of the package -> the tests that guard it, the quickest first; of other rooms, all
TESTS = {
    **{room: ["tests/hub", "tests/conversion", "tests/training"] for room in ("", "commands", "utils")},
    "configurations": ["tests/bad_input", "tests/configurations"],
    "converters": ["tests/conversion", "tests/equivalence"],
    "corpus": ["tests/corpus"],
    **{room: ["tests/training", "tests/recipes"] for room in ("data", "metrics", "training")},
    "hub": ["tests/hub"],
    "families": ["tests/configurations", "tests/model_api", "tests/conversion"],
    "inference": ["tests/packing", "tests/speed_up", "tests/ecosystem"],
    "models": [f"tests/{each}" for each in ("bad_input", "block", "model_api", "generation", "padding", "equivalence")],
    **{room: ["tests/ecosystem"] for room in ("pipelines", "plugin")},
    "proof": ["tests/hub", "tests/proof"],
    "visualization": ["tests/visualization"],
}

app = typer.Typer(help=__doc__.splitlines()[0], no_args_is_help=True)


def room_of(file: str | Path) -> str:
    """That of a file of a checkout; nothing, if the file stands at the package's root."""
    parts = Path(file).parts
    return parts[1] if len(parts) > 2 else ""


@dataclass(frozen=True)
class Fault:
    """One change: characters `start` to `end` of `file` become `new`."""

    kind: str
    file: str
    start: int
    end: int
    old: str
    new: str
    line: str

    @property
    def name(self) -> str:
        """The same in another checkout, to which the line has moved."""
        return f"{self.kind}: {self.old!r} -> {self.new!r} in {self.line}"


def faults_in(path: Path, name: str) -> Iterator[Fault]:
    """Every fault that the functions of a file offer; that of a function within another comes once."""
    source = path.read_bytes()
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]

    def begin(node: ast.AST) -> int:
        return starts[node.lineno - 1] + node.col_offset

    def finish(node: ast.AST) -> int:
        return starts[node.end_lineno - 1] + node.end_col_offset

    def exchanged(kind: str, left: ast.AST, operator: ast.AST, right: ast.AST) -> Iterator[tuple[str, int, int, str]]:
        old, new = SYMBOLS[type(operator)]
        at = source.find(old.encode(), finish(left), begin(right))
        if at >= 0:
            yield kind, at, at + len(old), new

    def faults(node: ast.AST) -> Iterator[tuple[str, int, int, str]]:
        """The kind, the start, the end and the new text of each."""
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield from exchanged("comparison", left, operator, right)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in SYMBOLS:
                if not isinstance(left, ast.JoinedStr):
                    yield from exchanged("sign", left, operator, right)
            case ast.UnaryOp(op=ast.Not()):  # (its operand may stand in parentheses)
                yield "negation", begin(node), begin(node) + len("not"), ""
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                yield "number", begin(node), finish(node), repr(value + 1)
            case ast.Call(args=arguments, keywords=[*others, last]) if last.arg and (arguments or others):
                yield "argument", finish([*arguments, *others][-1]), finish(last), ""
            case ast.If(test=test, body=[ast.Raise()], orelse=[]):
                yield "check", begin(test), finish(test), "False"
            case ast.arguments(defaults=defaults, kw_defaults=more):
                for default in filter(None, (*defaults, *more)):
                    if isinstance(default, ast.Constant) and isinstance(value := default.value, bool | int | float):
                        new = not value if isinstance(value, bool) else value + 1
                        yield "default", begin(default), finish(default), repr(new)

    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    nodes = (node for each in functions for part in each.body for node in (each.args, *ast.walk(part)))
    found = dict.fromkeys(fault for node in nodes for fault in faults(node))
    for kind, start, end, new in found:
        line = source[source.rfind(b"\n", 0, start) + 1 : source.find(b"\n", start)].decode().strip()
        yield Fault(kind, name, start, end, source[start:end].decode(), new, line)


def offered(checkout: Path) -> dict[str, Fault]:
    """By name, the faults whose name no other has."""
    named: dict[str, list[Fault]] = {}
    for path in sorted((checkout / PACKAGE).rglob("*.py")):
        for each in faults_in(path, str(path.relative_to(checkout))):
            named.setdefault(each.name, []).append(each)
    return {name: places[0] for name, places in named.items() if len(places) == 1}


def caught_by(fault: Fault, tests: list[str], checkout: Path, forks: Forks) -> str:
    """The first of the quick tests that fails in this checkout; nothing, if all pass."""
    path = checkout / fault.file
    source = path.read_bytes()
    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=no", "-m", "not slow and not by_hand"]
    program = "import os, pytest, sys; os.chdir(sys.argv[1]); sys.exit(pytest.main(sys.argv[2:]))"
    command = [sys.executable, "-c", program, checkout, *options, *tests]
    try:
        path.write_bytes(source[: fault.start] + fault.new.encode() + source[fault.end :])
        done = forks.run(command, env={"PYTHONPATH": str(checkout)}, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return "it did not end"
    finally:
        path.write_bytes(source)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return "" if done.returncode in (0, 5) else (failed or ["no test began"])[0]


def read(out: Path) -> dict[str, dict[str, str]]:
    """By fault, its room and which test has caught it."""
    lines = map(json.loads, out.read_text().splitlines()) if out.exists() else ()
    return {line["name"]: line for line in lines}


@app.command()
def draw(
    before: Annotated[Path, typer.Argument(help="package and tests")],
    after: Annotated[Path, typer.Argument(help="the same, later")],
    out: Annotated[Path, typer.Argument(help="the names of the faults, in JSON")],
    count: Annotated[int, typer.Option(help="faults")] = 150,
    seed: Annotated[int, typer.Option(help="draws them")] = 0,
) -> None:
    """Draws from each room its share of the faults, at least three; each kind as often as others."""
    rng, drawn, earlier = random.Random(seed), [], offered(before)
    rooms: dict[str, dict[str, list[str]]] = {}
    for name, fault in ((name, fault) for name, fault in offered(after).items() if name in earlier):
        rooms.setdefault(room_of(fault.file), {}).setdefault(fault.kind, []).append(name)
    sizes = {room: sum(map(len, kinds.values())) for room, kinds in rooms.items()}
    for room, kinds in rooms.items():
        for _ in range(min(sizes[room], max(3, round(count * sizes[room] / sum(sizes.values()))))):
            found = kinds[rng.choice(sorted(kind for kind, found in kinds.items() if found))]
            drawn.append(found.pop(rng.randrange(len(found))))
    out.write_text(json.dumps(drawn, indent=1))


@app.command()
def run(
    checkout: Annotated[Path, typer.Argument(help="package and tests")],
    faults: Annotated[Path, typer.Argument(help="what `draw` wrote")],
    out: Annotated[Path, typer.Argument(help="a line of JSON for each fault; a second run goes on with it")],
) -> None:
    """Plants each fault in a copy of the checkout, and runs the tests of its room until one fails."""
    done, forks = read(out), Forks(imports=IMPORTS, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder:
        ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "runs", "site")
        copy = Path(shutil.copytree(checkout, Path(folder, "checkout"), ignore=ignored))
        places = offered(checkout)
        for fault in (places[name] for name in json.loads(faults.read_text()) if name not in done):
            tests = TESTS.get(room := room_of(fault.file), ["tests"])
            found = {"name": fault.name, "room": room, "caught by": caught_by(fault, tests, copy, forks)}
            with out.open("a") as file:
                print(json.dumps(found), file=file)
            print(*found.values(), sep="; ", flush=True)


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="what `run` wrote")],
    after: Annotated[Path, typer.Argument(help="what it wrote with other tests")],
) -> None:
    """Counts by room what both caught, one, or neither; and lists what one alone caught, or neither."""
    found, titles = (read(before), read(after)), ["neither", "after alone", "before alone", "both"]
    counts: Counter = Counter()
    for name in found[0].keys() & found[1].keys():
        title = titles[2 * bool(found[0][name]["caught by"]) + bool(found[1][name]["caught by"])]
        counts.update((room, title) for room in (found[1][name]["room"] or "the root", "all"))
        if title != "both":
            print(f"{title}: {name}")
    rooms = sorted({room for room, _ in counts}, key=lambda room: (room == "all", room))
    table(["room", *titles], ([room, *(counts[room, title] for title in titles)] for room in rooms))
