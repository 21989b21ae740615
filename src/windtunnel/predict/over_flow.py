"""A step over the flow engine: calls that leave a scale-up domain are fluids on the cluster's graph, and all of them meet there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.engine import flow
from windtunnel.engine._core import FlowNetwork
from windtunnel.engine.flow import Demands, Variables
from windtunnel.engine.graph import Longs
from windtunnel.network.collisions import collisions
from windtunnel.network.members import members
from windtunnel.network.plans import Machine, Plan, demand_of, plan_of
from windtunnel.network.traffic import Traffic, traffic
from windtunnel.predict.costs import Network
from windtunnel.predict.live import Call, name_of


def plans(on: Machine, prices: Network, calls: Sequence[Call]) -> list[Plan]:
    """The traffic of each call."""
    made = []
    for call in calls:
        rows = members(prices.job, call.axis, call.stage)
        made.append(plan_of(on, call.comm, call.size, rows[:, ::-1] if call.back else rows, prices.group(call.axis)))
    return made


class FlowStep:
    """The calls of a step as plans of a flow network."""

    engine = "flow"

    def __init__(self, on: Machine, prices: Network, calls: Sequence[Call]) -> None:
        self.on, self.calls = on, list(calls)
        self.plans = plans(on, prices, self.calls)
        loads = [demand_of(on, plan) for plan in self.plans]
        links = [np.nonzero(load)[0] for load in loads]
        none = np.zeros(0)
        self.demands = Demands(
            np.concatenate([[0], np.cumsum([len(at) for at in links])]).astype(np.int64),
            np.concatenate([none, *links]).astype(np.int32),
            np.concatenate([none, *(load[at] for load, at in zip(loads, links, strict=True))]),
        )
        self.variables = Variables(
            begin=np.zeros(len(self.plans)),
            size=np.ones(len(self.plans)),
            weight=np.array([1.0 / max(1.0, float(p.lanes.bytes.max())) for p in self.plans]),  # each connection counts the same
            bound=np.array([1.0 / max(p.seconds - p.latency, 1e-12) for p in self.plans]),
            latency=np.array([max(0.0, p.latency - p.wait) + p.extra for p in self.plans]),
            delay=np.array([p.wait + call.extra for p, call in zip(self.plans, self.calls, strict=True)]),
        )

    def network(self, key: Longs, plan: Longs) -> FlowNetwork:
        """A network for one run of a program in which transfers `key` are runs of the calls `plan`."""
        starts = np.arange(len(self.plans) + 1, dtype=np.int64)
        return flow.network(self.on.graph.link_rate, self.demands, starts, self.variables, key, plan.astype(np.int32))

    def alone(self) -> list[float]:
        """Seconds of each call with nothing else on the links."""
        none = np.zeros(0, np.int64)
        return flow.report(self.network(none, none)).alone.tolist() if self.plans else []

    def seen(self, ran: FlowNetwork) -> list[tuple[int, float]]:
        """Of each call, how often it ran and its mean seconds."""
        use = flow.report(ran)
        return [(int(n), float(total) / n if n else 0.0) for n, total in zip(use.starts.tolist(), use.total.tolist(), strict=True)]

    def traffic(self, ran: FlowNetwork, seconds: float) -> Traffic:
        """What the run did to the links."""
        use = flow.report(ran).use
        return traffic(self.on.placed.graph, self.engine, use.bytes, seconds, use.full, collided(self.on, self.plans),
                       slowest=slowed(self.calls, self.plans, self.seen(ran)))  # fmt: skip


def slowed(calls: Sequence[Call], plans: Sequence[Plan], seen: Sequence[tuple[int, float]]) -> tuple[dict[str, object], ...]:
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
