"""A job that exists as records only: data-parallel ranks that compute, meet in an all-reduce and send to neighbours.

Every step a rank computes forward and backward with some noise, comes to the all-reduce of all ranks when it is done, leaves it
with the others, and updates. Faults are put where a test wants them, so that a finding can be held against what is known to be
wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.records.sections import Section, Sections

Factor = Callable[[int, int], float]
"""(rank, step) -> a factor or seconds."""


def job(
    ranks: int = 8, steps: int = 40, *, seed: int = 0, noise: float = 0.02, per_host: int = 4, work: float = 0.1,
    slow: Factor = lambda rank, step: 1.0, gap: Factor = lambda rank, step: 0.0, data: Factor = lambda rank, step: 0.0005,
    transfer: Callable[[str, str, int], float] = lambda a, b, step: 0.002, sends: bool = False, hiccups: float = 0.0,
) -> Sections:  # fmt: skip
    """Sections of the job. `noise`: relative spread of a section's seconds; `hiccups`: chance that a rank loses 50 ms in a step.

    `transfer(a, b, step)`: seconds that bytes take between two machines; the all-reduce takes the longest of all pairs in a ring.
    """
    rng = np.random.default_rng(seed)
    hosts = {rank: f"node{rank // per_host}" for rank in range(ranks)}
    names = sorted(set(hosts.values()))
    ring = list(zip(names, [*names[1:], names[0]], strict=True))
    clock = 0.0
    rows: list[dict[str, Any]] = []
    for step in range(steps):
        ready = np.zeros(ranks)
        for rank in range(ranks):
            at = clock
            parts = (
                (Section.DATA, data(rank, step)),
                (Section.FORWARD, work / 3),
                (Section.HOST_GAP, gap(rank, step)),
                (Section.BACKWARD, work * 2 / 3),
            )
            for section, seconds in parts:
                if section in (Section.FORWARD, Section.BACKWARD):
                    seconds *= slow(rank, step) * (1.0 + noise * rng.standard_normal())
                    seconds += 0.05 if rng.random() < hiccups / 2 else 0.0
                if seconds > 0:
                    rows.append(
                        {"rank": rank, "step": step, "section": section, "begin": at, "seconds": seconds, "host_seconds": seconds}
                    )
                    at += seconds
            ready[rank] = at
        done = ready.max() + max((transfer(a, b, step) for a, b in ring if a != b), default=0.001)
        for rank in range(ranks):
            rows.append(_call(rank, step, ready[rank], done - ready[rank], Comm.ALL_REDUCE, group=0, call=step))
        if sends:
            done = _neighbours(rows, step, done, names, per_host, transfer)
        for rank in range(ranks):
            rows.append(
                {"rank": rank, "step": step, "section": Section.OPTIMIZER, "begin": done, "seconds": 0.004, "host_seconds": 0.004}
            )
            rows.append(
                {
                    "rank": rank,
                    "step": step,
                    "section": Section.STEP,
                    "begin": clock,
                    "seconds": done + 0.004 - clock,
                    "host_seconds": done + 0.004 - clock,
                }
            )
        clock = done + 0.004
    columns = {key: [row.get(key, _UNKNOWN[key]) for row in rows] for key in _UNKNOWN}
    return Sections.of(
        **columns, names=("all_reduce", "send"), groups=(tuple(range(ranks)),), group_names=("dp",), hosts=hosts, zero=1.8e9
    )


_UNKNOWN: dict[str, Any] = {
    "rank": -1, "step": -1, "section": 0, "begin": 0.0, "seconds": np.nan, "host_seconds": np.nan, "comm": 0, "bytes": np.nan,
    "group": -1, "call": -1, "peer": -1, "sends": False, "name": -1,
}  # fmt: skip


def _call(rank: int, step: int, begin: float, seconds: float, comm: Comm, **more: Any) -> dict[str, Any]:
    known = {"section": Section.CALL, "bytes": 1e6, "name": 0, "host_seconds": seconds}
    return {"rank": rank, "step": step, "begin": begin, "seconds": seconds, "comm": comm, **known, **more}


def _neighbours(rows: list[dict[str, Any]], step: int, at: float, names: list[str], per_host: int, transfer: Any) -> float:
    """The first rank of each machine sends to that of every other, one after another; the end of it."""
    for a in range(len(names)):
        for b in range(len(names)):
            if a != b:
                seconds = transfer(names[a], names[b], step)
                source, target = a * per_host, b * per_host
                rows.append(_call(source, step, at, seconds, Comm.SEND_RECV, peer=target, sends=True, name=1, call=step))
                rows.append(_call(target, step, at, seconds, Comm.SEND_RECV, peer=source, name=1, call=step))
                at += seconds
    return at
