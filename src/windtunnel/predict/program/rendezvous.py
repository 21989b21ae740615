"""Meetings of groups of unequal replicas: keys of the calls that several groups take part in."""

from __future__ import annotations

from collections import Counter

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.engine import RankBuilder
from windtunnel.predict.program.keys import GROUP_CALLS
from windtunnel.predict.program.speeds import Speeds
from windtunnel.predict.ranks.folding import Pace, Replicas
from windtunnel.workload import Axis


class RendezvousKeys:
    """Numbers the calls between groups: the n-th call on an axis of a stage is the same call for all groups."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, Axis, tuple[int, ...], int], int] = {}

    def key(self, stage: int, axis: Axis, groups: tuple[int, ...], call: int) -> tuple[int, bool]:
        """The call's key, and whether this is the first request for it."""
        name = stage, axis, groups, call
        fresh = name not in self.known
        return GROUP_CALLS + self.known.setdefault(name, len(self.known)), fresh


class UnequalStage:
    """One stage of one group of replicas of a job with unequal ranks."""

    def __init__(self, meetings: RendezvousKeys, number: int, group: Replicas, stage: int, speeds: Speeds) -> None:
        self.meetings, self.number, self.group, self.stage, self.speeds = meetings, number, group, stage, speeds
        self.calls: Counter[Axis] = Counter()

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.group.indices

    @property
    def pauses(self) -> tuple[tuple[float, float], ...]:
        """Pauses of its host: (place in the order of passes, seconds)."""
        pace: Pace = self.group.paces[self.stage]
        return pace.pauses

    def partners(self, axis: Axis) -> tuple[int, ...]:
        """Groups that meet on `axis`; none if its ranks are inside a replica."""
        return self.group.partners.get(axis, ())

    def key(self, axis: Axis) -> tuple[int, bool]:
        """Key of the next call on `axis`, and whether this group is the first to request it."""
        self.calls[axis] += 1
        return self.meetings.key(self.stage, axis, self.partners(axis), self.calls[axis])

    def stretch(self, rank: RankBuilder, labels: Int64s) -> None:
        """Sets the row of factors of every instance of `rank`; `labels` [n, 3] are those of the instances."""
        template = rank.templates
        runs = template >= 0
        rows = np.zeros(len(template), np.int64)
        rows[runs] = self.speeds.rows(template[runs], labels[runs])
        rank.scale(rows)
