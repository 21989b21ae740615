"""Liveness of ranks: from records and heartbeats to the state of each rank, and when to run the hang analysis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.fleet.findings.failures import JobFailure, end_rows, failure_of, failure_text
from windtunnel.fleet.findings.hang import NO_LIFE, HangReport, PendingCall, RankState, find_mismatches, hang_report, is_silent
from windtunnel.fleet.starting import Work
from windtunnel.records.ends import EndKind
from windtunnel.records.sections import Section, Sections

HEARTBEAT = 1.0
"""Seconds between heartbeats; a process without one for twice as long is silent."""
LEAST_STALL = 10.0
"""Seconds without any progress, while all processes are alive, before the hang analysis runs."""
MOST_STARVED = 0.95
"""Largest share of a standstill that waits for a core can explain: a job on a machine of any load is told in the end."""
STALL_STEPS = 5.0
"""The same in typical steps: a job with long steps may write no record for a long time."""


START_SECONDS = 300.0
"""Longest time, before a step has ended, in which work of a rank that others wait for is no standstill: it imports, builds its
model, prepares data. Half of the time after which calls of PyTorch's NCCL groups give up."""
NOT_COME = 15.0
"""Seconds that take the place of `LEAST_STALL` for a rank without a call where it can't be seen whether it works: its process is on
another machine, or was never started."""


@dataclass(frozen=True)
class Beat:
    """The last heartbeat of a rank's process."""

    rank: int
    silent: float
    """Seconds since its last heartbeat."""
    progress: int
    """Records written so far."""
    step: int = -1
    process: str = ""
    ended: int | None = None
    """Exit code that it reported; None while it runs."""
    host: str = ""


def group_labels(sections: Sections) -> list[str]:
    """A label for each group: its name, made unique by its ranks."""
    labels = []
    for index, ranks in enumerate(sections.groups):
        name = sections.group_names[index] if index < len(sections.group_names) and sections.group_names[index] else "group"
        members = ",".join(str(rank) for rank in ranks[:4]) + (",…" if len(ranks) > 4 else "")
        labels.append(f"{name} [{members}]")
    return labels


def rank_states(
    sections: Sections, beats: Mapping[int, Beat], now: float
) -> tuple[dict[int, RankState], dict[str, tuple[int, ...]]]:
    """States of all ranks that have a heartbeat, and the groups by label. `now`: unix seconds on the clock of the sections.

    A rank whose process ended on its own waits for nobody.
    """
    labels = group_labels(sections)
    states = {}
    ends = end_rows(sections)
    order = np.lexsort((sections.begin, sections.rank))
    ranks, starts = np.unique(sections.rank[order], return_index=True)
    by_rank = dict(zip(ranks.tolist(), np.split(order, starts[1:]), strict=True)) if len(order) else {}
    for rank, beat in beats.items():
        if beat.ended is not None:
            how = next((text for _, kind, text, _ in ends.get(rank, []) if kind is EndKind.EXIT), f"exit status {beat.ended}")
            states[rank] = RankState(rank, process="ended", doing=f"ended with {how}", host=beat.host)
        else:
            state = _state(sections, by_rank.get(rank, np.zeros(0, np.int64)), labels, beat, now)
            told = [text for _, kind, text, _ in ends.get(rank, []) if kind is EndKind.THREAD]
            states[rank] = replace(state, threads="".join(f"; its {text}" for text in told))
    joining = {call.group for state in states.values() for call in state.pending if call.joins}
    groups = {
        label: ranks for label, ranks in zip(labels, sections.groups, strict=True)
        if label in joining or all(rank in beats for rank in ranks)
    }  # fmt: skip
    return states, groups


