"""Where groups of unequal replicas wait for each other: keys of the calls that several of them take part in."""

from __future__ import annotations

from collections import Counter

import numpy as np

from windtunnel.engine import RankBuilder
from windtunnel.predict.unequal.folding import Pace, Replicas
from windtunnel.predict.unequal.speeds import Speeds
from windtunnel.workload import Axis

APART = 1 << 32
"""Between the keys of two groups' transfers: above those of one group's."""
FIRST_KEY = 1 << 52
"""Keys of calls that groups meet for start here, above those of calls over an engine."""


class Meetings:
    """Numbers the calls of a program that several groups take part in: the n-th call on an axis of a stage is the same for all."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, Axis, tuple[int, ...], int], int] = {}

    def key(self, stage: int, axis: Axis, groups: tuple[int, ...], call: int) -> tuple[int, bool]:
        """The call's key, and whether nobody has asked for it before."""
        name = stage, axis, groups, call
        fresh = name not in self.known
        return FIRST_KEY + self.known.setdefault(name, len(self.known)), fresh


class Apart:
    """One stage of one group of replicas, where not all replicas are equal."""

    def __init__(self, meetings: Meetings, number: int, group: Replicas, stage: int, speeds: Speeds) -> None:
        self.meetings, self.group, self.stage, self.speeds = meetings, group, stage, speeds
        self.base = number * APART
        self.calls: Counter[Axis] = Counter()

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.group.indices

    @property
    def pauses(self) -> tuple[tuple[float, float], ...]:
        """(place in the order of passes, seconds) of its host."""
        pace: Pace = self.group.paces[self.stage]
        return pace.pauses

    def partners(self, axis: Axis) -> tuple[int, ...]:
        """Groups that meet on `axis`; none where its ranks lie inside a replica."""
        return self.group.partners.get(axis, ())

    def key(self, axis: Axis) -> tuple[int, bool]:
        """Key of the next call on `axis`, and whether this group is the first to ask for it."""
        self.calls[axis] += 1
        return self.meetings.key(self.stage, axis, self.partners(axis), self.calls[axis])

    def stretch(self, rank: RankBuilder, labels: list[int]) -> None:
        """Gives every run of `rank`, whose instances are called `labels`, its row of factors."""
        template = np.array(rank.rows, np.int64)[::4]
        runs = template >= 0
        rank.scales = np.zeros(len(template), np.int64)
        rank.scales[runs] = self.speeds.rows(template[runs], np.array(labels, np.int64).reshape(-1, 3)[runs])
