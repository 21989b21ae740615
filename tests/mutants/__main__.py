"""A sample of mutants, run against the tests of their rooms; the table of docs/mutants.md.

    python -m tests.mutants [--count N] [--seed S] [--room ROOM]... [--jobs J] [--seconds T] [--write] [--again | --survivors]

`--count` mutants are drawn over the rooms by how many each has, the same for a seed and a state of the source. What is done is
kept in build/mutants/, so that an interrupted run goes on; `--again` begins anew, `--survivors` with what survived. `--write`
writes docs/mutants.md.

Why no library. mutmut 3 copies the package and puts the copy in front of sys.path; the finder of an editable scikit-build package
comes before sys.path, so its tests would run the unchanged files, and it mutates everything rather than a sample. cosmic-ray starts
a test command for each mutant: here 5 to 10 s to import and collect before the first test. In this tool a mutant is put into a fork
of a process that has collected already, and runs only the tests that call its function: most die within a second. What that cannot
see: commands that tests start as processes of their own, which run the unchanged package, and what was computed at import.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from .operators import Mutant, mutants_of
from .page import KILLED, Row, page, table
from .rooms import ROOMS, ROOT, SRC, files_of
from .running import MOST_SECONDS, WORK, Calls, Fate, Runner, calls_of, fates, started

PAGE = ROOT / "docs" / "mutants.md"


def main() -> int:
    """0 when the sample has run; survivors are no error."""
    arguments = _arguments()
    rooms = arguments.room or list(ROOMS)
    drawn, possible = sample(rooms, arguments.count, arguments.seed)
    done = WORK / f"fates-{state(['src'])}.jsonl"
    known = {} if arguments.again else _known(done)
    if arguments.survivors:
        known = {key: fate for key, fate in known.items() if fate.how in KILLED}
    left = [(room, mutant) for room, mutant in drawn if _key(mutant) not in known]
    print(f"{len(drawn)} mutants of {sum(possible.values())}, {len(drawn) - len(left)} done before", file=sys.stderr)

    def work(runner: Runner) -> None:
        calls = _calls(runner, arguments.jobs)
        counts: Counter[str] = Counter()
        for at, (room, mutant, fate) in enumerate(fates(runner, calls, left, arguments.jobs, arguments.seconds)):
            counts[fate.how] += 1
            known[_key(mutant)] = fate
            with done.open("a", encoding="utf-8") as file:
                file.write(json.dumps([_key(mutant), asdict(fate)]) + "\n")
            told = ", ".join(f"{how} {count}" for how, count in sorted(counts.items()))
            print(f"\r{at + 1} of {len(left)}: {told}; {room}{'':20}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)

    WORK.mkdir(parents=True, exist_ok=True)
    if left:
        started(sorted({room for room, _ in left}), work)
    rows = [Row(room, mutant, known[_key(mutant)]) for room, mutant in drawn if _key(mutant) in known]
    print(table(rows, possible))
    if arguments.write:
        PAGE.write_text(page(rows, possible, arguments.seed), encoding="utf-8")
    return 0 if len(rows) == len(drawn) else 1


def sample(rooms: list[str], count: int, seed: int) -> tuple[list[tuple[str, Mutant]], dict[str, int]]:
    """Mutants drawn from all of the rooms with equal chances, in a random order; how many each room has."""
    every = [
        (room, mutant)
        for room in rooms
        for path in files_of(room)
        for mutant in mutants_of(str(path.relative_to(SRC)), path.read_text(encoding="utf-8"))
    ]
    draws = random.Random(seed)
    return draws.sample(every, min(count, len(every))), dict(Counter(room for room, _ in every))


def state(folders: list[str]) -> str:
    """A name for the text of all Python files in folders of the project."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _calls(runner: Runner, jobs: int) -> Calls:
    """Which test calls what; files of tests that have not changed since an earlier run on the same source are not run again."""
    kept = WORK / f"calls-{state(['src'])}.json"
    known = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    files = sorted({name.split("::")[0] for name in runner.items})
    texts = {file: _text(ROOT / file) for file in files}
    stale = {file for file in files if known.get(file, {}).get("text") != texts[file]}
    for file, part in calls_of(runner, stale, jobs):
        known[file] = {"text": texts[file], **part}
        kept.write_text(json.dumps(known), encoding="utf-8")
    calls = Calls()
    for file in files:
        calls.seconds.update(known[file]["seconds"])
        calls.functions.update(known[file]["functions"])
        calls.failing.extend(known[file]["failing"])
    if calls.failing:
        print(f"{len(calls.failing)} tests fail without a mutant and are left out: {calls.failing[:5]}", file=sys.stderr)
    return calls


def _text(test: Path) -> str:
    """A name for the text of a file of tests and of those beside it that are none."""
    beside = sorted(path for path in test.parent.glob("*.py") if not path.name.startswith("test_"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in (test, *beside))).hexdigest()[:12]


def _key(mutant: Mutant) -> str:
    return f"{mutant.name} #{mutant.at}.{mutant.variant}"


def _known(done: Path) -> dict[str, Fate]:
    if not done.exists():
        return {}
    return {key: Fate(**fate) for key, fate in map(json.loads, done.read_text(encoding="utf-8").splitlines())}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A sample of mutants against the tests of their rooms.")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", action="append", choices=list(ROOMS), help="only this room; may be repeated")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help="CPU seconds of tests for one mutant")
    parser.add_argument("--again", action="store_true", help="forget mutants that ran before on the same source")
    parser.add_argument("--survivors", action="store_true", help="run those again that survived before: tests may have come")
    parser.add_argument("--write", action="store_true", help="write docs/mutants.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
