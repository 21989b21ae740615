"""Python interface of the flow engine: weighted max-min fair fluids over links.

A variable moves `size` units along a row of demands: each unit puts `demand` bytes on every link of the row. A plain flow has
demand 1 on the links of its path; a pipelined collective is one variable whose row says how many bytes of it cross each link for a
unit, so its lanes advance together. docs/flow.md says what is solved and how exact it is. SI units: seconds, B, B/s.

Flows by formula on their links: the typed interface of cpp/net/closed/share.h.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import EngineError
from windtunnel.engine import _core
from windtunnel.engine.graph import Graph, Paths
from windtunnel.engine.loads import LinkLoads

TOLERANCE = 1e-9
"""Ends closer than this share of a flow's age are one event: ties up to rounding."""

_NO_FLOATS, _NO_INTS, _NO_LONGS = np.empty(0, np.float64), np.empty(0, np.int32), np.empty(0, np.int64)


@dataclass(frozen=True)
class Demands:
    """R rows: row r puts `demand[i]` bytes a unit on `links[i]`, i in start[r]:start[r+1]. Without `demand`: 1, as for flows."""

    start: Int64s
    links: Int32s
    demand: Floats = field(default_factory=lambda: _NO_FLOATS)

    def __len__(self) -> int:
        return len(self.start) - 1

    @classmethod
    def of_paths(cls, paths: Paths) -> Demands:
        """Plain flows."""
        return cls(paths.start, paths.links)


@dataclass(frozen=True)
class Variables:
    """V variables in columns; a column left out stands for its default.

    Variable v starts at `begin[v]`, or `delay[v]` after the last of the variables `deps[dep_start[v]:dep_start[v+1]]` was delivered
    if that is later.
    """

    begin: Floats
    size: Floats
    row: Int32s = field(default_factory=lambda: _NO_INTS)
    """[V] row of the demands; default: variable v has row v."""
    weight: Floats = field(default_factory=lambda: _NO_FLOATS)
    """[V] default: 1."""
    bound: Floats = field(default_factory=lambda: _NO_FLOATS)
    """[V] largest rate in units/s; default: none."""
    latency: Floats = field(default_factory=lambda: _NO_FLOATS)
    """[V] seconds from the end of the fluid to its delivery; default: 0."""
    delay: Floats = field(default_factory=lambda: _NO_FLOATS)
    """[V] seconds; default: 0."""
    dep_start: Int64s = field(default_factory=lambda: _NO_LONGS)
    deps: Int32s = field(default_factory=lambda: _NO_INTS)

    def __len__(self) -> int:
        return len(self.size)


@dataclass(frozen=True)
class Changes:
    """Links whose capacity changes while flows run, in order of time; 0: flows on the link stop."""

    time: Floats = field(default_factory=lambda: _NO_FLOATS)
    link: Int32s = field(default_factory=lambda: _NO_INTS)
    capacity: Floats = field(default_factory=lambda: _NO_FLOATS)


@dataclass(frozen=True)
class LinkUse:
    """For each link [L]: bytes moved, seconds with any traffic, seconds at 99 % of its capacity or more; `loads`: bytes over
    time."""

    bytes: Floats
    busy: Floats
    full: Floats
    loads: LinkLoads | None = None


@dataclass(frozen=True)
class FlowRun:
    """Times of a run of the flow engine: V variables."""

    start: Floats
    """[V] seconds."""
    delivered: Floats
    """[V] seconds."""
    last: float
    """The latest delivery, seconds."""
    use: LinkUse
    stats: dict[str, float]
    """events: times at which something changed; unknowns: variables that the solver can tell apart; constraints: links that it
    knows; solves, of which incremental and full; abandoned: incremental ones that grew too large and were done in full; fallbacks:
    those whose certificate failed; cpu_s."""


@dataclass(frozen=True)
class PlanUse:
    """Results of a FlowNetwork up to `now`. For each plan [P]: number of launches, seconds from launch to delivery (sum and
    slowest), and seconds without other traffic."""

    use: LinkUse
    starts: Int64s
    total: Floats
    longest: Floats
    alone: Floats
    now: float
    stats: dict[str, float]


_STATS = ("events", "unknowns", "constraints", "solves", "incremental", "full", "abandoned", "fallbacks")


def run(
    capacity: Floats,
    demands: Demands,
    variables: Variables,
    changes: Changes | None = None,
    tolerance: float = TOLERANCE,
    memory: float | None = None,
    progress: Callable[[float], None] | None = None,
    loads: bool = False,
) -> FlowRun:
    """Runs all variables to their ends over links of `capacity` [L] B/s.

    `tolerance`: ends no later than this share of a flow's age join one event, so its bandwidth is released that much later;
    0.01 makes runs with millions of distinct ends possible. `memory`: bytes that it may use (default: the machine's). `loads`:
    count bytes over time, too. `progress` is called about every 50 ms with the share of variables that have ended. Raises
    EngineError for invalid input, for a cycle of dependencies, and for variables that can never finish, naming the link.
    """
    changed = changes or Changes()
    limit = _machine_memory() if memory is None else memory
    try:
        raw = _core.flow_run(
            capacity=_floats(capacity), row_start=_longs(demands.start), row_links=_ints(demands.links),
            demand=_floats(demands.demand),
            row=_ints(variables.row), begin=_floats(variables.begin), size=_floats(variables.size),
            weight=_floats(variables.weight),
            bound=_floats(variables.bound), latency=_floats(variables.latency), delay=_floats(variables.delay),
            dep_start=_longs(variables.dep_start), deps=_ints(variables.deps), change_time=_floats(changed.time),
            change_link=_ints(changed.link), change_capacity=_floats(changed.capacity), tolerance=float(tolerance),
            memory=float(limit), bins=loads, progress=progress,
        )  # fmt: skip
    except _core.CoreError as error:
        raise EngineError(f"flow engine: {error}") from None
    except MemoryError:
        what = f"{len(variables):,} variables over {len(demands.links):,} entries of rows"
        raise EngineError(f"flow engine: no memory for {what}") from None
    delivered = raw["end"] if not len(variables.latency) else raw["end"] + variables.latency
    stats = {name: float(raw[name]) for name in (*_STATS, "cpu_s")}  # type: ignore[literal-required]
    return FlowRun(raw["start"], delivered, raw["last"], _use(raw), stats)


