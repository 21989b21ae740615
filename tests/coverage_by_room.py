"""Lines and branches of the Python package that the tests run, by room.

    python -m tests.coverage_by_room [what pytest shall run]

Without arguments all tests but those marked `browser` run, on all cores. A figure, not a gate: a line that runs may still be wrong
without a test that notices (tests/mutants). Code that only runs beside PyTorch or Slurm counts as not run where these are missing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "coverage"


def main(arguments: list[str]) -> int:
    """The exit code of pytest."""
    WORK.mkdir(parents=True, exist_ok=True)
    told = WORK / "coverage.json"
    chosen = arguments or ["-n", "auto", "--dist", "worksteal", "-m", "not browser"]
    command = [sys.executable, "-m", "pytest", "-q", "--cov", "--cov-report", f"json:{told}", *chosen]
    code = subprocess.run(command, cwd=ROOT).returncode
    print(table(json.loads(told.read_text(encoding="utf-8"))["files"]))
    return code


def table(files: Mapping[str, Any]) -> str:
    """A line a room, from `files` of coverage's JSON report: file → its `summary`."""
    lines = [f"{'room':12} {'lines':>7} {'run':>7} {'branches':>9} {'run':>7}"]
    rooms: dict[str, Counter[str]] = {}
    for path, found in files.items():
        room = "oracles" if path.startswith("oracles/") else path.partition("windtunnel/")[2].partition("/")[0]
        for name in (room, "all"):
            rooms.setdefault(name, Counter()).update(found["summary"])
    for room, count in sorted(rooms.items(), key=lambda one: (one[0] == "all", one[0])):
        lines_run = _share(count["covered_lines"], count["num_statements"])
        branches_run = _share(count["covered_branches"], count["num_branches"])
        lines.append(f"{room:12} {count['num_statements']:>7} {lines_run:>7} {count['num_branches']:>9} {branches_run:>7}")
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
