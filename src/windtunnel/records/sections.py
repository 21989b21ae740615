"""Timed sections of a training job: what each rank did in each step, as its own timers say, in columns.

The monitor in the training process writes them (`windtunnel.fleet`), and everything that judges a running job reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int32s, Int64s, Uint8s
from windtunnel.base.dataclasses import dataclass, field, replace


class Section(IntEnum):
    """A part of a training step. Sections of one kind do not overlap on a rank; calls lie inside the others."""

    STEP = 0  # from the end of one optimizer step to the end of the next
    FORWARD = 1  # of one micro batch through the outermost module of the rank
    BACKWARD = 2  # of one micro batch
    OPTIMIZER = 3
    CALL = 4  # a collective, or a send or receive
    DATA = 5  # waiting for the next batch
    CHECKPOINT = 6  # the part of a save that holds the training up
    HOST_GAP = 7  # the host was busy with none of the above: Python, garbage collection
    INFERENCE = 8  # a forward without gradients: of a teacher, a target network, an evaluation
    RANGE = 9  # a range that the user named
    JOIN = 11  # a call in which all ranks come together: the store, init_process_group, new_group; its group is START_UP
    END = 10  # how the process or a thread of it ended; takes no time. Its name says it (`records.ends`)


START_UP = "start-up"
"""Name of the group of all ranks in which `Section.JOIN` counts its calls."""

NO_CORE = "no core"
"""Name of a gap in which the process could run and had no core. One row stands for all such waits of a section, at its tail."""

NO_CORE_IN_STEP = "no core in the step"
"""Name of the same, of a whole step: inside its sections and between them."""


@dataclass(frozen=True)
class Sections:
    """N sections of any number of ranks, in any order. Seconds.

    A call's seconds hold the waiting for its other ranks.
    """

    rank: Int32s
    step: Int64s
    section: Uint8s
    """`Section`."""
    name: Int32s
    """Index of `names`."""
    begin: Floats
    """Seconds from `zero` on the clock of the rank's host."""
    seconds: Floats
    """Time on the device (on a CPU: of the process); NaN where the section was still open when it was read."""
    host_seconds: Floats
    """From begin to end on the host; differs from `seconds` where a device runs behind."""
    comm: Uint8s
    """base.comm.Comm of a call; 0 none."""
    bytes: Floats
    """Of a call: the total buffer, as nccl-tests counts it; NaN unknown."""
    group: Int32s
    """Of a call: index of `groups`; -1 none."""
    call: Int64s
    """Of a collective its number in its group on this rank, of a send or receive among those with its peer; -1 none."""
    peer: Int32s
    """Of a send its receiver, of a receive its sender (ranks of the job); -1 none."""
    sends: Bools
    """Whether a call with a peer sends."""
    micro_batch: Int32s
    """Number of a forward or backward; -1 unknown."""
    names: tuple[str, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    group_names: tuple[str, ...] = ()
    hosts: Mapping[int, str] = field(default_factory=dict)
    """Rank -> the machine that it runs on."""
    zero: float = 0.0
    """Unix seconds of begin 0."""

    def __len__(self) -> int:
        return len(self.rank)

    @classmethod
    def of(cls, rank: object, step: object, section: object, begin: object, seconds: object, **columns: Any) -> Sections:
        """Sections from sequences; columns left out are unknown. Tables (`names`, `groups`, `hosts`, …) pass through."""
        count = len(np.asarray(begin))
        given = {"rank": rank, "step": step, "section": section, "begin": begin, "seconds": seconds, **columns}
        values: dict[str, Any] = {key: given[key] for key in _TABLES if key in given}
        given.setdefault("host_seconds", given["seconds"])
        for key, (kind, unknown) in COLUMNS.items():
            values[key] = np.broadcast_to(np.asarray(given.get(key, unknown), kind), (count,)).copy()
        return cls(**values)

    def where(self, chosen: Any) -> Sections:
        """The sections at `chosen`: a mask [N], indices or a slice. Tables stay."""
        return replace(self, **{key: getattr(self, key)[chosen] for key in COLUMNS})


COLUMNS: dict[str, tuple[Any, float]] = {
    "rank": (np.int32, -1), "step": (np.int64, -1), "section": (np.uint8, 0), "name": (np.int32, -1), "begin": (np.float64, np.nan),
    "seconds": (np.float64, np.nan), "host_seconds": (np.float64, np.nan), "comm": (np.uint8, 0), "bytes": (np.float64, np.nan),
    "group": (np.int32, -1), "call": (np.int64, -1), "peer": (np.int32, -1), "sends": (np.bool_, False),
    "micro_batch": (np.int32, -1),
}  # fmt: skip
"""Column -> its type and the value that means unknown."""

_TABLES = ("names", "groups", "group_names", "hosts", "zero")


def join_sections(parts: Sequence[Sections]) -> Sections:
    """Several tables as one; names and groups are numbered anew. No parts: an empty table."""
    if not parts:
        return Sections.of([], [], [], [], [])
    names: dict[str, int] = {}
    groups: dict[tuple[str, tuple[int, ...]], int] = {}
    hosts: dict[int, str] = {}
    zero = min(part.zero for part in parts)
    columns: dict[str, list[Any]] = {key: [] for key in COLUMNS}
    for part in parts:
        own = {key: getattr(part, key) for key in COLUMNS}
        own["begin"] = own["begin"] + (part.zero - zero)
        own["name"] = _renumber(own["name"], [names.setdefault(name, len(names)) for name in part.names])
        labels = part.group_names or ("",) * len(part.groups)
        keys = zip(labels, part.groups, strict=True)
        own["group"] = _renumber(own["group"], [groups.setdefault(key, len(groups)) for key in keys])
        hosts.update(part.hosts)
        for key in COLUMNS:
            columns[key].append(own[key])
    return Sections(
        **{key: np.concatenate(values) for key, values in columns.items()},
        names=tuple(names), groups=tuple(ranks for _, ranks in groups), group_names=tuple(label for label, _ in groups),
        hosts=hosts, zero=zero,
    )  # fmt: skip


def _renumber(indices: Int32s, numbers: Sequence[int]) -> Int32s:
    """Indices of one table as those of another; -1 stays."""
    table = np.array([*numbers, -1], np.int32)
    return table[indices]
