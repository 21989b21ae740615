"""Periodic check of a running job. Reports new problems: a hang within seconds, a slow rank within twenty steps."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import FileError
from windtunnel.fleet.disk import low_space
from windtunnel.fleet.findings.failures import end_rows
from windtunnel.fleet.findings.finding import Finding, Verdict
from windtunnel.fleet.findings.hang import HangReport, is_silent
from windtunnel.fleet.findings.history import StepHistory
from windtunnel.fleet.findings.judge import judge, rare_of
from windtunnel.fleet.findings.liveness import HEARTBEAT, HangWatch, diagnose_failure, diagnose_stall, stall_seconds
from windtunnel.fleet.recorded import Recorded
from windtunnel.fleet.starting import Work, threads_waited_for_core, work_of
from windtunnel.records.ends import EndKind

JUDGE_EVERY = 5
"""Steps between two evaluations of slow ranks and links, which cost more than a check of the heartbeats."""
MOST_THREADS = 64
"""Threads ended by exceptions that are told in a run."""
CONFIRMATIONS = 2
"""Consecutive evaluations that must agree before an alarm is raised."""
RARE_SHARE = 0.03
"""Share of the mean step that what happens in some steps only has to cost to raise an alarm."""
SAVE_SECONDS = 30.0
"""Between two writes of what is known of the run's steps."""
CONFIRM_SECONDS = 5.0
"""Longest wait for the second of them, whatever `Monitor.share` allows."""


