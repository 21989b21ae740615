"""CPU seconds and memory of whole commands, with another commit and with this tree, in turn.

    python -m tests.against.speed [REV] [--rounds N] [--short]

REV is the last tag where none is named. The other side runs in an environment of its own (environment.py). Each command runs once
uncounted on both sides and then N times on each, one after the other, so that other work on the machine slows both alike. Printed
are medians of user and system seconds of the process and its children, and the largest memory. Nothing fails by a figure.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from .environment import commit_of, last_tag, python_of

_PACKET = "--flows permutation:seed=1,bytes=1MiB --network packet --quiet"
SHORT = (
    "--help",
    "predict megascale-175b-12288 --quiet",
    "collective --cluster h100-ib --gpus 64",
    f"flows --fabric fat_tree:k=8,link=400Gb/s {_PACKET}",
)
"""Commands of a second or so."""

LONG = (
    "predict megascale-175b-12288 --trace demo.pftrace --html demo.html",
    "search llama3-70b --on h100-ib --gpus 512",
    "search deepseek-v3-2048xh800",
    f"flows --fabric fat_tree:k=16,link=100Gb/s {_PACKET}",
    "validate --quiet",
)
"""Commands of seconds to minutes."""


@dataclass
class Side:
    """A side: the Python that has its windtunnel, and of one command the CPU seconds of each run and the largest memory in MB."""

    python: Path
    seconds: list[float] = field(default_factory=list)
    memory: float = 0.0
    failed: str = ""

    def run(self, words: Sequence[str], folder: Path, counted: bool = True) -> None:
        """One run, from a folder without a windtunnel."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                [str(self.python), "-m", "windtunnel", *words], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=said
            )
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            if process.returncode:
                self.failed = said.read().decode(errors="replace").strip().splitlines()[-1][:60]
        if counted:
            self.seconds.append(used.ru_utime + used.ru_stime)
            self.memory = max(self.memory, megabytes(used))


def megabytes(used: resource.struct_rusage) -> float:
    """The largest memory of a process: Linux states it in KiB, macOS in bytes."""
    return used.ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0) / 1e6


def line_of(command: str, before: Side, now: Side) -> str:
    """A row of the table; a command that one side does not know has no figures there."""
    cells = [f"{median(side.seconds):9.2f}" if not side.failed else f"{'fails':>9}" for side in (before, now)]
    both = not before.failed and not now.failed
    ratio = f"{median(before.seconds) / max(median(now.seconds), 1e-9):7.2f}" if both else f"{'':7}"
    memory = [f"{side.memory:7.0f}" if not side.failed else f"{'':7}" for side in (before, now)]
    return f"{command[:70]:70} {cells[0]} {cells[1]} {ratio} {memory[0]} {memory[1]}"


def head_of(revision: str) -> str:
    """The head of the table."""
    columns = f"{revision[:9]:>9} {'now':>9} {'times':>7} {'before':>7} {'now':>7}"
    return f"{'CPU seconds (medians), then the largest memory in MB':70} {columns}"


def compare(commands: Sequence[str], before: Path, now: Path, rounds: int) -> list[str]:
    """Rows of the table, printed as they come."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            sides, words = (Side(before), Side(now)), command.split()
            for side in sides:
                side.run(words, Path(folder), counted=False)
            for _ in range(rounds):
                for side in sides:
                    side.run(words, Path(folder))
            rows.append(line_of(command, *sides))
            print(rows[-1], flush=True)
    return rows


def main() -> int:
    """0, also where there is no tag to compare with."""
    parser = argparse.ArgumentParser(description="Speed of whole commands, before and now.")
    parser.add_argument("revision", metavar="REV", nargs="?", help="the commit to hold this tree against; default: the last tag")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="only commands of a second or so")
    asked = parser.parse_args()
    revision = asked.revision or last_tag()
    if revision is None:
        print("no tag to compare with; name a commit: make bench REV=HEAD~1")
        return 0
    commit = commit_of(revision)
    old = python_of(commit)
    print(head_of(revision if asked.revision is None else commit))
    compare(SHORT if asked.short else SHORT + LONG, old, Path(sys.executable), asked.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
