"""A step over the flow engine: every call that leaves a scale-up domain is a fluid on the cluster's graph, and all of them meet there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.engine import flow
from windtunnel.engine.flow import Demands, Variables
from windtunnel.network.collisions import collisions
from windtunnel.network.members import members
from windtunnel.network.plans import Machine, Plan, demand_of, plan_of
from windtunnel.network.traffic import Traffic, traffic
from windtunnel.predict.costs import Network
from windtunnel.predict.live import Call, Live, name_of


def plans(on: Machine, prices: Network, calls: Sequence[Call]) -> list[Plan]:
    """The traffic of each call."""
    made = []
    for call in calls:
        rows = members(prices.job, call.axis, call.stage)
        made.append(plan_of(on, call.comm, call.size, rows[:, ::-1] if call.back else rows, prices.group(call.axis)))
    return made


class FlowStep:
    """The calls of a step as plans of a flow network."""

    def __init__(self, on: Machine, prices: Network, live: Live) -> None:
        self.on, self.live = on, live
        self.calls = list(live.calls)
        self.plans = plans(on, prices, self.calls)
        loads = [demand_of(on, plan) for plan in self.plans]
        links = [np.nonzero(load)[0] for load in loads]
        start = np.concatenate([[0], np.cumsum([len(at) for at in links])]).astype(np.int64)
        none = np.zeros(0)
        self.demands = Demands(
            start, np.concatenate([none, *links]).astype(np.int32), np.concatenate([none, *(d[at] for d, at in zip(loads, links, strict=True))])
        )
        moving = np.array([max(p.seconds - p.latency, 1e-12) for p in self.plans])
        self.variables = Variables(
            begin=np.zeros(len(self.plans)),
            size=np.ones(len(self.plans)),
            weight=np.array([1.0 / max(1.0, float(p.lanes.bytes.max())) for p in self.plans]),  # so that each connection counts the same
            bound=1.0 / moving,
            latency=np.array([p.latency - p.wait + p.extra for p in self.plans]),
            delay=np.array([p.wait + call.extra for p, call in zip(self.plans, self.calls, strict=True)]),
        )

    def network(self) -> flow._core.FlowNetwork:
        """A network for one run of the step's program."""
        key, plan = self.live.table()
        starts = np.arange(len(self.plans) + 1, dtype=np.int64)
        return flow.network(self.on.graph.link_rate, self.demands, starts, self.variables, key, plan.astype(np.int32))

    def traffic(self, ran: flow._core.FlowNetwork, seconds: float) -> Traffic:
        """What the run did to the links."""
        use = flow.report(ran)
        slow = [
            {"name": name_of(call), "count": int(n), "seconds": total / n, "slowdown": total / n / max(plan.seconds + call.extra, 1e-12)}
            for call, plan, n, total in zip(self.calls, self.plans, use.starts.tolist(), use.total.tolist(), strict=True) if n
        ]  # fmt: skip
        slow.sort(key=lambda row: (-float(str(row["slowdown"])), str(row["name"])))
        return traffic(self.on.graph, "flow", use.use.bytes, seconds, use.use.full, self._collisions(), slowest=tuple(slow[:12]))

    def _collisions(self) -> dict[str, float]:
        """Hash collisions of the largest plan's connections, over an even spread."""
        if self.on.sprays or not self.plans:
            return {}
        largest = max(self.plans, key=lambda p: float(p.lanes.bytes.sum()))
        found = collisions(self.on.graph, largest.paths, largest.lanes.src, largest.lanes.dst, largest.lanes.bytes, largest.options)
        return {"worst": found.worst_factor, "mean": found.mean_factor}
