"""Seconds of calls on machines whose accelerators are joined along dimensions: tori, meshes and N-dimensional ones.

A group runs over parts of dimensions (`grids/spans.py`). On a part that is a ring halves go either way round; on a line each link
passes on what comes from behind it; fully connected dimensions send directly, switches in powers of two. A collective over several
parts is cut, and its parts pass them in an order. There are no channels and no protocols.

Rates are those of links: a part of stride s shares its links with the s groups between. XLA has no rooted calls: broadcast and
reduce run as an all-reduce, gather and scatter as an all-gather and a reduce-scatter.

In which order the parts of a collective pass the dimensions of a machine, and when each is there.

A part is reduce-scattered in one dimension after the other and gathered on the way back (`dimensions.py`); a dimension serves one
part at a time. Who comes first is decided once, with links alone and no latencies, and holds for every size. So a call never gets
slower because links get faster, and lanes wait for each other in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.network.closed.dimensions import PHASES, Dimension, Kind, serve_first_come, themis
from windtunnel.network.grids.machine import GridDimension, GridMachine, machine_under
from windtunnel.network.grids.spans import GridGroup, GridSpan
from windtunnel.network.groups.shape import Group
from windtunnel.spec.machine import Cluster
from windtunnel.workload.ops import Comm

INNERMOST_CHUNKS = 8
"""Parts of a call whose parts all pass the dimensions in one order: more hide more, and cost more latency."""


class GridStage(NamedTuple):
    """A part's pass through a span: `place` among its stages, `reduces` or gathers (or exchanges), `size` bytes on each
    accelerator for each byte of the call."""

    chunk: int
    place: int
    span: int
    reduces: bool
    share: float


class Schedule(NamedTuple):
    """Stages in the order in which they are served; `resource` [spans]: the dimension that serves a span."""

    stages: tuple[GridStage, ...]
    resource: tuple[int, ...]

    def before(self) -> list[tuple[int | None, int | None]]:
        """For each stage the one before it of its part, and the one before it in its dimension, by their places."""
        of_chunk: dict[int, int] = {}
        of_resource: dict[int, int] = {}
        found = []
        for at, stage in enumerate(self.stages):
            served = self.resource[stage.span]
            found.append((of_chunk.get(stage.chunk), of_resource.get(served)))
            of_chunk[stage.chunk] = of_resource[served] = at
        return found


@lru_cache(maxsize=1024)
def schedule(comm: Comm, spans: tuple[Dimension, ...], resource: tuple[int, ...], order: str, chunks: int | None) -> Schedule:
    """The stages of a collective over spans, the innermost first. `order`: rotated, innermost or themis."""
    alone = tuple(replace(span, latency=0.0) for span in spans)
    count = len(spans)
    parts = chunks or (count if order == "rotated" or count == 1 else INNERMOST_CHUNKS)
    parts = 1 if count == 1 and chunks is None else parts
    if order == "themis" and comm is not Comm.ALL_TO_ALL:
        load = lambda one: PHASES[Comm.REDUCE_SCATTER](alone, one, 1.0 / parts)  # noqa: E731
        orders = themis(count, parts, load)
    elif order == "rotated":
        orders = [tuple((first + step) % count for step in range(count)) for first in (part % count for part in range(parts))]
    else:
        orders = [tuple(range(count))] * parts
    paths = [_path(comm, spans, one, chunk, 1.0 / parts) for chunk, one in enumerate(orders)]
    return Schedule(tuple(_serve(paths, alone, resource, comm)), resource)


def _path(comm: Comm, spans: Sequence[Dimension], order: Sequence[int], chunk: int, share: float) -> list[GridStage]:
    """The stages of one part."""
    if comm is Comm.ALL_TO_ALL:
        return [GridStage(chunk, place, span, False, share) for place, span in enumerate(order)]
    shares = []
    for span in order:
        shares.append((span, share))
        share /= spans[span].size
    there = [(span, True, each) for span, each in shares] if comm is not Comm.ALL_GATHER else []
    back = [(span, False, each) for span, each in shares[::-1]] if comm is not Comm.REDUCE_SCATTER else []
    return [GridStage(chunk, place, *one) for place, one in enumerate([*there, *back])]


def _serve(
    paths: Sequence[Sequence[GridStage]], spans: Sequence[Dimension], resource: Sequence[int], comm: Comm
) -> list[GridStage]:
    """All stages as dimensions that serve who comes first take them."""
    jobs = [[(resource[stage.span], seconds_of(comm, spans, stage, 1.0)) for stage in path] for path in paths]
    return [paths[chunk][place] for chunk, place, _ in serve_first_come(jobs)]


def seconds_of(comm: Comm, spans: Sequence[Dimension], stage: GridStage, size: float) -> float:
    """Seconds of a stage of a call of `size` bytes."""
    along = spans[stage.span]
    return along.exchange(stage.share * size) if comm is Comm.ALL_TO_ALL else along.scatter(stage.share * size)


def makespan(comm: Comm, spans: Sequence[Dimension], plan: Schedule, size: float) -> tuple[float, float]:
    """(seconds of a call of `size` bytes, those in which the busiest dimension moves bytes)."""
    chunk: dict[int, float] = {}
    free = dict.fromkeys(plan.resource, 0.0)
    busy = dict.fromkeys(plan.resource, 0.0)
    for stage in plan.stages:
        served = plan.resource[stage.span]
        seconds = seconds_of(comm, spans, stage, size)
        done = max(chunk.get(stage.chunk, 0.0), free[served]) + seconds
        chunk[stage.chunk] = free[served] = done
        busy[served] += seconds_of(comm, [replace(span, latency=0.0) for span in spans], stage, size)
    return max(free.values()), max(busy.values())


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