def _state(sections: Sections, rows: Int64s, labels: list[str], beat: Beat, now: float) -> RankState:
    is_open = ~np.isfinite(sections.seconds[rows])
    is_call = (sections.section[rows] == Section.CALL) | (sections.section[rows] == Section.JOIN)
    collective = is_call & (sections.peer[rows] < 0) & (sections.group[rows] >= 0)
    begun = _last_calls(sections, rows[collective], labels)
    finished = _last_calls(sections, rows[collective & ~is_open], labels)
    pending = []
    doing, since = "", float("nan")
    for row in rows[is_open]:
        kind = Section(int(sections.section[row]))
        name = sections.names[sections.name[row]] if 0 <= sections.name[row] < len(sections.names) else ""
        if kind in (Section.CALL, Section.JOIN):
            label = labels[sections.group[row]] if sections.group[row] >= 0 else ""
            comm, number, peer = Comm(int(sections.comm[row])), int(sections.call[row]), int(sections.peer[row])
            sends, began = bool(sections.sends[row]), float(sections.begin[row])
            pending.append(PendingCall(label, number, comm, name, peer, sends, began, kind is Section.JOIN))
        if kind is not Section.STEP:
            named = kind in (Section.CALL, Section.JOIN, Section.RANGE, Section.INFERENCE) and bool(name)
            inner = name if named else kind.name.lower().replace("_", " ")
            doing, since = f"{doing} > {inner}" if doing else inner, now - (sections.zero + float(sections.begin[row]))
    doing = doing or "Python between sections"
    return RankState(beat.rank, tuple(pending), begun, finished, beat.silent, beat.process, doing, since, beat.host)


def _last_calls(sections: Sections, rows: Int64s, labels: list[str]) -> dict[str, int]:
    """Group → the largest call number."""
    last = np.full(len(labels), -1, np.int64)
    np.maximum.at(last, sections.group[rows], sections.call[rows])
    return {label: int(number) for label, number in zip(labels, last, strict=True) if number >= 0}


def stall_seconds(sections: Sections, least: float = LEAST_STALL) -> float:
    """Seconds without a new record after which a job with such steps counts as stalled."""
    steps = sections.seconds[(sections.section == Section.STEP) & np.isfinite(sections.seconds)]
    return max(least, STALL_STEPS * float(np.median(steps))) if len(steps) else least


def diagnose_stall(
    sections: Sections, beats: Mapping[int, Beat], now: float, silence: float, settled: bool = True,
    starting: Mapping[int, int] = MappingProxyType({}),
) -> HangReport:  # fmt: skip
    """The hang analysis of records and heartbeats. `silence`, `settled` and `starting` as in `hang_report`."""
    states, groups = rank_states(sections, beats, now)
    mismatches = find_mismatches(sections, group_labels(sections)) if settled else ()
    return hang_report(states, groups, silence=silence, settled=settled, mismatches=mismatches, starting=starting)


def diagnose_failure(sections: Sections, beats: Mapping[int, Beat], now: float, *, ended: bool = False) -> HangReport | None:
    """Which rank ended first while the job ran, how, and the calls before it in which ranks did not agree. None without a failure,
    or as long as its cause may still become known; `ended`: the job has ended, so nothing will.
    """
    failure = failure_of(sections, beats, now)
    if failure is None or not (failure.sure or ended):
        return None
    if failure.asked and ended:
        return _standstill_before(failure, sections, beats) or HangReport({}, {}, (), (), (), failure_text(failure), crash=True)
    if failure.asked:
        return None
    culprits: dict[int, str] = {}
    for one in find_mismatches(sections, group_labels(sections)):
        culprits.update(one.reasons)
    lines = [f"rank {rank}: {why}" for rank, why in culprits.items()] + [failure_text(failure)]
    for end in failure.causes:
        culprits[end.rank] = f"{culprits[end.rank]}; it {end.why}" if end.rank in culprits else end.why
    return HangReport(culprits, {}, (), (), (), "\n".join(lines), crash=True)


