"""`python -m tests.faults.recovery --case F1 --count N --seed S`: runs jobs until N faults have happened, and prints the counts."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.publish import publish
from tests.faults.recovery.cases import CASES, STEPS, WANTED, reference
from tests.faults.recovery.listed import tally_of_counts


def main() -> int:
    """0 where every job ended with the weights of a run without faults."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.recovery", description=__doc__)
    parser.add_argument("--case", choices=[*CASES], required=True)
    parser.add_argument("--count", type=int, default=4, help="faults, all in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--until", type=float, default=float("inf"), help="minutes after which no further job begins")
    parser.add_argument("--out", type=Path, help="append the counts as a line of JSON")
    parser.add_argument("--write", action="store_true", help="put the counts into docs/faults.json and docs/faults.md")
    parser.add_argument("--keep", action="store_true", help="leave the jobs' folders")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    run, most = CASES[given.case]
    counts: Counter[str] = Counter()
    chance, began, done, job = random.Random(f"{given.case}-{given.seed}"), time.monotonic(), 0, 0
    home = Path(tempfile.mkdtemp(prefix="recovery-"))
    try:
        WANTED[STEPS] = reference(home / "reference")
        while done < given.count and time.monotonic() - began < 60 * given.until:
            now = min(most, given.count - done)
            try:
                run(home / f"job-{job}", now, chance, counts)
            except RuntimeError as error:
                counts["jobs that hung"] += 1
                print(f"job {job}: {error}", file=sys.stderr, flush=True)
            done, job = done + now, job + 1
            print(f"{time.monotonic() - began:.0f} s: {dict(counts)}", flush=True)
    finally:
        if not given.keep:
            shutil.rmtree(home, ignore_errors=True)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        with given.out.open("a", encoding="utf-8") as file:
            seconds = round(time.monotonic() - began, 1)
            file.write(json.dumps({"case": given.case, "seed": given.seed, "seconds": seconds, "counts": dict(counts)}) + "\n")
    if given.write:
        publish({given.case: tally_of_counts(given.case, counts)})
    return int(counts["weights bit-equal"] != counts["jobs ended with 0"] or counts["jobs that hung"] > 0)


if __name__ == "__main__":
    sys.exit(main())