def network(
    capacity: Floats,
    demands: Demands,
    plan_start: Int64s,
    variables: Variables,
    key: Int64s,
    key_plan: Int32s,
    changes: Changes | None = None,
    tolerance: float = TOLERANCE,
    epochs: Floats = _NO_FLOATS,
    loads: bool = False,
) -> _core.FlowNetwork:
    """A network for `engine.run`: each key that a program's transfers name launches the plan `key_plan` of the same place.

    Plan p is the variables plan_start[p]:plan_start[p+1], which start together, each `delay` after the launch, and variable v has
    row v of the demands; a plan ends when all are delivered. Their `begin`, `row` and dependencies are not used. Transfers with
    other keys take the seconds that their participants state. One network serves one run. With n rising `epochs` (s) there are
    n + 1 equal shares of plans, and `key_plan` counts within a share: what is launched after the i-th epoch takes the i + 1-th.
    `loads`: count bytes over time, too. Raises EngineError for invalid input.
    """
    changed = changes or Changes()
    if len(variables.row) or len(variables.deps):
        raise EngineError("flow engine: the variables of plans have a row each and no dependencies")
    try:
        return _core.FlowNetwork(
            capacity=_floats(capacity), row_start=_longs(demands.start), row_links=_ints(demands.links),
            demand=_floats(demands.demand),
            plan_start=_longs(plan_start), size=_floats(variables.size), weight=_floats(variables.weight),
            bound=_floats(variables.bound), latency=_floats(variables.latency), delay=_floats(variables.delay), key=_longs(key),
            key_plan=_ints(key_plan), change_time=_floats(changed.time), change_link=_ints(changed.link),
            change_capacity=_floats(changed.capacity), epochs=_floats(epochs), tolerance=float(tolerance), bins=loads,
        )  # fmt: skip
    except _core.CoreError as error:
        raise EngineError(f"flow engine: {error}") from None


def report(network: _core.FlowNetwork) -> PlanUse:
    """Traffic on the links and times of plans, up to now."""
    raw = network.report()
    stats = {name: float(raw[name]) for name in (*_STATS, "active_constraints")}  # type: ignore[literal-required]
    return PlanUse(_use(raw), raw["starts"], raw["total"], raw["longest"], raw["alone"], raw["now"], stats)


def latency(graph: Graph, paths: Paths, size: Floats, mtu: float, ack: float = 0.0) -> tuple[Floats, Floats]:
    """Seconds [P] from the end of a plain flow's fluid to the delivery of its last byte, and from there to its sender's last ACK.

    Delivery: propagation of every link, and store-and-forward of the last packet (`mtu` bytes, or the whole flow if that is less)
    on every link but the slowest, whose time the fluid counts. The way back: propagation again and `ack` bytes on every link, on
    the same cables. Both are 0 for a flow to itself.
    """
    try:
        return _core.flow_latency(
            row_start=_longs(paths.start), row_links=_ints(paths.links), wait=_floats(graph.link_latency),
            rate=_floats(graph.link_rate), size=_floats(size), mtu=float(mtu), ack=float(ack),
        )  # fmt: skip
    except _core.CoreError as error:
        raise EngineError(f"flow engine: {error}") from None


def _use(raw: _core.RawUse) -> LinkUse:
    return LinkUse(raw["link_bytes"], raw["link_busy"], raw["link_full"], LinkLoads.of_flows(raw))


def _machine_memory() -> float:
    """Bytes of memory of this machine, 0 if unknown."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 0.0


def _floats(column: Floats | Sequence[float]) -> Floats:
    return np.ascontiguousarray(column, np.float64)


def _longs(column: Int64s | Sequence[int]) -> Int64s:
    return np.ascontiguousarray(column, np.int64)


def _ints(column: Int32s | Sequence[int]) -> Int32s:
    return np.ascontiguousarray(column, np.int32)


def closed_flows(graph: Graph, paths: Paths, bytes: npt.ArrayLike, start: npt.ArrayLike) -> Floats:
    """[P] seconds from each flow's `start` until its last byte has passed its links, without packetisation and propagation.

    The longest time over its links, if all flows through a link share it equally from their starts on (processor sharing, one link
    at a time). So no link exceeds its rate, the last flow of a link ends no sooner than possible, and equal flows that start
    together end no sooner than under max-min fairness. Ignored: a flow limited by one link leaves bandwidth to others on its other
    links. Raises EngineError for bad columns.
    """
    sizes, begins = np.ascontiguousarray(bytes, np.float64), np.ascontiguousarray(start, np.float64)
    try:
        return _core.closed_flows(graph=graph.columns(), start=paths.start, links=paths.links, bytes=sizes, begin=begins)
    except _core.CoreError as error:
        raise EngineError(str(error)) from None