def _standstill_before(failure: JobFailure, sections: Sections, beats: Mapping[int, Beat]) -> HangReport | None:
    """Who blocked a job that did not move when somebody ended it. None if it moved."""
    ended = min((end.seconds for end in failure.causes if np.isfinite(end.seconds)), default=float("nan"))
    before = sections.where(sections.section != Section.END)
    if not len(before) or not ended - _latest_moment(before) > stall_seconds(sections):
        return None
    alive = {rank: replace(beat, silent=0.0, process="", ended=None) for rank, beat in beats.items()}
    report = diagnose_stall(sections, alive, ended, float("inf"))
    return replace(report, text=f"{report.text}\n{failure_text(failure)}") if report.culprits or report.waits else None


def _latest_moment(sections: Sections) -> float:
    """Unix seconds of the last begin or end of a section; -inf without one."""
    ends = sections.begin + np.nan_to_num(np.fmax(sections.seconds, sections.host_seconds))
    return sections.zero + float(ends.max()) if len(ends) else float("-inf")


def _no_work(ranks: Collection[int]) -> Mapping[int, Work]:
    """Where no process can be seen."""
    return {}


def awaited_at_start(sections: Sections, beats: Mapping[int, Beat]) -> frozenset[int]:
    """Ranks that others may wait for before a step has ended: all that are in no call, those without a record included. Empty after
    that.
    """
    ended = ((sections.section == Section.STEP) & np.isfinite(sections.seconds)).any()
    if ended or max((beat.step for beat in beats.values()), default=0) > 1:
        return frozenset()
    is_call = (sections.section == Section.CALL) | (sections.section == Section.JOIN)
    inside = set(sections.rank[is_call & ~np.isfinite(sections.seconds)].tolist())
    everyone = {rank for ranks in sections.groups for rank in ranks} | {rank for rank, beat in beats.items() if beat.ended is None}
    return frozenset(everyone - inside)


@dataclass
class _StartWork:
    """How long ranks that others wait for have worked on their start."""

    excused: float = 0.0
    """Seconds since the job moved last in which one of them worked."""
    _before: Mapping[int, Work] = field(default_factory=dict)
    _looked: float = float("nan")

    def look(self, work: Mapping[int, Work], now: float) -> frozenset[int]:
        """Those that have worked since the last look, or are seen for the first time."""
        elapsed = now - self._looked
        moving = {rank for rank, done in work.items() if rank not in self._before or done.is_more(self._before[rank], elapsed)}
        self.excused += elapsed if moving & self._before.keys() else 0.0
        self._before, self._looked = work, now
        return frozenset(moving) if self.excused < START_SECONDS else frozenset()


