"""Seconds of calls on machines whose accelerators are joined along dimensions: tori, meshes and N-dimensional ones.

A group runs over parts of dimensions (`grids/spans.py`). On a part that is a ring halves go either way round; on a line each link
passes on what comes from behind it; fully connected dimensions send directly, switches in powers of two. A collective over several
parts is cut, and its parts pass them in an order (`grid_schedule.py`). There are no channels and no protocols.

Rates are those of links: a part of stride s shares its links with the s groups between. XLA has no rooted calls: broadcast and
reduce run as an all-reduce, gather and scatter as an all-gather and a reduce-scatter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from windtunnel.network.closed.dimensions import Dimension, Kind
from windtunnel.network.closed.grid_schedule import Schedule, makespan, schedule
from windtunnel.network.grids.machine import GridDimension, GridMachine, machine_under
from windtunnel.network.grids.spans import GridGroup, GridSpan
from windtunnel.network.groups.shape import Group
from windtunnel.spec.machine import Cluster
from windtunnel.workload.ops import Comm

GRID_ERROR = 0.25
"""Relative error of a call on links whose rate and hop are published and whose calls were not measured: assumed."""
RUNS_AS = {
    Comm.BROADCAST: Comm.ALL_REDUCE,
    Comm.REDUCE: Comm.ALL_REDUCE,
    Comm.GATHER: Comm.ALL_GATHER,
    Comm.SCATTER: Comm.REDUCE_SCATTER,
}
"""Calls that run as others."""
MESSAGES = {Comm.ALL_REDUCE: (2, 0.5), Comm.ALL_GATHER: (1, 0.5), Comm.REDUCE_SCATTER: (1, 0.5), Comm.ALL_TO_ALL: (1, 0.5)}
"""(rounds, share of the call's bytes in each) of collectives between two ranks, which send to each other."""
_KINDS: dict[str, Kind] = {"ring": "both_ways", "line": "line", "fully_connected": "fully_connected", "switch": "switch"}
_LINKS = {"ring": 2, "line": 1, "switch": 1}
_NAMES = {"ring": "ring", "line": "line", "fully_connected": "direct", "switch": "halving"}


@dataclass(frozen=True)
class GridCall:
    """A call of a group on a machine: its spans as dimensions of the group's own links, and their order."""

    comm: Comm
    machine: GridMachine
    grid: GridGroup
    dimensions: tuple[Dimension, ...]
    schedule: Schedule
    """Empty for messages."""

    def cost(self, size: float) -> tuple[float, float]:
        """(seconds of a call of `size` bytes, the part of them that moves no bytes)."""
        launch = self.machine.builder.launch
        if not self.schedule.stages:
            rounds, share = MESSAGES.get(self.comm, (1, 1.0))
            latency = launch + rounds * self.hop
            return latency + rounds * share * size / self.rate, latency
        seconds, busy = makespan(self.comm, self.dimensions, self.schedule, size)
        return launch + seconds, launch + seconds - busy

    @property
    def hop(self) -> float:
        """Seconds of the links of the farthest message."""
        return sum(n * along.latency for n, along in zip(self.grid.hops, self.machine.dimensions, strict=True))

    @property
    def rate(self) -> float:
        """B/s of a message: that of the busiest link that it may pass, shared with the others there."""
        pairs = zip(self.grid.hops, self.grid.load, self.machine.dimensions, strict=True)
        return min(along.rate / load for _, load, along in pairs if load)

    @property
    def algorithm(self) -> str:
        """A name for people."""
        if not self.schedule.stages:
            return "permute" if self.comm is Comm.SEND_RECV else "exchange"
        if self.order == "themis" and len(self.grid.spans) > 1 and self.comm is not Comm.ALL_TO_ALL:
            return "themis"
        kinds = {span.kind for span in self.grid.spans}
        if len(self.grid.spans) == 1:
            return _NAMES[kinds.pop()]
        return "torus" if kinds <= {"ring", "line"} else "hierarchical"

    @property
    def order(self) -> str:
        """Order of the dimensions: as the runtime says, or as the machine is used without it."""
        return order_of(self.machine, self.grid)


def order_of(machine: GridMachine, grid: GridGroup) -> str:
    """Order of the dimensions: the runtime's; without one, parts that begin with different dimensions, or on ndim all alike."""
    return grid.order or ("innermost" if machine.builder.NAME == "ndim" else "rotated")


def grid_call(cluster: Cluster, comm: Comm, group: Group) -> GridCall:
    """The call of a group, kept."""
    return _call(machine_under(cluster, group.gpus_per_node), RUNS_AS.get(comm, comm), group.grid or GridGroup(()))


@lru_cache(maxsize=4096)
def _call(machine: GridMachine, comm: Comm, grid: GridGroup) -> GridCall:
    spans = tuple(dimension_of(machine.dimensions[span.dimension], span) for span in grid.spans)
    plan = Schedule((), ())
    if not grid.messages and comm is not Comm.SEND_RECV:
        plan = schedule(comm, spans, tuple(span.dimension for span in grid.spans), order_of(machine, grid), grid.chunks)
    return GridCall(comm, machine, grid, spans, plan)


def dimension_of(along: GridDimension, span: GridSpan) -> Dimension:
    """A span as a dimension of the links that its group has to itself."""
    links = _LINKS.get(span.kind, span.size - 1)
    hop = along.latency * (2 if span.kind == "switch" else span.stride if span.kind in ("ring", "line") else 1)
    return Dimension(_KINDS[span.kind], span.size, along.rate * links / span.shared, hop)


def describe_spans(machine: GridMachine, grid: GridGroup, comm: Comm) -> str:
    """Dimensions and sizes for people, such as `x4 y2of8/2`: all 4 along x, and 2 of the 8 along y, every second one; of messages
    the farthest one's links, such as `x+1 y+2`."""
    if grid.messages or comm is Comm.SEND_RECV:
        return " ".join(f"{along.name}+{n}" for along, n in zip(machine.dimensions, grid.hops, strict=True) if n) or "-"
    words = []
    for span in grid.spans:
        part = f"of{span.whole}" if span.size != span.whole else ""
        every = f"/{span.stride}" if span.stride > 1 else ""
        words.append(f"{machine.dimensions[span.dimension].name}{span.size}{part}{every}")
    return " ".join(words)


def greatest_grid_rate(cluster: Cluster, comm: Comm, group: Group, size: float) -> float:
    """B/s of the fastest call of at most `size` bytes: calls gain with their size."""
    return size / grid_call(cluster, comm, group).cost(size)[0]


__all__ = ["GRID_ERROR", "GridCall", "describe_spans", "dimension_of", "greatest_grid_rate", "grid_call"]
