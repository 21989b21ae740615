"""What ran on devices, as a run: each device is a rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.base.units import show_counted
from windtunnel.formats.reading import Content, Reading
from windtunnel.records.kernel_classes import comm_of, library_of
from windtunnel.records.run import EventKind, Events, RankTrace, Run, Steps

_XLA_CALL = re.compile(
    r"(?:all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all|collective-(?:permute|broadcast))(?:-start|-done)?[.\d]*"
)
"""XLA's names of collectives, of which kernels bear no library's name."""


class Activity(NamedTuple):
    """A kernel or a copy: `begin` and `seconds` in s, `size` in B where it is known."""

    name: str
    lane: int
    begin: float
    seconds: float
    correlation: int = -1
    copy: bool = False
    size: float = float("nan")


@dataclass
class DeviceTimeline:
    """The activities of one device, `device` as the file names it."""

    device: str
    source: str
    activities: list[Activity] = field(default_factory=list)


def reading_of(form: str, timelines: Sequence[DeviceTimeline], path: str, broken: Sequence[str] = ()) -> Reading:
    """The run of `timelines` that have activities. FileError where none has."""
    full = [timeline for timeline in timelines if timeline.activities]
    if not full:
        raise FileError(path, "no kernel of a device", "a trace with kernels", "; ".join(broken))
    traces = tuple(_trace(rank, timeline) for rank, timeline in enumerate(full))
    run = Run(Steps.of((), (), begin=(), seconds=()), traces, {}, path)
    count = sum(len(trace.events) for trace in traces)
    facts: dict[str, Any] = {
        "ranks": len(traces), "kernels": sum(not one.copy for timeline in full for one in timeline.activities),
        "copies": sum(one.copy for timeline in full for one in timeline.activities), "device": full[0].device,
    }  # fmt: skip
    built = (f"a run of {show_counted(len(traces), 'rank')}, {show_counted(count, 'event')}",)
    assumed = ("each device is a rank",) if len(traces) > 1 else ()
    return Reading(form, Content.RUN, run, facts, built, ("calls of the host",), assumed, tuple(broken))


def _trace(rank: int, timeline: DeviceTimeline) -> RankTrace:
    rows = sorted(timeline.activities, key=lambda one: one.begin)
    names = {name: number for number, name in enumerate(dict.fromkeys(one.name for one in rows))}
    zero, count = rows[0].begin, len(rows)
    kinds = [_kind(one) for one in rows]
    codes = [int(comm_of(one.name)) if kind is EventKind.CALL else 0 for one, kind in zip(rows, kinds, strict=True)]
    none, narrow = np.full(count, -1, np.int64), np.full(count, -1, np.int32)
    events = Events(
        np.array(kinds, np.uint8), np.array([names[one.name] for one in rows], np.int32),
        np.array([one.lane % 2**31 for one in rows], np.int32), np.array([one.begin - zero for one in rows]),
        np.array([one.seconds for one in rows]), np.array([one.correlation for one in rows], np.int64), none,
        np.array(codes, np.uint8), np.array([one.size for one in rows]), narrow, none, narrow, tuple(names),
    )  # fmt: skip
    return RankTrace(rank, events, zero, timeline.device, 0, timeline.source)


def _kind(one: Activity) -> EventKind:
    if one.copy:
        return EventKind.COPY
    return EventKind.CALL if library_of(one.name) or _XLA_CALL.fullmatch(one.name) else EventKind.KERNEL
