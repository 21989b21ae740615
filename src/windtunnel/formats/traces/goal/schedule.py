"""A GOAL schedule: operations of each rank in columns, with what each requires to have ended or started."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from windtunnel.formats.traces.task_columns import TaskColumns
from windtunnel.records.trace_graph import TaskKind, TraceGraph

ANY = 2**32 - 1
"""A receive's source or tag that matches all (-1 in text)."""


class GoalKind(IntEnum):
    """Operations, by LogGOPSim's numbers."""

    SEND = 1
    RECEIVE = 2
    CALC = 3


@dataclass
class GoalRank:
    """Operations of a rank in the order of the file. `size`: bytes, or ns of a calculation. `requires`, `irequires`: pairs of
    operations, the first of which waits until the second has ended or started, in the order of the file."""

    kind: array[int] = field(default_factory=lambda: array("B"))
    size: array[int] = field(default_factory=lambda: array("Q"))
    peer: array[int] = field(default_factory=lambda: array("L"))
    tag: array[int] = field(default_factory=lambda: array("L"))
    cpu: array[int] = field(default_factory=lambda: array("B"))
    nic: array[int] = field(default_factory=lambda: array("B"))
    requires: list[tuple[int, int]] = field(default_factory=list)
    irequires: list[tuple[int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kind)

    def add(self, kind: GoalKind, size: int, peer: int = 0, tag: int = 0, cpu: int = 0, nic: int = 0) -> int:
        """An operation; its number."""
        self.kind.append(kind)
        self.size.append(size)
        self.peer.append(peer)
        self.tag.append(tag)
        self.cpu.append(cpu)
        self.nic.append(nic)
        return len(self) - 1


@dataclass
class GoalSchedule:
    """All ranks."""

    ranks: list[GoalRank]
    broken: list[str] = field(default_factory=list)

    @property
    def operations(self) -> int:
        return sum(len(rank) for rank in self.ranks)


def facts_of(schedule: GoalSchedule) -> dict[str, Any]:
    """Counts and sums that can be checked against the file."""
    out: dict[str, Any] = {"ranks": len(schedule.ranks)}
    for kind, name in ((GoalKind.SEND, "send"), (GoalKind.RECEIVE, "recv"), (GoalKind.CALC, "calc")):
        sizes = [size for rank in schedule.ranks for one, size in zip(rank.kind, rank.size, strict=True) if one == kind]
        out[name] = len(sizes)
        out["calc_ns" if kind is GoalKind.CALC else f"{name}_bytes"] = sum(sizes)
    out["requires"] = sum(len(rank.requires) for rank in schedule.ranks)
    out["irequires"] = sum(len(rank.irequires) for rank in schedule.ranks)
    out["cpus"] = 1 + max((max(rank.cpu, default=0) for rank in schedule.ranks), default=0)
    out["nics"] = 1 + max((max(rank.nic, default=0) for rank in schedule.ranks), default=0)
    return out


def graph_of(schedule: GoalSchedule) -> tuple[TraceGraph, tuple[str, ...]]:
    """The tasks, and what was assumed: a trace graph knows neither waits for the start of a task nor receives from anybody."""
    out = TaskColumns()
    kinds = {GoalKind.SEND: TaskKind.SEND, GoalKind.RECEIVE: TaskKind.RECEIVE, GoalKind.CALC: TaskKind.COMPUTE}
    starts = wild = 0
    for number, rank in enumerate(schedule.ranks):
        out.rank(number)
        base = len(out)
        deps: list[list[int]] = [[] for _ in range(len(rank))]
        for later, earlier in rank.requires:
            deps[later].append(earlier)
        for later, earlier in rank.irequires:
            deps[later] += deps[earlier]
            starts += 1
        for at in range(len(rank)):
            kind, size = GoalKind(rank.kind[at]), rank.size[at]
            after = [base + one for one in deps[at]]
            if kind is GoalKind.CALC:
                out.add("calc", TaskKind.COMPUTE, size * 1e-9, deps=after)
                continue
            wild += rank.peer[at] == ANY or rank.tag[at] == ANY
            peer = -1 if rank.peer[at] == ANY else rank.peer[at]
            out.add(kind.name.lower(), kinds[kind], size=float(size), peer=peer, tag=rank.tag[at], deps=after)
    notes = ["computations of a rank share its GPU, whatever their cpu; messages wait for their receiver"]
    if starts:
        notes.append(f"{starts} irequires wait for what the other operation waits for")
    if wild:
        notes.append(f"{wild} receives from anybody or with any tag meet no sender (`--loggops` matches them)")
    return out.graph(), tuple(notes)
