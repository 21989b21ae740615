"""Stacks and flight recorder dumps that an alarm takes from ranks of this machine: the files by which it asks, and what comes.

The monitor writes `dumps/rank5.ask` with the number of the episode into the run's folder. The thread of the rank's heartbeat sees
it and writes `1-rank5.stacks`, and `1-rank5.flight` where PyTorch has recorded calls. A process that is stopped, or holds Python's
lock, cannot answer; py-spy says where it is, if it is installed.

Python stacks of hanging processes, taken with py-spy where it is installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.text import clean, redact
from windtunnel.fleet.findings.hang import HangReport
from windtunnel.fleet.starting import DUMPS, ask_path

MOST_EPISODES = 16
"""Of a run: what is taken stays bounded."""
ANSWER_SECONDS = 2.0
"""How long an alarm waits for answers: a heartbeat looks once a second."""
_LOOK = 0.05
_FRAME = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python3[.\d]*/|^<")


@dataclass
class DumpTaker:
    """Takes dumps once for each hang that is told. `run`: the folder of the run on this machine."""

    run: Path
    episodes: int = 0

    def take(self, report: HangReport, pids: Mapping[int, int]) -> str:
        """Lines to add to the alarm: where the ranks to blame stand, and where their stacks are. Empty where none could be taken.

        `pids`: ranks of this machine. Asked are those to blame, and one that waits.
        """
        blamed = [rank for rank in report.culprits if rank in pids][:MOST]
        waiting = [rank for rank in report.waits if rank in pids and rank not in blamed]
        ranks = [*blamed, *waiting[: max(1, MOST - len(blamed)) if not blamed else 1]] or sorted(pids)[:1]
        if report.crash or self.episodes >= MOST_EPISODES or not ranks:
            return ""
        self.episodes += 1
        try:
            self._ask(ranks)
            answered = self._await(ranks)
            missing = [rank for rank in ranks if rank not in answered]
            for rank, stack in stacks_of(missing, pids).items():
                self._path(int(rank), "stacks").write_text(redact(stack), encoding="utf-8")
                answered.append(int(rank))
        except OSError:  # a full disk: the alarm is told all the same
            return ""
        return self._lines(blamed, answered)

    def _ask(self, ranks: Sequence[int]) -> None:
        (self.run / DUMPS).mkdir(mode=0o700, exist_ok=True)
        for rank in ranks:
            new = ask_path(self.run, rank).with_suffix(".new")
            new.touch(0o600)
            new.write_text(str(self.episodes), encoding="ascii")
            new.replace(ask_path(self.run, rank))

    def _await(self, ranks: Sequence[int]) -> list[int]:
        until = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < until and any(ask_path(self.run, rank).exists() for rank in ranks):
            time.sleep(_LOOK)
        for rank in ranks:
            ask_path(self.run, rank).unlink(missing_ok=True)
        return [rank for rank in ranks if self._path(rank, "stacks").exists()]

    def _path(self, rank: int, kind: str) -> Path:
        return self.run / DUMPS / f"{self.episodes}-rank{rank}.{kind}"

    def _lines(self, blamed: Sequence[int], answered: Sequence[int]) -> str:
        lines = []
        for rank in blamed:
            with suppress(OSError):
                where = script_frame(self._path(rank, "stacks").read_text(encoding="utf-8", errors="replace"))
                lines += [f"rank {rank} stands at {where}"] if where else []
        if answered:
            kinds = "stacks and dumps of the flight recorder" if self._path(answered[0], "flight").exists() else "stacks"
            lines.append(f"{kinds}: {self.run / DUMPS}/{self.episodes}-rank*")
        return "\n".join(lines)


def script_frame(stacks: str) -> str:
    """The innermost frame of the script's own files in the first thread: "train.py:31 in load"; empty without one."""
    first = stacks.split("\n\n")[0]
    frames = [match for match in _FRAME.finditer(first) if not _INSTALLED.search(match["path"])]
    return clean(f"{Path(frames[-1]['path']).name}:{frames[-1]['line']} in {frames[-1]['name']}") if frames else ""


MOST = 4
"""Largest number of processes to inspect."""
PATIENCE = 20.0
"""Timeout of py-spy for one process, in seconds."""


def stacks_of(ranks: Sequence[int], pids: Mapping[int, int]) -> dict[str, str]:
    """Stacks, by rank, of those `ranks` whose processes are on this machine; empty without py-spy. Works on stopped processes
    too.
    """
    program = shutil.which("py-spy")
    stacks = {}
    for rank in ranks[:MOST]:
        if program is None or rank not in pids:
            continue
        try:
            dump = subprocess.run(
                [program, "dump", "--nonblocking", "--pid", str(pids[rank])],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if dump.returncode == 0:
            stacks[str(rank)] = dump.stdout
    return stacks
