"""A step over a network engine: the calls that run over it, and their measured seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.engine import _core
from windtunnel.network.grids.machine import axes_of
from windtunnel.network.simulate.axis_calls import Machine, machine, with_slow_nics
from windtunnel.network.simulate.traffic import Traffic
from windtunnel.predict.engines.flow import FlowStep
from windtunnel.predict.engines.packet import PacketStep
from windtunnel.predict.engines.traffic import Executions
from windtunnel.predict.price.calls import CallBook, CallKey
from windtunnel.predict.program.calls import NetworkCall, NetworkCalls

Progress = Callable[[float], object]
SlowNics = Sequence[tuple[Int64s, float]]
"""Ranks whose NICs run at this share of their rate."""


class EngineStep(Protocol):
    """The calls of a step, ready to run over an engine. `ran`: a network that `network` built, after its run."""

    def network(
        self, key: Int64s, plan: Int64s, progress: Progress | None = None, launches: Int64s | None = None
    ) -> _core.Network | None: ...
    def read_executions(self, ran: Any) -> Executions: ...
    def traffic(self, ran: Any, seconds: float, seen: Executions) -> Traffic: ...


ENGINES: dict[str, Callable[[Machine, CallBook, list[NetworkCall], bool, bool, int], EngineStep]] = {
    "flow": lambda on, book, calls, skip, loads, threads: FlowStep(on, book, calls, loads),
    "packet": PacketStep,
}
"""The engines among `predict.NETWORKS`."""


@dataclass(frozen=True)
class Fidelity:
    """A network engine under one job; `machine` is its graph; `loads`: links are counted over time; `threads` of packets."""

    name: str
    machine: Machine
    skip: bool = False
    loads: bool = False
    threads: int = 1

    @classmethod
    def of(
        cls, name: str, book: CallBook, seed: int, skip: bool, slow: SlowNics = (), loads: bool = False, threads: int = 1
    ) -> Fidelity:
        """`seed` draws the routes of flows; `slow` NICs are part of the graph."""
        on = machine(book.job.cluster, book.job.cluster.gpus, book.settings, seed, axes=axes_of(book.job))
        for ranks, rate in slow:
            on = with_slow_nics(on, ranks, rate)
        return cls(name, on, skip, loads, threads)

    def step(self, book: CallBook, calls: Iterable[NetworkCall]) -> EngineStep:
        """`calls` over the engine."""
        return ENGINES[self.name](self.machine, book, list(calls), self.skip, self.loads, self.threads)


class EngineRun:
    """The engine's calls of one lowered program."""

    def __init__(self, fidelity: Fidelity, live: NetworkCalls) -> None:
        self.live, self.step = live, fidelity.step(live.book, live.calls)

    def network(self, progress: Progress | None = None) -> _core.Network | None:
        """A network for one run of the program; a slow engine calls `progress` with the share of transfers that have ended."""
        return self.step.network(*self.live.table(), progress, self.live.launches())

    @property
    def follows(self) -> dict[int, int]:
        """Keys of transfers, and the key of the call behind each."""
        return self.live.follows

    def finish(self, ran: _core.Network, seconds: float) -> tuple[Traffic, dict[CallKey, float]]:
        """Traffic on the links in a step of so many seconds, and the mean seconds of each call."""
        seen = self.step.read_executions(ran)
        total: dict[CallKey, tuple[int, float]] = {}
        for call, (times, mean) in zip(self.live.calls, seen, strict=True):
            key = CallKey(call.comm, call.axis, call.size)
            before = total.get(key, (0, 0.0))
            total[key] = before[0] + times, before[1] + times * mean
        means = {key: summed / times for key, (times, summed) in total.items() if times}
        traffic = self.step.traffic(ran, seconds, seen)
        return replace(traffic, formula=tuple(sorted(self.live.formula))), means
