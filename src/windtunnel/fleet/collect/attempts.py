"""Which rows of a run count where a rank has several rings: a job that was started again repeats steps, and another run of the same
folder has steps of the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.fleet.collect.registry import Rings, RingState


def newest_rings(rings: Rings) -> dict[int, RingState]:
    """Rank → its newest ring, of the newest run of the folder and of its ranks only; after a restart of the job, the one that was
    introduced last."""
    if not rings.by_number:
        return {}
    last = rings.by_number[-1].identity
    return {one.identity.rank: one for one in rings.by_number if one.identity.run == last.run and one.identity.rank < last.world}


def earlier_runs(rings: Rings) -> list[str]:
    """Names of other runs in the folder, in order of their start."""
    newest = rings.by_number[-1].identity.run if rings.by_number else ""
    return [name for name in dict.fromkeys(one.identity.run for one in rings.by_number) if name != newest]


def keep_newest_attempts(rows: dict[str, Any], rings: Rings) -> dict[str, Any]:
    """Rows of the newest run; of a rank that was started again, those before the first step of its newest start, and those since.

    `rows`: columns of one length, with `ring`, `rank` and `step`.
    """
    if len({(one.identity.run, one.identity.world) for one in rings.by_number}) <= 1 and _one_ring_a_rank(rings):
        return rows
    last = rings.by_number[-1].identity
    own = np.array([one.identity.run == last.run and one.identity.rank < last.world for one in rings.by_number], bool)
    keep = own[rows["ring"]]
    starts: dict[int, int] = {}  # rank → first step of the attempts looked at so far, from the newest
    for ring in reversed(rings.by_number):
        if own[ring.number]:
            mine = rows["ring"] == ring.number
            rank = ring.identity.rank
            keep &= ~mine | (rows["step"] < starts.get(rank, 1 << 62))
            if mine.any():
                starts[rank] = min(starts.get(rank, 1 << 62), int(rows["step"][mine].min()))
    return {name: column[keep] for name, column in rows.items()}


def _one_ring_a_rank(rings: Rings) -> bool:
    return len({one.identity.rank for one in rings.by_number}) == len(rings.by_number)
