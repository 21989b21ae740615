"""Faults that make a job stand still: how soon the monitor says which rank it is."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests.faults.bench import Bench, Placed
from tests.faults.outcome import Outcome
from tests.faults.run import Site, folder, running
from tests.faults.training import Job
from windtunnel.base.errors import FileError
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.findings.liveness import HEARTBEAT, LEAST_STALL
from windtunnel.fleet.monitor import Alarm, Monitor
from windtunnel.fleet.recorded import Recorded, recorded_of_rings
from windtunnel.fleet.starting import threads_waited_for_core

SILENT_LIMIT = 2 * HEARTBEAT + 1.0
"""Seconds within which a silent rank has to be named."""
STALL_LIMIT = LEAST_STALL + 2 * HEARTBEAT
"""Seconds within which a rank has to be named whose process lives: it is asked for after `LEAST_STALL`, by looks that are a
heartbeat apart."""
_PATIENCE = 40.0
_ENDLESS = 1_000_000
_ROWS = 4096
"""Of each ring that a look reads: more than a hundred steps."""


def stopped(bench: Bench, seed: int, stages: int = 1, afar: bool = False) -> Outcome:
    """SIGSTOP for a random rank at a random moment. `afar`: who looks is on another machine and sees heartbeats only."""
    dice = random.Random(seed)
    rank, moment = dice.randrange(8), dice.random()
    site: Site = Placed(bench.zygote, [(0, 0.0)] * 2) if afar else bench.zygote
    with folder() as path, running(site, Job(path, steps=_ENDLESS, stages=stages, seed=seed)) as pids:
        watcher = _Watcher(Path(path, "job"), pids.values())
        watcher.until(lambda recorded: _steps(recorded) >= 3)
        time.sleep(moment * HEARTBEAT)
        os.kill(pids[rank], signal.SIGSTOP)
        try:
            return watcher.outcome(rank, time.time())
        finally:
            os.kill(pids[rank], signal.SIGCONT)


def stuck(how: str, bench: Bench, seed: int) -> Outcome:
    """A random rank computes for ever outside of all calls ("loop"), or holds the interpreter's lock for ever ("gil")."""
    dice = random.Random(seed)
    rank, step = dice.randrange(8), dice.randrange(4, 12)
    with folder() as path:
        job = Job(path, steps=_ENDLESS, seed=seed, stuck_rank=rank, stuck_step=step, stuck_how=how)
        with running(bench.zygote, job) as pids:
            watcher = _Watcher(Path(path, "job"), pids.values())
            watcher.until(lambda recorded: Path(path, "stuck").exists() and Path(path, "stuck").stat().st_size > 10)
            return watcher.outcome(rank, float(Path(path, "stuck").read_text(encoding="ascii")))


def _steps(recorded: Recorded) -> int:
    """Steps that all ranks have begun."""
    return min(beat.step for beat in recorded.beats.values()) if len(recorded.beats) == recorded.world else -1


class _Watcher:
    """A monitor that looks once a heartbeat, and sooner when it says so, from the start of the job on. `pids`: the job's ranks."""

    def __init__(self, run: Path, pids: Collection[int]) -> None:
        self._run, self._monitor, self._pids = run, Monitor(), (*pids, os.getpid())
        self._next = time.time()
        self._alarms: list[Alarm] = []

    def until(self, met: Callable[[Recorded], bool]) -> None:
        """Looks until a condition is met; RuntimeError after `_PATIENCE` seconds."""
        ends = time.time() + _PATIENCE
        while time.time() < ends:
            with suppress(FileError):
                recorded = recorded_of_rings(self._run, _ROWS)
                if time.time() >= self._next:
                    self._look(recorded)
                if met(recorded):
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the job in {self._run} does not get to where the fault begins")

    def outcome(self, rank: int, since: float) -> Outcome:
        """Looks until a hang is told. A chain of waiting, where there is one by then, has to end at the rank."""
        early = tuple(one.text for one in self._alarms)
        waited = {pid: threads_waited_for_core(pid) for pid in self._pids}
        while time.time() < since + _PATIENCE:
            time.sleep(max(self._next - time.time(), 0.0))
            for alarm in self._look(recorded_of_rings(self._run, _ROWS)):
                if alarm.verdict is Verdict.HANG and alarm.hang is not None:
                    seconds = time.time() - since
                    wrong = tuple(f"rank {one}: {why}" for one, why in alarm.hang.culprits.items() if one != rank)
                    chain = alarm.hang.chain
                    right = rank in alarm.hang.culprits and (not chain or chain[-1] == rank)
                    excused = max(threads_waited_for_core(pid) - before for pid, before in waited.items()) / 1e9
                    details = {"ranks in the chain of waiting": float(len(chain))}
                    return Outcome(right, early + wrong, alarm.text, seconds, details, excused)
                early += (alarm.text,)
        return Outcome(False, early, "nothing")

    def _look(self, recorded: Recorded) -> list[Alarm]:
        found = self._monitor.look(recorded)
        self._next = recorded.now + self._monitor.next_look(recorded)
        self._alarms += found
        return found


def within(outcome: Outcome, limit: float) -> Outcome:
    """The same, and not right where it came too late. Time in which a rank or who looks had no core is no part of it: on a loaded
    machine such a job does not stand still yet."""
    late = not outcome.seconds - outcome.excused <= limit
    return replace(
        outcome, right=bool(outcome.right) and not late, said=outcome.said + (f" ({outcome.seconds:.1f} s)" if late else "")
    )
