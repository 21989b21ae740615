"""GOAL schedules (LogGOPSim, Schedgen, ATLAHS), as text and in binary form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.formats.head import Head, head_of
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.traces.goal.schedule import (
    GoalSchedule,
    facts_of,
    graph_of,
    is_binary,
    is_text,
    read_binary,
    read_text_schedule,
)


def recognises(head: Head) -> bool:
    """Whether a file is a schedule, by its first statement or its magic number."""
    return is_binary(head.data) or is_text(head.text)


def read_schedule(path: Path) -> GoalSchedule:
    """A schedule in either form."""
    return read_binary(path) if is_binary(head_of(path).data) else read_text_schedule(path)


def read(files: Sequence[Path], context: Context) -> Reading:
    """One schedule. SpecError where several are given."""
    if len(files) > 1:
        raise SpecError("FILE", f"{len(files)} files", "one GOAL schedule at a time")
    schedule = read_schedule(files[0])
    graph, assumed = graph_of(schedule)
    built = ("a graph of all ranks; `windtunnel replay --loggops L=…,o=…,g=…,G=…` runs it as LogGOPSim does",)
    return Reading("GOAL", Content.GRAPH, graph, facts_of(schedule), built, (), assumed, tuple(schedule.broken))


__all__ = ["read", "read_schedule", "recognises"]