@dataclass
class HangWatch:
    """Runs the hang analysis when a job is stalled: pass the newest records at each look. It reports each stall once, and again
    when a further rank falls silent.

    A silent process is analysed after two heartbeats; a job whose processes are all alive, after `LEAST_STALL` seconds and
    `STALL_STEPS` typical steps without a new record. Of that time only what proves a standstill counts: up to the oldest of the
    ranks' last heartbeats (records may be on their way), without the time in which the watcher itself was not run, and without that
    in which threads of a rank were ready to run and had no core. Before a step has ended, it counts as little while a rank that
    others wait for works: processor time, files read, children that compile.
    """

    heartbeat: float = HEARTBEAT
    least_stall: float = LEAST_STALL
    _moved: float = float("nan")
    _looked: float = float("nan")
    _late: float = 0.0
    """Seconds since `_moved` in which the watcher did not look although it was to."""
    _waited: Mapping[int, float] = field(default_factory=dict)
    """Seconds that each rank's threads had waited for a core when the job moved last."""
    _start: _StartWork = field(default_factory=_StartWork)
    _progress: int = -1
    _stall_reported: bool = False
    """This stall was reported, while all processes were alive."""
    _reported_silent: frozenset[int] = frozenset()
    """Silent ranks that were reported."""
    _failed: frozenset[int] = frozenset()
    """Ranks that a reported failure names."""

    def look(
        self, sections: Sections, beats: Mapping[int, Beat], now: float, waited: Callable[[], Mapping[int, float]] = dict,
        starting: Mapping[int, int] = MappingProxyType({}), work: Callable[[Collection[int]], Mapping[int, Work]] = _no_work,
    ) -> HangReport | None:  # fmt: skip
        """The report of a hang that has just been detected, otherwise None. `waited`: seconds that the threads of each rank of this
        machine have waited for a core; asked only while nothing moves. `starting` as in `hang_report`; `work`: what those ranks
        have done whose processes are on this machine."""
        failure = failure_of(sections, beats, now)
        if failure is not None:
            report = diagnose_failure(sections, beats, now)
            if report is not None and not frozenset(report.culprits) <= self._failed:
                self._failed |= frozenset(report.culprits)
                return report
        gone = {*(end.rank for end in failure.causes), *failure.others} if failure is not None else set()
        if not gone:
            self._failed = frozenset()
        living = [beat for beat in beats.values() if beat.ended is None and beat.rank not in gone]
        progress = sum(beat.progress for beat in living)
        silent = frozenset(beat.rank for beat in living if is_silent(beat.process, beat.silent, 2 * self.heartbeat))
        awaited = awaited_at_start(sections, beats)
        seen = work(awaited) if awaited else {}
        silent -= {rank for rank in self._start.look(seen, now) if rank in beats and beats[rank].process not in NO_LIFE}
        latest = _latest_moment(sections)
        self._late += max(now - self._looked - 2 * self.heartbeat, 0.0) if np.isfinite(self._looked) else 0.0
        self._looked = now
        if progress != self._progress or not np.isfinite(self._moved) or self._moved < latest <= now:
            moved = now if progress != self._progress or not np.isfinite(self._moved) else latest
            self._progress, self._moved, self._late, self._waited, self._start.excused = progress, moved, 0.0, {}, 0.0
            self._stall_reported = self._stall_reported and bool(silent)
        self._reported_silent &= silent
        called = set(sections.rank[(sections.section == Section.CALL)].tolist()) if awaited else set()
        unseen = awaited - seen.keys() - set(starting) - called
        least = max(self.least_stall, NOT_COME) if unseen else self.least_stall
        stalled = self._standstill(living, now, waited) > stall_seconds(sections, least)
        if not living or not (silent - self._reported_silent or (stalled and not self._stall_reported and not gone)):
            return None
        self._stall_reported, self._reported_silent = True, silent
        return diagnose_stall(sections, beats, now, 2 * self.heartbeat, stalled, starting)

    def _standstill(self, living: Sequence[Beat], now: float, waited: Callable[[], Mapping[int, float]]) -> float:
        """Seconds for which the job is proven to stand still."""
        heard = now - max((beat.silent for beat in living), default=0.0)
        quiet = heard - self._moved - self._late - min(self._start.excused, START_SECONDS)
        if quiet <= self.heartbeat:
            return quiet
        since, self._waited = self._waited, self._waited or waited()
        if not since:
            return quiet
        starved = max((seconds - since[rank] for rank, seconds in waited().items() if rank in since), default=0.0)
        return quiet - min(max(starved, 0.0), MOST_STARVED * quiet)

    def next_look(self, beats: Mapping[int, Beat]) -> float:
        """Seconds until the next look is useful: a heartbeat, or less if a late process would count as silent by then."""
        overdue = [beat.silent for rank, beat in beats.items() if beat.ended is None and rank not in self._reported_silent]
        left = 2 * self.heartbeat - max(overdue, default=0.0)
        return min(self.heartbeat, max(left, 0.0) + 0.05 * self.heartbeat)

    def reset(self) -> None:
        """Discards the last report, which was not conclusive: the analysis runs again at the next look."""
        self._stall_reported, self._reported_silent = False, frozenset()
