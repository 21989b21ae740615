"""Whether the middle of a step is steady: each period runs as the one before it, later by the same time.

An operator starts at the latest of the times that it waits for, and the compute tax looks at what is in flight; both stay the
same if all times move by the same amount. So where every event of a stretch of time lies one period's time behind the same event
a period before, on all ranks, the next period does so, too, and all that follow (docs/decisions/0058-folded-steady-state.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.engine import HOST_SYNC, Program, Timeline
from windtunnel.predict.program.periods import Periods

TOLERANCE = 1e-13
"""Largest difference of two times that are the same, as a share of the step."""

TOGETHER = (1, 2, 3, 4, 6, 8, 12)
"""Periods that may repeat together: ranks that wait for each other may take turns."""


@dataclass(frozen=True)
class SteadyPeriods:
    """`together` periods take `seconds` on every rank."""

    together: int
    seconds: float


def steady_state(program: Program, timeline: Timeline, periods: tuple[Periods, ...]) -> SteadyPeriods | None:
    """The steady state of a run whose operators were all recorded; None if it had none at the end of its periods."""
    events = _events(program)
    ranks = [_RankTimes(program, timeline, events, rank, of) for rank, of in enumerate(periods)]
    until = min(rank.until for rank in ranks)
    off = TOLERANCE * timeline.makespan
    for together in TOGETHER:
        seconds = ranks[0].advance(together, until)
        if seconds is not None and all(rank.repeats(together, seconds, until, off) for rank in ranks):
            return SteadyPeriods(together, seconds)
    return None


def behind_moves(whole: Timeline, fewer: Timeline, periods: tuple[Periods, ...], steady: SteadyPeriods) -> bool:
    """Whether all that follows the periods is later by the seconds of the periods that a run has more than another."""
    off = TOLERANCE * whole.makespan
    for rank, of in enumerate(periods):
        gone = steady.together * of.size
        begin, end = int(whole.rank_start[rank]) + of.last, int(whole.rank_start[rank + 1])
        back = int(fewer.rank_start[rank + 1]) - end
        for after, before in ((whole.begin, fewer.begin), (whole.end, fewer.end), (whole.transfer_begin, fewer.transfer_begin)):
            moved = after[begin - gone : end] - before[begin - gone + back : end + back] - steady.seconds
            if not bool((np.isnan(moved) | (np.abs(moved) <= off)).all()):
                return False
    return True


def _events(program: Program) -> Int64s:
    """[instances + 1] operators and rendezvous before each instance."""
    template = program.template
    size = np.append(np.diff(program.template_start), 1)[template]  # -1, a rendezvous, is the last
    return np.concatenate([[0], np.cumsum(size * program.times)])


class _RankTimes:
    """Times of one rank's periods, by instance and by operator."""

    def __init__(self, program: Program, timeline: Timeline, events: Int64s, rank: int, periods: Periods) -> None:
        begin, self.periods = int(program.rank_start[rank]), periods
        at = slice(begin + periods.first, begin + periods.last)
        whole = slice(begin, int(program.rank_start[rank + 1]))
        ops = slice(int(events[at.start]), int(events[at.stop]))
        self.host = timeline.host_begin[at]
        self.times = np.stack([timeline.begin[at], timeline.end[at], timeline.transfer_begin[at]])
        self.op_times = np.stack([timeline.recorded.start[ops], timeline.recorded.end[ops]])
        self.op_size = int(events[at.start + periods.size] - events[at.start])
        self.before = timeline.end[whole][: periods.first].max(initial=0.0)
        self.until = float(timeline.begin[whole][periods.last - 1 :].min())
        flags, template = program.flags[at], program.template[at]
        syncs = np.append(np.add.reduceat(np.append(program.op_sync, 0), program.template_start[:-1]) > 0, False)
        self.syncs = bool((flags & HOST_SYNC).any() or syncs[template].any())

    def advance(self, together: int, until: float) -> float | None:
        """Seconds between the last end before `until` and the same end `together` periods before it."""
        gone, ends = together * self.periods.size, self.times[1]
        known = np.flatnonzero(ends <= until)
        if not len(known) or known[-1] < gone:
            return None
        return float(ends[known[-1]] - ends[known[-1] - gone])

    def repeats(self, together: int, seconds: float, until: float, off: float) -> bool:
        """Whether all times of the last two times `seconds` before `until` lie `seconds` behind those `together` periods before."""
        since, gone = until - 2.0 * seconds, together * self.periods.size
        if self.before > since:
            return False
        for times, back in ((self.times, gone), (self.op_times, together * self.op_size)):
            seen = (times[0] >= since) & (times[1] <= until)
            if seen[:back].any():
                return False
            moved = (times[:, back:] - times[:, :-back])[:, seen[back:]] - seconds
            if not bool((np.isnan(moved) | (np.abs(moved) <= off)).all()):
                return False
        return self._host_follows(gone, seconds, since, until, off)

    def _host_follows(self, gone: int, seconds: float, since: float, until: float, off: float) -> bool:
        """Whether the host is as far ahead as before, or gets further ahead by the same time in each period and never waits."""
        seen = (self.times[0] >= since) & (self.times[1] <= until)
        moved: Floats = (self.host[gone:] - self.host[:-gone])[seen[gone:]]
        if not len(moved):
            return False
        if bool((np.abs(moved - seconds) <= off).all()):
            return True
        return not self.syncs and bool((np.abs(moved - moved[0]) <= off).all()) and float(moved[0]) < seconds
