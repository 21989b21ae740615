"""Predicts random jobs and those of the catalogue with another commit and with this tree, and says what moved.

    python -m tests.against [REV] [--count N] [--seed S] [--jobs J]

The random jobs are drawn once, by the generator of this tree (tests/random_jobs.py): half of them pass its checks, half are as
typed, so that a job that only this tree refuses is met too. They travel to both sides as files. The other side runs in an
environment of its own, built once a commit under build/against/. Exit code 1 where a job was predicted before and is not any more;
a moved figure is no error: it is shown, to be judged. Figures are compared for equality, without a tolerance. REV is the last tag
where none is named.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from .drift import Line, drift_of, report
from .environment import ROOT, WORK, commit_of, last_tag, python_of

sys.path.insert(0, str(ROOT / "tests"))


def main() -> int:
    """0 unless a job was lost; 0 too where there is no tag to hold this tree against."""
    arguments = _arguments()
    revision = arguments.revision or last_tag()
    if revision is None:
        print("no tag to compare with; name a commit: make against REV=HEAD~1")
        return 0
    commit = commit_of(revision)
    folder = WORK / f"jobs-{arguments.seed}-{arguments.count}"
    _write_jobs(folder, arguments.count, arguments.seed)
    old = _lines(python_of(commit), folder, WORK / f"{commit[:12]}.jsonl", arguments.jobs)
    new = _lines(Path(sys.executable), folder, WORK / "new.jsonl", arguments.jobs)
    drift = drift_of(old, new)
    print(
        f"{commit[:12]} against this tree, {arguments.count} random jobs of seed {arguments.seed} (in {folder.relative_to(ROOT)})"
    )
    print(report(drift))
    return 1 if drift.lost else 0


def _write_jobs(folder: Path, count: int, number: int) -> None:
    """Tables of random jobs as files, named by their number."""
    from random_jobs import checked_tables, tables

    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.json"):
        stale.unlink()
    drawn = _drawn(checked_tables(), count - count // 2, number) + _drawn(tables(), count // 2, number)
    for at, table in enumerate(drawn):
        (folder / f"random-{at:05}.json").write_text(json.dumps(table, indent=1), encoding="utf-8")


def _drawn(strategy: SearchStrategy[Any], count: int, number: int) -> list[Any]:
    """`count` values of a strategy, the same for a seed."""
    found: list[Any] = []

    @seed(number)
    @settings(
        max_examples=count, database=None, deadline=None, derandomize=False, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def keep(value: Any) -> None:
        found.append(value)

    keep()
    return found[:count]


def _lines(python: Path, folder: Path, out: Path, jobs: int) -> dict[str, Line]:
    script = Path(__file__).with_name("predicting.py")
    # From a folder without a windtunnel, so that each side finds the one that is installed in its environment.
    subprocess.run([str(python), str(script), str(folder), str(out), "--jobs", str(jobs)], cwd=folder, check=True)
    return {line["job"]: line for line in map(json.loads, out.read_text(encoding="utf-8").splitlines())}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Old against new.")
    parser.add_argument("revision", metavar="REV", nargs="?", help="the commit to hold this tree against; default: the last tag")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
