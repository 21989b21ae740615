"""A step over the flow engine: calls that leave a scale-up domain are fluid flows on the cluster's graph and share its links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.engine import flow
from windtunnel.engine._core import FlowNetwork
from windtunnel.engine.flow import Variables
from windtunnel.network.simulate.axis_calls import AxisCall, Machine
from windtunnel.network.simulate.traffic import Traffic, traffic
from windtunnel.predict.engines.traffic import Executions, collision_ratios, demands_of, names_of, plans, sent_by, slowed_calls
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.program.calls import NetworkCall


class FlowStep:
    """The calls of a step as plans of a flow network."""

    engine = "flow"

    def __init__(self, on: Machine, book: CallBook, calls: Sequence[NetworkCall], loads: bool = False) -> None:
        self.loads = loads
        self._set_up(on, calls, plans(on, book, calls))

    @classmethod
    def of_plans(cls, on: Machine, calls: Sequence[NetworkCall], traffic: Sequence[AxisCall]) -> FlowStep:
        """Calls whose traffic is known already."""
        step = cls.__new__(cls)
        step.loads = False
        step._set_up(on, calls, traffic)
        return step

    def _set_up(self, on: Machine, calls: Sequence[NetworkCall], traffic: Sequence[AxisCall]) -> None:
        self.on, self.calls, self.plans = on, list(calls), list(traffic)
        self.demands = demands_of(on, self.plans)
        self.variables = Variables(
            begin=np.zeros(len(self.plans)),
            size=np.ones(len(self.plans)),
            weight=np.array(
                [1.0 / max(1.0, float(p.lanes.bytes.max())) for p in self.plans]
            ),  # each connection has the same weight
            bound=np.array([1.0 / max(p.seconds - p.latency, 1e-12) for p in self.plans]),
            latency=np.array([max(0.0, p.latency - p.wait) + p.extra for p in self.plans]),
            delay=np.array([p.wait + call.extra for p, call in zip(self.plans, self.calls, strict=True)]),
        )

    def network(self, key: Int64s, plan: Int64s, progress: object = None, launches: Int64s | None = None) -> FlowNetwork:
        """A network for one run of a program in which transfers `key` are runs of the calls `plan`."""
        starts = np.arange(len(self.plans) + 1, dtype=np.int64)
        return flow.network(
            self.on.graph.link_rate, self.demands, starts, self.variables, key, plan.astype(np.int32), loads=self.loads
        )

    def read_executions(self, ran: FlowNetwork) -> Executions:
        """Number of runs and mean seconds of each call."""
        use = flow.report(ran)
        return [(int(n), float(total) / n if n else 0.0) for n, total in zip(use.starts.tolist(), use.total.tolist(), strict=True)]

    def traffic(self, ran: FlowNetwork, seconds: float, seen: Executions) -> Traffic:
        """The run's traffic on the links."""
        use = flow.report(ran).use
        return traffic(
            self.on.placed.graph, self.engine, use.bytes, seconds, use.full, collision_ratios(self.on, self.plans),
            slowest=slowed_calls(self.calls, self.plans, seen), sent=sent_by(self.demands, seen), names=names_of(self.calls),
            loads=use.loads,
        )  # fmt: skip
