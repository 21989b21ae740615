"""GOAL in LogGOPSim's binary form (Parser.hpp): a magic number, counts, where ranks lie, then their operations and lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import read_bytes
from windtunnel.formats.traces.goal.schedule import ANY, GoalKind, GoalRank, GoalSchedule

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
