"""`python peer_comparison.py OFFICIAL.jsonl ZOO.jsonl`: which tests pass with official models alone.

The exit code is 1 if there is one that no line of `known.txt` names, or if no test passed.
"""

import json
import re
import sys
from pathlib import Path

#: how bad an outcome of one part of a test is: the worst is the test's
WORST = ("passed", "skipped", "failed")


def outcomes(record: Path) -> dict[str, tuple[int, str]]:
    """Test -> its outcome, as a place in `WORST`, and the line of its error."""
    found = {}
    for row in map(json.loads, record.read_text().splitlines()):
        outcome = WORST.index(row["outcome"]), row["error"]
        found[row["test"]] = max(found.get(row["test"], outcome), outcome)
    return found


def known_reasons() -> dict[re.Pattern, str]:
    """The lines of `known.txt`: a pattern of tests, and why these are not for the zoo."""
    lines = (Path(__file__).parent / "known.txt").read_text().splitlines()
    pairs = (line.split("  # ") for line in lines if line and not line.startswith("#"))
    return {re.compile(pattern): reason for pattern, reason in pairs}


def main(official: Path, zoo: Path) -> int:
    name = zoo.name
    official, zoo, known = outcomes(official), outcomes(zoo), known_reasons()
    passed = [test for test, (outcome, _) in official.items() if WORST[outcome] == "passed"]
    differ = [test for test in passed if WORST[zoo.get(test, (2, ""))[0]] != "passed"]
    print(f"  {len(passed)} tests pass with official models, {len(passed) - len(differ)} of them with the zoo's")
    known = {} if "speed_up" in name else known  # an official model is an official model
    new = []
    for test in differ:
        reason = next((reason for pattern, reason in known.items() if pattern.fullmatch(test)), None)
        new += [test] if reason is None else []
        error = zoo.get(test, (2, "did not run"))[1]
        print(f"  {'NEW' if reason is None else 'known'}: {test}\n      {reason or error}")
    return int(bool(new) or not passed)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
