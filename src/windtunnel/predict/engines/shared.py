"""Several jobs on one fabric: the calls of all their steps over one engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.engine import _core
from windtunnel.network.simulate.axis_calls import AxisCall, Machine, demand_of, machine
from windtunnel.network.simulate.tenants import Tenancy
from windtunnel.network.simulate.traffic import Traffic
from windtunnel.predict.engines.fidelity import EngineStep
from windtunnel.predict.engines.flow import FlowStep
from windtunnel.predict.engines.packet import PacketStep
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.program.calls import NetworkCall

OF_PLANS: dict[str, Callable[[Machine, Sequence[NetworkCall], Sequence[AxisCall], bool, int], EngineStep]] = {
    "flow": lambda on, calls, plans, skip, threads: FlowStep.of_plans(on, calls, plans),
    "packet": PacketStep.of_plans,
}


@dataclass(frozen=True)
class CallSet:
    """One traffic on the machine: the calls of a job's step, or plain flows, with their plans. `name`: in reports."""

    name: str
    calls: Sequence[NetworkCall]
    plans: Sequence[AxisCall]

    def bytes_on_links(self, on: Machine, launches: Int64s) -> Floats:
        """[L] bytes that so many launches of each call put on each link."""
        moved = np.zeros(on.graph.links)
        for plan, number in zip(self.plans, launches.tolist(), strict=True):
            if number:
                moved += number * demand_of(on, plan)
        return moved


def machines_of(books: Sequence[CallBook], tenancy: Tenancy, seed: int) -> list[Machine]:
    """One fabric under several jobs, as each of them sees it: the same graph, with its own ranks and settings."""
    first = books[0]
    base = machine(first.job.cluster, first.job.cluster.gpus, first.settings, seed, tenancy)
    return [
        replace(base, cluster=book.job.cluster, placed=replace(base.placed, endpoint=gpus), settings=book.settings)
        for book, gpus in zip(books, tenancy.gpus, strict=True)
    ]


@dataclass(frozen=True)
class SharedEngine:
    """All traffics on one machine, ready to run together."""

    name: str
    on: Machine
    parts: Sequence[CallSet]
    skip: bool = False
    threads: int = 1

    def step(self) -> EngineStep:
        """The calls of all parts, one part after the other, over the engine."""
        calls = [call._replace(of=part.name) for part in self.parts for call in part.calls]
        return OF_PLANS[self.name](self.on, calls, [plan for part in self.parts for plan in part.plans], self.skip, self.threads)


def read_traffic(step: EngineStep, ran: _core.Network, seconds: float) -> Traffic:
    """Traffic of a run of so many seconds."""
    return step.traffic(ran, seconds, step.read_executions(ran))
