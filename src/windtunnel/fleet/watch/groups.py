"""Process groups as recorded in the ring: name, global ranks, and numbers of their calls.

Times how ranks come together: the job's store, `init_process_group`, `new_group`. A job's first minute consists of it.

These are calls of a group of all ranks, START_UP, numbered like collectives: every rank makes them in the same order. So who waits
for whom there is found as in any other call.
"""

from __future__ import annotations

import weakref
from importlib import import_module
from itertools import count
from typing import Any

from windtunnel.fleet.ring import RingWriter, RowState
from windtunnel.fleet.watch.import_hooks import AfterImport
from windtunnel.fleet.watch.patches import Patches
from windtunnel.fleet.watch.recorder import Recorder
from windtunnel.records.sections import START_UP, Section


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


_MOST_RANKS = 8192
"""Of larger jobs the list of all ranks would take too much of the ring's text; their start is not recorded."""
_LOCAL = 5
"""Position of use_local_synchronization among the arguments of _new_group_with_tag."""


class JoinWatch:
    """Records the calls with which this rank joins others."""

    def __init__(self, recorder: Recorder, patches: Patches, imports: AfterImport) -> None:
        import torch.distributed as dist
        from torch.distributed import distributed_c10d

        world = recorder.ring.meta.world
        if not dist.is_available() or not 1 < world <= _MOST_RANKS:
            return
        self._recorder, self._numbers = recorder, count()
        self._group = recorder.ring.text("group", {"name": START_UP, "ranks": list(range(world))})
        self._row, self._begun, self._inside = -1, 0, False
        patches.wrap(import_module("torch.distributed.rendezvous"), "_create_c10d_store", self._around_store)
        patches.wrap(distributed_c10d, "init_process_group", self._around_start)
        patches.wrap(dist, "init_process_group", self._around_start)
        patches.wrap(distributed_c10d, "_new_group_with_tag", self._around_group)
        imports.when("torch.distributed.device_mesh", lambda module: patches.wrap(module, "init_process_group", self._around_start))

    def _around_start(self, original: Any) -> Any:
        """From the store on: it is a call of its own, and the first that can wait."""

        def init_process_group(*args: Any, **options: Any) -> Any:
            if not self._recorder.live or self._inside:
                return original(*args, **options)
            self._inside = True
            if options.get("store") is not None:
                self._begin("init_process_group")
            try:
                return original(*args, **options)
            finally:
                self._inside = False
                self._end()

        return init_process_group

    def _around_store(self, original: Any) -> Any:
        def create(*args: Any, **options: Any) -> Any:
            if not self._inside:
                return original(*args, **options)
            self._begin("store")
            try:
                return original(*args, **options)
            finally:
                self._end()
                self._begin("init_process_group")

        return create

    def _around_group(self, original: Any) -> Any:
        def new_group(*args: Any, **options: Any) -> Any:
            local = options.get("use_local_synchronization", len(args) > _LOCAL and args[_LOCAL])
            if not self._recorder.live or self._inside or local:  # local: the group's own ranks alone come together
                return original(*args, **options)
            self._begin("new_group")
            try:
                return original(*args, **options)
            finally:
                self._end()

        return new_group

    def _begin(self, name: str) -> None:
        recorder = self._recorder
        self._begun = recorder.now()
        self._row = recorder.ring.write(
            int(Section.JOIN), recorder.step, self._begun, name=recorder.name(name), group=self._group, call=next(self._numbers)
        )

    def _end(self) -> None:
        if self._row >= 0:
            nanos = self._recorder.now() - self._begun
            self._recorder.ring.rewrite(self._row, nanos, nanos, RowState.DONE)
            self._row = -1