@dataclass(frozen=True)
class Alarm:
    """A problem that is new, or that has disappeared, since the previous check."""

    seconds: float
    """Unix time of the check."""
    verdict: Verdict
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    text: str
    finding: Finding | None = None
    hang: HangReport | None = None
    cleared: bool = False
    """True: the problem was reported before and has disappeared."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "seconds": self.seconds, "verdict": str(self.verdict), "ranks": list(self.ranks), "hosts": list(self.hosts),
            "text": self.text, "cleared": self.cleared,
            "finding": None if self.finding is None else self.finding.as_dict(),
            "hang": None if self.hang is None else self.hang.as_dict(),
        }  # fmt: skip


_Key = tuple[Verdict, tuple[int, ...], tuple[str, ...], str]


@dataclass
class Monitor:
    """Checks a run repeatedly and returns new alarms. Not thread-safe."""

    heartbeat: float = HEARTBEAT
    """Seconds between heartbeats of a rank."""
    share: float = 1.0
    """Largest share of a core that is spent on evaluations."""
    align: Callable[[Recorded], Recorded] = lambda recorded: recorded
    """Puts the ranks on one clock before the evaluation."""
    against: Callable[[Recorded], Sequence[Finding]] = lambda recorded: ()
    """Returns further findings about a run whose ranks are on one clock, for example deviations from a prediction
    (`runs.fleet_watching.Expectation`).
    """
    kept: Path | None = None
    """File in which what is known of the run's steps is kept, for who judges the run after its rings have forgotten them."""
    _hangs: HangWatch = field(init=False)
    _history: StepHistory = field(default_factory=StepHistory)
    _rare: tuple[Finding, ...] = ()
    """What some steps lose time to, as two evaluations say."""
    _rare_before: frozenset[_Key] = frozenset()
    _next_rare: float = 0.0
    _next_save: float = 0.0
    _judged_at: int = -JUDGE_EVERY
    _has_judged: bool = False
    _next_judgement: float = 0.0
    """`time.monotonic()` before which there is no further evaluation."""
    _seen: dict[_Key, int] = field(default_factory=dict)
    _active: dict[_Key, Alarm] = field(default_factory=dict)
    _told_threads: set[tuple[int, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._hangs = HangWatch(self.heartbeat)

    def look(self, recorded: Recorded) -> list[Alarm]:
        """Checks the run and returns the alarms that are new since the last check."""
        alarms = []
        waits, work = partial(_waits_for_cores, recorded.pids), partial(_work_of, {**recorded.starting, **recorded.pids})
        hang = self._hangs.look(recorded.sections, recorded.beats, recorded.now, waits, recorded.starting, work)
        if hang is not None and not (hang.culprits or hang.waits or hang.stuck):
            self._hangs.reset()  # the job is starting: no rank has a record yet
        elif hang is not None:
            ranks = tuple(hang.culprits)
            hosts = tuple(sorted({recorded.beats[rank].host for rank in ranks if rank in recorded.beats}))
            alarms.append(Alarm(recorded.now, hang.verdict, ranks, hosts, hang.text, hang=hang))
        alarms += self._threads(recorded)
        if self.is_judgement_due(recorded):
            begin = time.process_time()
            alarms += self._judge(recorded)
            self._judged_at = _last_step(recorded)
            used = time.process_time() - begin if self._has_judged else 0.0  # the first imports what the others use
            self._has_judged = True
            rest = used * (1.0 / self.share - 1.0)
            if any(self._seen[key] < CONFIRMATIONS for key in self._seen):
                rest = min(rest, CONFIRM_SECONDS)
            self._next_judgement = time.monotonic() + rest
        return alarms

    def _threads(self, recorded: Recorded) -> list[Alarm]:
        """Threads that an exception has ended, while their ranks go on; each exception of a rank is told once."""
        alarms = []
        for rank, rows in end_rows(recorded.sections).items():
            for _, kind, text, _ in rows:
                cause = (rank, text.partition(" raised ")[2])
                if kind is EndKind.THREAD and cause not in self._told_threads and len(self._told_threads) < MOST_THREADS:
                    self._told_threads.add(cause)
                    hosts = (recorded.beats[rank].host,) if rank in recorded.beats else ()
                    alarms.append(Alarm(recorded.now, Verdict.THREAD, (rank,), hosts, f"rank {rank}: its {text}"))
        return alarms

    def next_look(self, recorded: Recorded) -> float:
        """Seconds from `recorded.now` until the next check is useful."""
        return self._hangs.next_look(recorded.beats)

    def is_judgement_due(self, recorded: Recorded) -> bool:
        """Whether the next `look` evaluates slow ranks. A check that does not needs only the last records of each rank."""
        last = _last_step(recorded)
        if last < self._judged_at:  # the job was started again
            self._judged_at = last - JUDGE_EVERY
        return last - self._judged_at >= JUDGE_EVERY and time.monotonic() >= self._next_judgement

    def _judge(self, recorded: Recorded) -> list[Alarm]:
        recorded = self.align(recorded)
        judged = judge(recorded.sections, recorded.meshes, at_times=self._rare)
        self._history.add(judged.table)
        self._look_for_rare(recorded)
        findings = (*judged.findings, *self.against(recorded))
        found = {_key_of(one): one for one in findings}
        self._seen = {key: self._seen.get(key, 0) + 1 for key in found}
        alarms = []
        for key, one in found.items():
            if self._seen[key] >= CONFIRMATIONS and key not in self._active:
                self._active[key] = Alarm(recorded.now, one.verdict, one.ranks, one.hosts, one.text, one)
                alarms.append(self._active[key])
        for key in [key for key in self._active if key not in found]:
            gone = self._active.pop(key)
            alarms.append(replace(gone, seconds=recorded.now, cleared=True))
        return alarms

    def steps_behind(self, recorded: Recorded) -> int:
        """Number of the run's last steps that no evaluation has seen."""
        return _last_step(recorded) - self._history.last

    def _look_for_rare(self, recorded: Recorded) -> None:
        """Examines all steps that are known, as often as half of `share` allows, and writes them down."""
        begin, now = time.process_time(), time.monotonic()
        if now >= self._next_rare:
            found = [one for one in rare_of(self._history, recorded.sections)[0] if one.size >= RARE_SHARE]
            self._rare = tuple(one for one in found if _key_of(one) in self._rare_before)
            self._rare_before = frozenset(_key_of(one) for one in found)
            self._next_rare = now + (time.process_time() - begin) * (2.0 / self.share - 1.0)
        if self.kept is not None and now >= self._next_save:
            self._next_save = now + SAVE_SECONDS
            with suppress(FileError):
                self._history.save(self.kept)


def _waits_for_cores(pids: Mapping[int, int]) -> dict[int, float]:
    """Seconds for which threads of each rank of this machine were ready to run and had no core."""
    return {rank: threads_waited_for_core(pid) * 1e-9 for rank, pid in pids.items()}


def _work_of(pids: Mapping[int, int], ranks: Collection[int]) -> dict[int, Work]:
    """What those ranks have done whose processes are on this machine."""
    return {rank: work_of(pids[rank]) for rank in ranks if pids.get(rank)}


def _key_of(finding: Finding) -> _Key:
    return finding.verdict, finding.ranks, finding.hosts, finding.part


@dataclass
class DiskWatch:
    """Tells once when the disk of a run's folder is nearly full, and when it is not any more."""

    folder: Path
    _low: Alarm | None = None

    def look(self, now: float) -> list[Alarm]:
        """The alarm that is new. `now`: unix seconds."""
        text = low_space(self.folder)
        if bool(text) == (self._low is not None):
            return []
        told = Alarm(now, Verdict.DISK, (), (socket.gethostname(),), text) if text else None
        told, self._low = told or (replace(self._low, seconds=now, cleared=True) if self._low else None), told
        return [told] if told else []


def _last_step(recorded: Recorded) -> int:
    return max((beat.step for beat in recorded.beats.values()), default=-1)


def stall_report(recorded: Recorded, heartbeat: float = HEARTBEAT) -> HangReport | None:
    """Diagnoses a job that makes no progress, or that a failure ended, from one snapshot. None if it makes progress or all ranks
    have ended well.

    A job counts as stalled if a rank that should be alive is silent, or if no rank has written a record for as long as `HangWatch`
    waits.
    """
    sections, living = recorded.sections, [beat for beat in recorded.beats.values() if beat.ended is None]
    failure = diagnose_failure(sections, recorded.beats, recorded.now, ended=has_ended(recorded))
    if failure is not None:
        return failure
    if not living or has_ended(recorded):
        return None
    silent = any(is_silent(beat.process, beat.silent, 2 * heartbeat) for beat in living)
    moments = sections.zero + sections.begin + np.nan_to_num(np.fmax(sections.seconds, sections.host_seconds))
    settled = bool(len(moments)) and recorded.now - float(moments.max()) > stall_seconds(sections)
    if not silent and not settled:
        return None
    return diagnose_stall(sections, recorded.beats, recorded.now, 2 * heartbeat, settled, recorded.starting)


def has_ended(recorded: Recorded) -> bool:
    """Whether every rank has exited or its process is gone."""
    beats = recorded.beats.values()
    return bool(beats) and all(beat.ended is not None or beat.process == "gone" for beat in beats)


def last_steps(recorded: Recorded, count: int) -> Recorded:
    """The run restricted to its last `count` steps."""
    steps = np.unique(recorded.sections.step)
    if len(steps) <= count:
        return recorded
    return replace(recorded, sections=recorded.sections.where(recorded.sections.step >= steps[-count]))
