"""Rings of a job that exists as records only, as its ranks would leave them on disk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.comm import Comm
from windtunnel.fleet.ring import RingWriter, RowState
from windtunnel.fleet.rings import ring_path
from windtunnel.records.sections import Section

MS = 1_000_000


def written(
    folder: Path, ranks: int = 8, steps: int = 24, slow: int = 5, *, ends: bool = True, ahead: Sequence[int] = (0, 0),
    stuck: int = -1, loading: int = -1,
) -> None:  # fmt: skip
    """Rings of a job of two machines: a forward of 10 ms (13 on the slow rank), an all-reduce, a send to the next rank of a pair.

    `ahead`: ns that each machine's clock is ahead; `stuck`: a rank that is not in the last all-reduce; `loading`: a rank
    that waits 2 ms for its data, where the others wait 1 ms; -1: nobody loads data.
    """
    now = time.time_ns() - steps * 20 * MS
    per = ranks // 2
    for rank in range(ranks):
        off = ahead[rank // per]
        ring = RingWriter(
            ring_path(folder, rank), "job", rank, ranks, host=f"node{rank // per}", facts={"torch": "none"},
            skew=(off, 0.0),
        )  # fmt: skip
        world = ring.text("group", {"name": "world", "ranks": list(range(ranks))})
        ring.text("mesh", {"names": ["dp", "tp"], "shape": [2, per], "ranks": list(range(ranks))})
        name, send = ring.text("name", "all_reduce"), ring.text("name", "send")
        for step in range(steps):
            begin = now + off + step * 20 * MS
            work = (13 if rank == slow else 10) * MS + (rank * 7 + step * 13) % 11 * 10_000
            ready, done = begin + work, begin + (15 if slow >= 0 else 12) * MS
            if loading >= 0:
                nanos = (2 if rank == loading else 1) * MS
                ring.write(Section.DATA, step, begin - nanos, nanos, nanos, state=RowState.DONE)
            for section, at, nanos in ((Section.FORWARD, begin, work), (Section.STEP, begin, done + MS - begin)):
                ring.write(section, step, at, nanos, nanos, state=RowState.DONE)
            call = {"name": name, "comm": Comm.ALL_REDUCE, "size": 4096, "group": world, "call": step}
            if step == steps - 1 and stuck >= 0:
                if rank != stuck:
                    ring.write(Section.CALL, step, ready, **call)
                continue
            ring.write(Section.CALL, step, ready, done - ready, done - ready, state=RowState.DONE, **call)
            peer = (rank + per) % ranks
            ring.write(
                Section.CALL, step, done, MS, MS, state=RowState.DONE, name=send, comm=Comm.SEND_RECV, size=100, call=step,
                peer=peer, sends=int(rank < per),
            )  # fmt: skip
        ring.at_step(steps - 1)
        ring.beat()
        if ends:
            ring.mark_ended(0)
        ring.close()
