"""Network fidelities of a step: what prices a call, and what transfers run over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from windtunnel.base.arrays import Int64s as Longs
from windtunnel.engine import _core
from windtunnel.network.simulate.axis_calls import Machine, machine, with_slow_nics
from windtunnel.network.simulate.traffic import Traffic
from windtunnel.predict.carried import Seen
from windtunnel.predict.costs import Costs, Network
from windtunnel.predict.live import Call, Live
from windtunnel.predict.lower import Lowered, lower
from windtunnel.predict.over_flow import FlowStep
from windtunnel.predict.over_packet import PacketStep
from windtunnel.workload import Axis, Comm, Kind, Workload

Progress = Callable[[float], object]
SlowNics = Sequence[tuple[Longs, float]]
"""Ranks whose NICs run at this share of their rate."""
Priced = Mapping[tuple[Comm, Axis, float], float]


class Step(Protocol):
    """The calls of a step, ready to run over an engine. `ran` is a network that `network` made, after the run that it was for."""

    def network(self, key: Longs, plan: Longs, progress: Progress | None = None) -> _core.Network | None: ...
    def alone(self) -> list[float]: ...
    def seen(self, ran: Any) -> Seen: ...
    def traffic(self, ran: Any, seconds: float, seen: Seen) -> Traffic: ...


ENGINES: dict[str, Callable[[Machine, Network, list[Call], bool], Step]] = {
    "flow": lambda on, prices, calls, skip: FlowStep(on, prices, calls),
    "packet": PacketStep,
}
"""The engines of `live.NETWORKS`. They are imported when asked for: a closed form needs none of their rooms."""


class Fidelity:
    """A network engine under one job."""

    def __init__(self, network: str, prices: Network, seed: int = 1, skip: bool = False, slow: SlowNics = ()) -> None:
        self.network_name, self.prices, self.skip = network, prices, skip
        self.on = machine(prices.job.cluster, prices.job.cluster.gpus, prices.settings, seed)
        for ranks, rate in slow:
            self.on = with_slow_nics(self.on, ranks, rate)

    def step(self, calls: list[Call]) -> Step:
        """`calls` over the engine."""
        return ENGINES[self.network_name](self.on, self.prices, calls, self.skip)

    def reprice(self, workload: Workload, costs: Costs) -> Costs:
        """Costs in which calls inside layers that leave a scale-up domain take what the engine says, all groups of the job at once.

        These calls are rows of the workload and do not meet others on the links.
        """
        ops, live = workload.ops, Live(self.prices)
        rows: dict[tuple[Comm, Axis, float], list[int]] = {}
        for row in np.nonzero(ops.kind == Kind.COMM)[0].tolist():
            if live.crosses(Axis(int(ops.axis[row]))):
                rows.setdefault((Comm(int(ops.comm[row])), Axis(int(ops.axis[row])), float(ops.bytes[row])), []).append(row)
        if not rows:
            return costs
        alone = self.step([Call(comm, axis, size, None) for comm, axis, size in rows]).alone()
        seconds = costs.seconds.copy()
        for at, value in zip(rows.values(), alone, strict=True):
            seconds[at] = value
        observe(self.prices, dict(zip(rows, alone, strict=True)))
        return replace(costs, seconds=seconds)


def observe(prices: Network, seconds: Priced) -> None:
    """What calls took over an engine replaces their closed form's seconds in reports."""
    for key, value in seconds.items():
        price = prices.prices[key]
        scale = price.seconds / value if value > 0.0 else 1.0
        prices.prices[key] = replace(price, seconds=value, bus_bandwidth=price.bus_bandwidth * scale)


class Run:
    """The engine's calls of one lowered program."""

    def __init__(self, fidelity: Fidelity, live: Live) -> None:
        self.live, self.prices = live, fidelity.prices
        self.step = fidelity.step(list(live.calls))

    def network(self, progress: Progress | None = None) -> _core.Network | None:
        """A network for one run of the program; `progress` is told the share of its transfers that is over, where that is slow."""
        return self.step.network(*self.live.table(), progress)

    def finish(self, ran: _core.Network, seconds: float) -> Traffic:
        """What the links carried; reports then have the mean seconds that the engine found for each call."""
        seen = self.step.seen(ran)
        total: dict[tuple[Comm, Axis, float], tuple[int, float]] = {}
        for call, (times, mean) in zip(self.live.calls, seen, strict=True):
            before = total.get((call.comm, call.axis, call.size), (0, 0.0))
            total[call.comm, call.axis, call.size] = before[0] + times, before[1] + times * mean
        observe(self.prices, {key: whole / times for key, (times, whole) in total.items() if times})
        return self.step.traffic(ran, seconds, seen)


def over_engine(
    network: str,
    workload: Workload,
    costs: Costs,
    seed: int,
    skip: bool,
    slow: SlowNics = (),
    lower: Callable[[Workload, Costs, Live], Lowered] = lower,
) -> tuple[Costs, Lowered, Run]:
    """Costs, program and calls of a step whose transfers run over an engine; `slow` NICs stand in its graph."""
    fidelity = Fidelity(network, costs.network, seed, skip, slow)
    priced, live = fidelity.reprice(workload, costs), Live(costs.network)
    lowered = lower(workload, priced, live)
    return priced, lowered, Run(fidelity, live)
