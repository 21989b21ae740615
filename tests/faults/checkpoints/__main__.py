"""`python -m tests.faults.checkpoints [--case F2|F10|F11] [--count N] [--seed N] [--only NAME] [--short]`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.checkpoints import cases
from tests.faults.checkpoints.job import Fault, over, start
from tests.faults.publish import publish
from tests.faults.tally import Tally

SHORT = {"F2": 1, "F10": 8, "F11": 1}
WHOLE = {"F2": 50, "F10": 100, "F11": 30}


def main() -> int:
    """Prints a line a case; exits 1 where a run was not right."""
    options = argparse.ArgumentParser()
    options.add_argument("--case", action="append", choices=sorted(WHOLE))
    options.add_argument("--count", type=int)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default="", help="a point, a damage or a fault of the disk")
    options.add_argument("--short", action="store_true")
    options.add_argument("--write", action="store_true", help="put the counts into docs/faults.json and docs/faults.md")
    given = options.parse_args()
    wrong = 0
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory(prefix="wt-faults-") as place:
        for case in given.case or sorted(WHOLE):
            count = given.count or (SHORT if given.short else WHOLE)[case]
            runs, missed = 0, 0
            parts = runs_of(case, Path(place))
            shown = list(parts)[:: 3 if given.short and case == "F2" else 1]  # the windows of a save are many, each a job
            for name in shown:
                if given.only in ("", name):
                    missed += _counted(f"{case} {name}", parts[name], range(given.seed, given.seed + count))
                    runs += count
            tallies[case] = Tally(runs, runs, runs - missed, missed)
            wrong += missed
    if given.write:
        publish(tallies)
    return 1 if wrong else 0


def runs_of(case: str, place: Path) -> dict[str, Callable[[int], str]]:
    """The parts of a case by name."""
    if case == "F2":
        points: dict[str, Callable[[int], str]] = {one: (lambda seed, one=one: cases.killed_at(one, seed)) for one in cases.POINTS}  # type: ignore[misc]
        return {**points, "any time": cases.killed_any_time}
    if case == "F10":
        if not (place / "checkpoints").exists() and any(over(start(place, cases.WORLD, Fault()))):
            raise SystemExit("the job without a fault failed")
        return {one: (lambda seed, one=one: cases.damaged(one, seed, place / "checkpoints")) for one in cases.DAMAGES}  # type: ignore[misc]
    disks = ["eio", "slow", *(["full"] if os.geteuid() == 0 else [])]
    return {one: (lambda seed, one=one: cases.bad_disk(one, seed)) for one in disks}  # type: ignore[misc]


def _counted(name: str, run: Callable[[int], str], seeds: range) -> int:
    began, wrong = time.monotonic(), []
    for seed in seeds:
        problem = run(seed)
        if problem:
            wrong.append((seed, problem))
    count = len(seeds)
    bound = f"at 95 % at most {100 * (1 - 0.05 ** (1 / count)):.1f} % wrong" if not wrong else ""
    print(f"{name:24s} {count - len(wrong):4d} of {count:4d} right  {time.monotonic() - began:6.1f} s  {bound}", flush=True)
    for seed, problem in wrong[:3]:
        print(f"    seed {seed}: {problem}", flush=True)
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
