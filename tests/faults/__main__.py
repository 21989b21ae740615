"""Runs the matrix of faults: `python -m tests.faults [--only NAME …] [--count N | --cut] [--write]`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tests.faults.bench import Bench
from tests.faults.cases import CASES
from tests.faults.outcome import Case, Outcome, passed
from tests.faults.page import HEAD, row
from tests.faults.publish import publish
from tests.faults.standing import within
from tests.faults.tally import tally

ROOT = Path(__file__).parents[2]
LOG = ROOT / "out" / "faults.jsonl"
Load = tuple[float, float] | None
Results = list[tuple[Case, list[Outcome], str, Load]]


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where all that was asserted holds."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[case.name for case in CASES])
    parser.add_argument("--count", type=int, help="runs of each case, at most its own number")
    parser.add_argument("--cut", action="store_true", help="a few runs of each, and errors where a fact does not hold")
    parser.add_argument("--seed", type=int, default=0, help="of the first run of each case")
    parser.add_argument("--until", type=float, default=float("inf"), help="minutes after which no further run begins")
    parser.add_argument("--write", action="store_true", help="put the counts into docs/faults.json and docs/faults.md")
    parser.add_argument("--log", type=Path, default=LOG, help="the runs as lines of JSON; default: out/faults.jsonl")
    parser.add_argument("--logged", type=Path, nargs="+", help="runs nothing: takes the runs of these logs")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that blocks are left and end their faults
    print(HEAD, flush=True)
    results = _logged(options.logged) if options.logged else _runs(options)
    if options.write:
        publish({case.name: tally(outcomes, load) for case, outcomes, _, load in results if outcomes})
    broken = [text for case, outcomes, _, _ in results if options.cut and (text := passed(case, outcomes))]
    print("\n".join(broken), file=sys.stderr, end="\n" if broken else "")
    return int(bool(broken))


def _runs(options: argparse.Namespace) -> Results:
    ends = time.monotonic() + 60 * options.until
    options.log.parent.mkdir(exist_ok=True)
    results: Results = []
    with Bench() as bench, options.log.open("w", encoding="utf-8") as log:
        for case in [one for one in CASES if not options.only or one.name in options.only]:
            count = case.cut if options.cut else min(case.count, options.count or case.count)
            reason = case.missing() if count else "left out of the cut"
            outcomes: list[Outcome] = []
            load: Load = None
            for seed in range(options.seed, options.seed + (0 if reason else count)):
                if time.monotonic() > ends:
                    break
                outcomes.append(_run(case, bench, seed))
                log.write(json.dumps({"case": case.name, "seed": seed, **asdict(outcomes[-1])}) + "\n")
                log.flush()
                last = os.getloadavg()[0]
                load = (load[0] if load else last, last)
            results.append((case, outcomes, reason, load))
            print(row(case, tally(outcomes), reason), flush=True)
    return results


def _logged(logs: Sequence[Path]) -> Results:
    """The runs of logs, by case."""
    runs: dict[str, list[Outcome]] = {case.name: [] for case in CASES}
    for line in (line for log in logs for line in log.read_text(encoding="utf-8").splitlines()):
        read = json.loads(line)
        name, _ = read.pop("case"), read.pop("seed")
        runs[name].append(Outcome(**{**read, "wrong": tuple(read["wrong"])}))
    results: Results = [(case, runs[case.name], "", None) for case in CASES]
    for case, outcomes, reason, _ in results:
        print(row(case, tally(outcomes), reason))
    return results


def _run(case: Case, bench: Bench, seed: int) -> Outcome:
    """One run; one that fails by itself is no right one."""
    try:
        outcome = case.run(bench, seed)
    except RuntimeError as error:
        return Outcome(False, (), f"the run failed: {error}")
    if outcome.right is not None and case.limit < float("inf"):
        outcome = within(outcome, case.limit)
    return replace(outcome, details=dict(outcome.details))


if __name__ == "__main__":
    sys.exit(main())
