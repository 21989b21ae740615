"""A GOAL schedule: operations of each rank in columns, with what each requires to have ended or started.

GOAL in LogGOPSim's binary form (Parser.hpp): a magic number, counts, where ranks lie, then their operations and lists.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import read_bytes
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


MAGIC, USED = 4223, 2342
LARGEST = 2**31
_HEAD = 14  # magic, ranks, most cpu, most nic
_NODE = np.dtype([
    ("waits", "<u4"), ("kind", "u1"), ("peer", "<u4"), ("size", "<u8"), ("tag", "<u4"), ("cpu", "u1"), ("nic", "u1"),
    ("ends", "<u4"), ("end_at", "<u4"), ("starts", "<u4"), ("start_at", "<u4"),
])  # fmt: skip


def is_binary(data: bytes) -> bool:
    """Whether bytes begin with the magic number, or with that of a schedule that a run has used up."""
    return len(data) >= _HEAD and int.from_bytes(data[:8], "little") in (MAGIC, USED) and data[8:12] != b"\0\0\0\0"


def read_binary(path: Path) -> GoalSchedule:
    """The schedule. FileError for one that LogGOPSim has marked as used, and for lists that point outside of the file."""
    data, size = read_bytes(path, LARGEST, "a binary GOAL schedule")
    if size > LARGEST:
        raise FileError(str(path), f"{size} bytes", f"a binary GOAL schedule of at most {LARGEST} bytes")
    if int.from_bytes(data[:8], "little") == USED:
        raise FileError(str(path), "a schedule that a run with --save-mem has used up", "one as txt2bin writes it")
    count = int.from_bytes(data[8:12], "little")
    if len(data) < _HEAD + 16 * count:
        raise FileError(str(path), f"{len(data)} bytes for {count} ranks", "a binary GOAL schedule")
    where = np.frombuffer(data, "<u8", 2 * count, _HEAD).reshape(-1, 2)
    ranks: list[GoalRank] = []
    broken: list[str] = []
    for number, (start, end) in enumerate(where.tolist()):
        try:
            ranks.append(_rank(data[8 + start : 8 + end], count))
        except (ValueError, IndexError, SpecError):
            broken.append(f"{path}: rank {number} cannot be read; it counts as empty")
            ranks.append(GoalRank())
    if len(broken) == len(ranks):
        raise FileError(str(path), "ranks that cannot be read", "a binary GOAL schedule")
    return GoalSchedule(ranks, broken)


def _rank(data: bytes, ranks: int) -> GoalRank:
    nodes, roots = (int(one) for one in np.frombuffer(data, "<u4", 2))
    table = np.frombuffer(data, _NODE, nodes, 8 + 4 * roots)
    lists = np.frombuffer(data, "<u4", -1, 8 + 4 * roots + nodes * _NODE.itemsize).tolist()
    out = GoalRank()
    for row in table:
        if not 1 <= row["kind"] <= 3 or (row["kind"] != GoalKind.CALC and row["peer"] >= ranks and row["peer"] != ANY):
            raise SpecError("kind", int(row["kind"]), "1 to 3, and a peer that is a rank")
        out.add(GoalKind(int(row["kind"])), *(int(row[name]) for name in ("size", "peer", "tag", "cpu", "nic")))
    for earlier, row in enumerate(table):
        for pairs, first, many in ((out.requires, row["end_at"], row["ends"]), (out.irequires, row["start_at"], row["starts"])):
            for later in lists[int(first) : int(first) + int(many)]:
                if later >= nodes:
                    raise SpecError("list", later, f"below {nodes}")
                pairs.append((later, earlier))
    return out
