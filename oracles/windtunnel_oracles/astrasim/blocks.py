"""Tasks of many ranks at once: columns that grow by blocks, one task of each rank in a block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import SpecError
from windtunnel.engine.dag import ChannelKind, ChannelTable, LaneTable, TaskTable, TaskTimes, run

MOST_RUNS = 12
"""Runs after which the gates of a graph count as found."""
MOST_TASKS = 40_000_000
"""Tasks of one collective beyond which it is refused: they would need some 5 GB."""


class Blocks:
    """A task graph under construction; an index of -1 among dependencies means none."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds: list[np.ndarray] = []
        self.tail: list[np.ndarray] = []
        self.lane: list[np.ndarray] = []
        self.release: list[np.ndarray] = []
        self.channel: list[np.ndarray] = []
        self.slot: list[np.ndarray] = []
        self.channels = 0
        self.gates: list[tuple[Int64s, Int64s, list[Int64s]]] = []
        self.owner: list[np.ndarray] = []
        self.deps: list[np.ndarray] = []

    def add(
        self, seconds: Int64s | int, after: Sequence[Int64s], lane: Int64s | None = None, release: Int64s | None = None,
        tail: Int64s | int = 0, channel: Int64s | None = None, slot: int = 0,
    ) -> Int64s:  # fmt: skip
        """A block of as many tasks as each of `after` has entries; their indices. `lane` is given back at the end unless `release`
        says what is, -1 nothing."""
        size = len(after[0])
        index = np.arange(self.count, self.count + size, dtype=np.int64)
        self.count += size
        if self.count > MOST_TASKS:
            raise SpecError("collective", f"more than {MOST_TASKS:,} messages", "fewer ranks, or ranks that begin together")
        none = np.full(size, -1, np.int64)
        taken = none if lane is None else lane
        self.seconds.append(np.broadcast_to(seconds, size))
        self.tail.append(np.broadcast_to(tail, size))
        self.lane.append(taken)
        self.release.append(taken if release is None else release)
        self.channel.append(none if channel is None else channel)
        self.slot.append(np.full(size, slot))
        for deps in after:
            self.owner.append(index)
            self.deps.append(deps)
        return index

    def sort_ends(self, done: Sequence[Int64s]) -> list[Int64s]:
        """Of each rank the ends of these tasks in order of time, as the first, second, … of as many new tasks: tokens through a
        channel, whose n-th receiver gets the n-th that was sent."""
        channel = np.arange(self.channels, self.channels + len(done[0]))
        self.channels += len(done[0])
        for one in done:
            self.add(0, [one], channel=channel, slot=0)
        return [self.add(0, [np.full(len(done[0]), -1, np.int64)], channel=channel, slot=1) for _ in done]

    def gate(self, arrived: Sequence[Int64s], done: list[Int64s]) -> Int64s:
        """Tasks that end with the first of `done` that ends when all of `arrived` have, or later. A graph knows only the last of
        several: their length is found by running it again (`run`)."""
        closed = self.add(0, arrived)
        opens = self.add(0, [closed])
        self.gates.append((opens, closed, done))
        return opens

    def start(self, times: np.ndarray) -> Int64s:
        """A block of tasks that end at these times."""
        return self.add(times.astype(np.int64), [np.full(len(times), -1, np.int64)])

    def run(self, lanes: int, width: np.ndarray) -> TaskTimes:
        """Times of all tasks, on lanes that take the first that is ready."""
        owner, deps = np.concatenate(self.owner), np.concatenate(self.deps)
        real = deps >= 0
        owner, deps = owner[real], deps[real]
        order = np.argsort(owner, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=self.count))])
        tasks = TaskTable(
            np.concatenate(self.seconds).astype(np.float64), np.concatenate(self.lane).astype(np.int32), start.astype(np.int64),
            deps[order], tail=np.concatenate(self.tail).astype(np.float64), release=np.concatenate(self.release).astype(np.int32),
            channel=np.concatenate(self.channel).astype(np.int32), slot=np.concatenate(self.slot).astype(np.int32),
        )  # fmt: skip
        meet = ChannelTable(np.full(self.channels, ChannelKind.EAGER, np.uint8), np.full(self.channels, 2, np.int32))
        on = LaneTable(np.zeros(lanes, np.uint8), width.astype(np.int32))
        times = run(tasks, on, meet)
        for _ in range(MOST_RUNS if self.gates else 0):
            before = tasks.seconds.copy()
            for opens, closed, done in self.gates:
                ends = np.array([times.end[one] for one in done])
                tasks.seconds[opens] = np.where(ends >= times.end[closed], ends, np.inf).min(axis=0) - times.end[closed]
            if (before == tasks.seconds).all():
                break
            times = run(tasks, on, meet)
        return times
