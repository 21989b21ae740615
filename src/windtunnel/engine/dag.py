"""The door of the task graph executor (cpp/dag/dag.h, which states its rules): tasks on lanes, with dependencies and meetings.

The unit of time is the caller's: seconds, or whole nanoseconds where a tool of its own is followed to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s, Uint8s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import EngineError
from windtunnel.engine import _core

Model = Callable[[int, int, Floats], Floats]
"""(channel, number of the meeting, posts by slot) -> ends by slot."""


class ChannelKind(IntEnum):
    """How the tasks that post on a channel meet."""

    COLLECTIVE = 0  # all slots, from the last post on
    RENDEZVOUS = 1  # a sender (slot 0) and a receiver (slot 1), both from the later post on
    EAGER = 2  # the sender does not wait; the receiver ends when the message is there
    PORT = 3  # one after the other, in order of their posts
    MODEL = 4  # as COLLECTIVE; the caller's function says when each participant ends


def _floats() -> Floats:
    return np.empty(0)


def _ints() -> Int32s:
    return np.empty(0, np.int32)


def _longs() -> Int64s:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class TaskTable:
    """N tasks in columns; a column left out stands for its default."""

    seconds: Floats
    lane: Int32s
    """[N] lane that the task holds; -1: none."""
    dep_start: Int64s
    deps: Int64s
    tail: Floats = field(default_factory=_floats)
    """Time from giving the lane back to the task's end."""
    release: Int32s = field(default_factory=_ints)
    """The lane that is given back at the end (default: `lane`), so that a chain of tasks can hold one."""
    priority: Int64s = field(default_factory=_longs)
    """On lanes that are not ordered, the task with the least goes first."""
    channel: Int32s = field(default_factory=_ints)
    slot: Int32s = field(default_factory=_ints)
    key: Int64s = field(default_factory=_longs)
    """The name that a network has for the meeting; -1 where its own seconds count."""

    def __len__(self) -> int:
        return len(self.seconds)


@dataclass(frozen=True)
class LaneTable:
    """L lanes. An ordered one runs its tasks in the order of their numbers; `width`: tasks at once on one that is not."""

    ordered: Uint8s
    width: Int32s

    @classmethod
    def of(cls, count: int, ordered: bool, width: int = 1) -> LaneTable:
        """Equal lanes."""
        return cls(np.full(count, ordered, np.uint8), np.full(count, width, np.int32))


@dataclass(frozen=True)
class ChannelTable:
    """C channels: their kind, and how many slots take part in a meeting."""

    kind: Uint8s = field(default_factory=lambda: np.empty(0, np.uint8))
    slots: Int32s = field(default_factory=_ints)


@dataclass(frozen=True)
class TaskTimes:
    """Times of N tasks, NaN for those that never ran. `begin`: when a meeting began to take its time, NaN for other tasks;
    `cause`: the task whose end let it start, -1 none; `last`: who posted last in its meeting, -1 for other tasks."""

    start: Floats
    end: Floats
    begin: Floats
    cause: Int64s
    last: Int64s
    done: int


def run(
    tasks: TaskTable,
    lanes: LaneTable,
    channels: ChannelTable | None = None,
    model: Model | None = None,
    network: _core.Network | None = None,
) -> TaskTimes:
    """Runs the graph as far as it can go. EngineError for columns that are wrong; what cannot run has no times."""
    meet = channels or ChannelTable()
    try:
        raw = _core.dag_run(
            seconds=_as(tasks.seconds, np.float64), tail=_as(tasks.tail, np.float64), lane=_as(tasks.lane, np.int32),
            release=_as(tasks.release, np.int32), priority=_as(tasks.priority, np.int64),
            dep_start=_as(tasks.dep_start, np.int64), deps=_as(tasks.deps, np.int64), channel=_as(tasks.channel, np.int32),
            slot=_as(tasks.slot, np.int32), key=_as(tasks.key, np.int64), lane_ordered=_as(lanes.ordered, np.uint8),
            lane_width=_as(lanes.width, np.int32), channel_kind=_as(meet.kind, np.uint8),
            channel_slots=_as(meet.slots, np.int32), model=model, network=network,
        )  # fmt: skip
    except _core.CoreError as error:
        raise EngineError(f"task graph: {error}") from None
    return TaskTimes(raw["start"], raw["end"], raw["begin"], raw["cause"], raw["last"], raw["done"])


def _as(column: np.ndarray, kind: type) -> np.ndarray:
    return np.ascontiguousarray(column, kind)
