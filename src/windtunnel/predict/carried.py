"""What engines have in common: the traffic of a step's calls, and what is told of it afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.network.groups.ranks import members
from windtunnel.network.simulate.axis_calls import AxisCall as Plan
from windtunnel.network.simulate.axis_calls import Machine, plan_of
from windtunnel.network.simulate.collisions import collisions
from windtunnel.predict.costs import Network
from windtunnel.predict.live import Call, name_of
from windtunnel.predict.unequal.ranks import places_of

Seen = Sequence[tuple[int, float]]
"""Of each call, how often it ran and its mean seconds."""


def plans(on: Machine, prices: Network, calls: Sequence[Call]) -> list[Plan]:
    """The traffic of each call."""
    made = []
    for call in calls:
        rows = members(prices.job, call.axis, call.stage)
        if call.only is not None:
            rows = rows[np.isin(places_of(prices.job).replica[rows], call.only).all(axis=1)]
        made.append(plan_of(on, call.comm, call.size, rows[:, ::-1] if call.back else rows, prices.group(call.axis)))
    return made


def slowed(calls: Sequence[Call], plans: Sequence[Plan], seen: Seen) -> tuple[dict[str, object], ...]:
    """Calls that took longest over what the closed form has for them alone, the worst first."""
    rows = [
        (mean / max(plan.seconds + call.extra, 1e-12), name_of(call), times, mean)
        for call, plan, (times, mean) in zip(calls, plans, seen, strict=True) if times
    ]  # fmt: skip
    rows.sort(key=lambda row: (-row[0], row[1]))
    return tuple({"name": name, "count": times, "seconds": mean, "slowdown": ratio} for ratio, name, times, mean in rows[:12])


def collided(on: Machine, plans: Sequence[Plan]) -> dict[str, float]:
    """Hash collisions of the call that has most of them: load over an even spread, of the worst link and of the mean byte."""
    if on.sprays or on.flows > 1:
        return {}
    most = (1.0, 1.0)
    for size in sorted({float(p.lanes.bytes.sum()) for p in plans})[-8:]:
        plan = next(p for p in plans if float(p.lanes.bytes.sum()) == size)
        found = collisions(on.graph, plan.paths, plan.lanes.src, plan.lanes.dst, plan.lanes.bytes, plan.options)
        most = max(most, (found.worst_factor, found.mean_factor))
    return {"worst": most[0], "mean": most[1]}
