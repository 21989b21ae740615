"""A step over the flow engine: calls that leave a scale-up domain are fluid flows on the cluster's graph and share its links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.engine import flow
from windtunnel.engine._core import FlowNetwork
from windtunnel.engine.flow import Changes, Demands, Variables
from windtunnel.network.simulate.axis_calls import AxisCall, Machine
from windtunnel.network.simulate.fabric_faults import Stall, capacity_changes, changes_of, stalls_of
from windtunnel.network.simulate.traffic import Traffic, traffic
from windtunnel.predict.engines.traffic import Executions, collision_ratios, demands_of, names_of, plans, sent_by, slowed_calls
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.program.calls import NetworkCall

COLUMNS = ("begin", "size", "weight", "bound", "latency", "delay")
OPEN = 1e30
"""B/s of a timer that does not run."""


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
        on = self.on
        stalls = stalls_of(on.graph, on.faults, on.sprays)
        changes = capacity_changes(on.graph, on.faults, on.sprays)
        capacity, demands, changes, epochs = _with_timers(on.graph.link_rate, self.demands, changes, stalls)
        copies = len(epochs) + 1
        starts = np.arange(len(self.plans) * copies + 1, dtype=np.int64)
        variables = replace(self.variables, **{name: np.tile(getattr(self.variables, name), copies) for name in COLUMNS})
        plans = plan.astype(np.int32)
        return flow.network(capacity, demands, starts, variables, key, plans, changes, epochs=epochs, loads=self.loads)

    def read_executions(self, ran: FlowNetwork) -> Executions:
        """Number of runs and mean seconds of each call."""
        use, plans = flow.report(ran), max(1, len(self.plans))
        starts, totals = use.starts.reshape(-1, plans).sum(axis=0), use.total.reshape(-1, plans).sum(axis=0)
        return [(int(n), float(total) / n if n else 0.0) for n, total in zip(starts.tolist(), totals.tolist(), strict=True)]

    def traffic(self, ran: FlowNetwork, seconds: float, seen: Executions) -> Traffic:
        """The run's traffic on the links."""
        use, links = flow.report(ran).use, self.on.graph.links  # links behind these are timers of cables that flap
        return traffic(
            self.on.placed.graph, self.engine, use.bytes[:links], seconds, use.full[:links], collision_ratios(self.on, self.plans),
            slowest=slowed_calls(self.calls, self.plans, seen), sent=sent_by(self.demands, seen), names=names_of(self.calls),
            loads=use.loads,
        )  # fmt: skip


def _with_timers(
    capacity: Floats, demands: Demands, changes: Changes, stalls: Sequence[Stall]
) -> tuple[Floats, Demands, Changes, Floats]:
    """Links, rows, changes and epochs of a network in which what is on a stall's links waits for its timers.

    Each stall is one more link on the rows that take its links, closed while timers run. What is launched when the cable is ready
    has rows without it: its epoch.
    """
    if not stalls:
        return capacity, demands, changes, np.zeros(0)
    rows = [slice(*pair) for pair in zip(demands.start[:-1].tolist(), demands.start[1:].tolist(), strict=True)]
    on = [(demands.links[row], demands.demand[row]) for row in rows]
    taken = [[float(load[stall.links[links]].sum()) for stall in stalls] for links, load in on]
    epochs = np.unique([stall.ready for stall in stalls if np.isfinite(stall.ready)])
    parts: list[tuple[Int32s, Floats]] = []
    for begin in [-np.inf, *epochs.tolist()]:
        for (links, load), uses in zip(on, taken, strict=True):
            waits = [n for n, stall in enumerate(stalls) if uses[n] > 0.0 and stall.ready > begin]
            extra = np.array([len(capacity) + n for n in waits], np.int32)
            parts.append((np.concatenate([links, extra]), np.concatenate([load, np.array([uses[n] for n in waits])])))
    timed = [(at, len(capacity) + n, rate) for n, s in enumerate(stalls) for at, rate in ((s.down, 0.0), (s.resumed, OPEN))]
    both = [*zip(changes.time.tolist(), changes.link.tolist(), changes.capacity.tolist(), strict=True), *timed]
    return (
        np.concatenate([capacity, np.full(len(stalls), OPEN)]),
        Demands(
            np.cumsum([0, *(len(links) for links, _ in parts)]).astype(np.int64),
            np.concatenate([links for links, _ in parts]).astype(np.int32),
            np.concatenate([load for _, load in parts]),
        ),
        changes_of(both),
        epochs,
    )
