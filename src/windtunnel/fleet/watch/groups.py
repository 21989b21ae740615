"""Process groups as recorded in the ring: name, global ranks, and numbers of their calls."""

from __future__ import annotations

import weakref
from itertools import count
from typing import Any

from windtunnel.fleet.ring import RingWriter


class GroupEntry:
    """One process group. Its collectives are numbered from 0.

    Sends and receives are numbered per peer and direction: the k-th send to a rank is the k-th receive there.
    """

    __slots__ = ("number", "ranks", "next_call", "_pairs")

    def __init__(self, number: int, ranks: tuple[int, ...]) -> None:
        self.number, self.ranks = number, ranks
        self.next_call = count().__next__  # the number of the next collective
        self._pairs: dict[tuple[int, int], Any] = {}

    def next_transfer(self, peer: int, sends: int) -> int:
        """Number of the next send to, or receive from, a rank of the job."""
        pair = self._pairs.get((peer, sends))
        if pair is None:
            pair = self._pairs[peer, sends] = count()
        return next(pair)


class GroupRegistry:
    """Entries of process groups, each created at the group's first call, so that groups of any age are found."""

    def __init__(self, ring: RingWriter) -> None:
        self._ring = ring
        self._by_id: dict[int, tuple[GroupEntry, Any]] = {}
        self.names: dict[str, str] = {}  # a framework's description of a group -> the name of its axis
        self._used: dict[tuple[str, tuple[int, ...]], str] = {}

    def entry(self, group: Any) -> GroupEntry:
        """The entry of a torch.distributed.ProcessGroup."""
        found = self._by_id.get(id(group))
        return found[0] if found is not None else self._add(group)

    def _add(self, group: Any) -> GroupEntry:
        import torch.distributed as dist

        key = id(group)
        try:
            ranks = tuple(dist.get_process_group_ranks(group))
        except (KeyError, ValueError, RuntimeError):
            ranks = tuple(range(group.size()))
        name = self._label(group, ranks)
        entry = GroupEntry(self._ring.text("group", {"name": name, "ranks": list(ranks)}), ranks)
        # The id of a deleted object can be reused; the weak reference removes the entry in time.
        self._by_id[key] = entry, weakref.ref(group, lambda _: self._by_id.pop(key, None))
        return entry

    def _label(self, group: Any, ranks: tuple[int, ...]) -> str:
        """The mesh dimension, the group's description, or its number; made unique among groups of the same ranks."""
        number, description = str(group.group_name), str(group.group_desc or "")
        if description.startswith("mesh_"):
            name = description.removeprefix("mesh_")
        elif description in ("", "undefined"):
            name = number
        else:
            name = "world" if description == "default_pg" else self.names.get(description, description)
        owner = self._used.setdefault((name, ranks), number)
        return name if owner == number else f"{name}:{number}"
