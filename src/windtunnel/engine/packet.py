"""Python interface of the packet engine: lanes over links, packet by packet.

    result = run_packets(graph, route(graph, src, dst), plain_lanes(src, dst, bytes), PacketOptions(algorithm="dcqcn", ecn=(...,)))
    result.fct                      # seconds from a lane's begin until its sender has the last ACK
    result.stats["ecn_marks"]

Time is in integer picoseconds inside; results are bit-identical for any number of threads. docs/packet.md describes the model.

Congestion controls of the packet engine and their parameters. The core's registry is the only list of them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import EngineError
from windtunnel.engine import _core
from windtunnel.engine.graph import Graph, Paths
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.loads import LinkLoads, Sent
from windtunnel.engine.routes import RouteOptions, route

Progress = Callable[[float], bool | None]

_SECONDS_AND_BYTES = (
    "buffer", "buffer_time", "inner_buffer", "alpha", "reserve", "resume", "xoff", "xon", "credit", "nack_interval", "flowlet_gap",
    "sample",
)  # fmt: skip


class Loss(IntEnum):
    """Behaviour of a full switch: it pauses its upstream (PFC), drops, or never gets more than it granted (InfiniBand credits)."""

    PAUSE = 0
    DROP = 1
    CREDITS = 2


class LossRecovery(IntEnum):
    """Packets that a receiver keeps: only those in order, or all (then only holes are sent again)."""

    GO_BACK_N = 0
    SELECTIVE = 1


class Spread(IntEnum):
    """Routing of packets: all on the lane's path; or at each switch in turn, by hash, to the shortest queue, or by flowlets."""

    PATH = 0
    ROUND = 1
    RANDOM = 2
    ADAPTIVE = 3
    FLOWLET = 4


class Marking(NamedTuple):
    """ECN of ports near `rate`, by the bytes behind the packet as its service begins."""

    rate: float
    """B/s; thresholds are scaled with a port's rate. 0: any port, with the thresholds as they are."""
    kmin: float
    """Bytes up to which no packet is marked."""
    kmax: float
    """Bytes at which the probability of a mark is `pmax`; above, it is 1."""
    pmax: float
    """Probability of a mark at `kmax`; it rises from 0 at `kmin`."""


class Flap(NamedTuple):
    """A cable, named by either of its links, goes down or comes up at `time` (s)."""

    time: float
    link: int
    up: bool


class Detour(NamedTuple):
    """From `time` (s) on a lane takes row `path` of the paths."""

    time: float
    lane: int
    path: int


@dataclass(frozen=True)
class Faults:
    """Faults. `loss`, `bit_error` [L]: probability that a link loses a packet, or corrupts a bit; None: never."""

    flaps: Sequence[Flap] = ()
    detours: Sequence[Detour] = ()
    loss: npt.NDArray[np.float64] | None = None
    bit_error: npt.NDArray[np.float64] | None = None


@dataclass(frozen=True)
class PacketOptions:
    """Options of a packet run in SI units: s, B, B/s. Defaults are a lossless RoCE fabric without congestion control;
    docs/packet.md has the equations."""

    mtu: int = 4096
    """Payload of a full data packet."""
    header: int = 0
    """Bytes added to each data packet on the wire."""
    control: int = 64
    """Size of ACK, CNP, pause and credit frames."""
    loss: Loss = Loss.PAUSE
    buffer: float = 32e6
    """Buffer of a switch, shared by its ports."""
    buffer_time: float = 0.0
    """If the ports of a switch fill `buffer` in less than this time, the switch has as much as they fill in it."""
    inner_buffer: float = 4e6
    """Buffer of other nodes that forward."""
    alpha: float = 0.125
    """Factor of the dynamic threshold: of an ingress with PAUSE, of an egress with DROP."""
    reserve: float = 4096
    resume: float = 3000
    headroom: float | None = None
    """None: what the cable and the packets under way need."""
    xoff: float = 0.0
    """Above 0: fixed thresholds of an ingress in place of the dynamic one."""
    xon: float = 0.0
    credit: float = 0.0
    """0: twice a round trip on the cable."""
    ecn: Sequence[Marking] = ()
    algorithm: str = "none"
    """Congestion control; see `engine.packet`."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Its parameters; see `engine.packet`."""
    recovery: LossRecovery = LossRecovery.GO_BACK_N
    ack_every: int = 1
    nack_interval: float = 500e-6
    reorder: int = 0
    timeouts: Sequence[float] = (4e-3, 4e-3, 16e-3, 67e-3)
    """Consecutive retransmission timeouts; the last one repeats."""
    retries: int = 20
    """The run fails after so many timeouts without progress."""
    spread: Spread = Spread.PATH
    flowlet_gap: float = 100e-6
    seed: int = 1
    threads: int = 1
    skip: bool = False
    """Whether steady states of collectives are fast-forwarded, on one thread."""
    sample: float = 0.0
    """Above 0: interval of the series of `sample_links` and `sample_lanes`."""
    sample_links: Sequence[int] = ()
    sample_lanes: Sequence[int] = ()
    loads: bool = False
    """Count what links carry over time, and for whom."""
    tags: Sequence[int] = ()
    """[K] whom each lane is for; left out: each for itself. Those of a network's lanes are its plans."""

    def columns(self) -> dict[str, Any]:
        """As the core takes them."""
        out = {name: getattr(self, name) for name in self.__dataclass_fields__}
        out["headroom"] = -1.0 if self.headroom is None else float(self.headroom)
        for name, value in out.items():
            if isinstance(value, IntEnum):
                out[name] = int(value)
        for name in _SECONDS_AND_BYTES:
            out[name] = float(out[name])
        out["ecn"] = [tuple(float(x) for x in row) for row in self.ecn]
        out["parameters"] = [(name, float(value)) for name, value in self.parameters.items()]
        out["timeouts"] = [float(t) for t in self.timeouts]
        out["sample_links"], out["sample_lanes"] = [int(i) for i in self.sample_links], [int(i) for i in self.sample_lanes]
        out["tags"] = [int(i) for i in self.tags]
        return out


@dataclass(frozen=True)
class PacketSeries:
    """T samples. Of links [n, T]: bytes waiting, data bytes sent and pauses heard so far; of lanes [n, T]: B/s permitted, bytes
    acknowledged and CNPs heard so far."""

    time: Floats
    links: tuple[int, ...]
    lanes: tuple[int, ...]
    queue: npt.NDArray[np.int64]
    sent: npt.NDArray[np.int64]
    pauses: npt.NDArray[np.int64]
    rate: npt.NDArray[np.float64]
    acknowledged: npt.NDArray[np.int64]
    cnps: npt.NDArray[np.int64]


@dataclass(frozen=True)
class PacketResult:
    """The result of a packet run: K lanes, L links.

    With `skip`, counts and control frames are those that were simulated; `link_data` includes skipped bytes.
    """

    delivered: Floats
    """[K] seconds from the start of the run to the arrival of the last byte."""
    acked: Floats
    """[K] seconds from the start of the run to the arrival of the last ACK at the sender."""
    fct: Floats
    """[K] `acked` less the lane's begin."""
    stats: dict[str, float]
    """Counts, `events`, and `cpu_s` of the run."""
    link_data: Int64s
    """[L] bytes of data."""
    link_control: Int64s
    """[L] bytes of control frames."""
    link_peak: Int64s
    """[L] maximum of queued data bytes."""
    link_paused: Floats
    """[L] seconds in which the sender was paused or without credit."""
    end: float
    """Time of the last event, seconds."""
    partitions: int
    stopped: bool
    """Whether `progress` stopped the run; times of lanes that had not ended are NaN."""
    skipped_share: float
    """Share of the bytes that were skipped."""
    skipped_time: float
    """Seconds that were skipped."""
    skip_error: float
    """Estimated error of `end` in seconds."""
    series: PacketSeries
    loads: LinkLoads | None = None
    """Data and control frames over time, if they are counted."""
    sent: Sent | None = None
    """Whose they are."""


class SmallBuffer(EngineError):
    """A `node` whose `buffer` (bytes) is smaller than what its ports keep by themselves; it lacks `lacks` bytes."""

    def __init__(self, message: str, node: int, buffer: int, lacks: int) -> None:
        super().__init__(message)
        self.node, self.buffer, self.lacks = node, buffer, lacks


def _read_core_error(message: str) -> EngineError:
    """The error of a message of the core."""
    found = re.search(r"the buffer of node (\d+) \((\d+) B\).* lacks (\d+) B", message)
    return EngineError(message) if found is None else SmallBuffer(message, *map(int, found.groups()))


def plain_lanes(
    src: npt.ArrayLike,
    dst: npt.ArrayLike,
    bytes: npt.ArrayLike,
    begin: npt.ArrayLike | None = None,
    rate: npt.ArrayLike | None = None,
) -> Lanes:
    """Plain flows [F] as lanes of one slice without dependencies. Zero bytes are one empty packet of the size of a control
    frame; a flow to its own endpoint takes no time."""
    sources = np.ascontiguousarray(src, np.int32)
    n = len(sources)
    size = np.ascontiguousarray(bytes, np.int64)
    return Lanes(
        src=sources, dst=np.ascontiguousarray(dst, np.int32), bytes=size, slice=np.maximum(size, 1), window=np.zeros(n, np.int32),
        delay=np.zeros(n), rate=np.full(n, np.inf) if rate is None else np.ascontiguousarray(rate, np.float64),
        begin=np.zeros(n) if begin is None else np.ascontiguousarray(begin, np.float64), group=np.arange(n, dtype=np.int32),
        dep_start=np.zeros(n + 1, np.int64), dep_lane=np.empty(0, np.int32), dep_lead=np.empty(0, np.int64),
    )  # fmt: skip


def run_packets(
    graph: Graph,
    paths: Paths,
    lanes: Lanes,
    options: PacketOptions | None = None,
    faults: Faults | None = None,
    rows: npt.ArrayLike | None = None,
    progress: Progress | None = None,
) -> PacketResult:
    """Runs all lanes to their end. Lane k takes row `rows[k]` of the paths (row k by default).

    `progress` is called now and then with the share of bytes delivered; the run stops if it returns True. Raises EngineError
    for invalid input, for lanes that wait for each other, for a deadlock of full buffers (naming its nodes) and for a lane
    that exhausts its retries.
    """
    chosen = options or PacketOptions()
    try:
        raw = _core.packet_run(graph.columns(), _columns(paths, lanes, rows), chosen.columns(), _faults(faults), progress)
    except (_core.CoreError, TypeError) as error:
        raise _read_core_error(str(error)) from None
    names = ("queue", "sent", "pauses", "rate", "acknowledged", "cnps")
    series = PacketSeries(
        raw["sample_time"], tuple(chosen.sample_links), tuple(chosen.sample_lanes), *(raw[name] for name in names)
    )  # fmt: skip
    return PacketResult(
        delivered=raw["delivered"], acked=raw["acked"], fct=raw["acked"] - lanes.begin, stats=raw["stats"],
        link_data=raw["link_data"], link_control=raw["link_control"], link_peak=raw["link_peak"], link_paused=raw["link_paused"],
        end=raw["end"], partitions=raw["partitions"], stopped=raw["stopped"], skipped_share=raw["skipped_share"],
        skipped_time=raw["skipped_time"], skip_error=raw["skip_error"], series=series,
        loads=LinkLoads.of_packets(raw), sent=Sent.of_packets(raw),
    )  # fmt: skip


def packet_network(
    graph: Graph,
    paths: Paths,
    plans: Lanes,
    plan_start: npt.ArrayLike,
    key: npt.ArrayLike,
    key_plan: npt.ArrayLike,
    options: PacketOptions | None = None,
    faults: Faults | None = None,
    rows: npt.ArrayLike | None = None,
    skip: float | None = None,
    progress: Callable[[float], object] | None = None,
) -> _core.PacketNetwork | _core.ReplayNetwork:
    """A network for one `engine.run`. Plan p is the lanes `plan_start[p]:plan_start[p+1]` of `plans`, whose dependencies count from
    the plan's first lane and whose `begin` is after the launch. A transfer named `key[i]` launches plan `key_plan[i]`, as often as
    it is met; other keys take the seconds they state. `report()` afterwards: stats and links as in PacketResult, and of
    each plan how often it was launched and the seconds it took (sum `total`, most `longest`). Raises EngineError.

    `skip`: patterns of transfers that have been simulated are not simulated again; starts that differ by this share of the shortest
    transfer of the pattern, or less, count as the same (0: to the picosecond; 0.01 is a good choice). `report()` then counts the
    whole step, with `replay`: what was skipped and an estimate of the error. Takes no faults. docs/packet.md says what it means.

    `options.threads` simulate ahead of the program by `ahead` seconds, the least time from a launch to its first packet; results
    are the same for any number. Where some plan has none, `ahead` is 0 and one thread does it.

    `progress` is called now and then with the share of the keys whose transfers are over (with `skip`: have begun)."""
    columns: dict[str, Any] = {
        "graph": graph.columns(), "lanes": _columns(paths, plans, rows), "plan_start": np.ascontiguousarray(plan_start, np.int64),
        "key": np.ascontiguousarray(key, np.int64), "key_plan": np.ascontiguousarray(key_plan, np.int32),
        "options": (options or PacketOptions()).columns(), "faults": _faults(faults), "progress": progress,
    }  # fmt: skip
    try:
        return _core.PacketNetwork(**columns) if skip is None else _core.ReplayNetwork(**columns, tolerance=float(skip))
    except (_core.CoreError, TypeError) as error:
        raise _read_core_error(str(error)) from None


def reroute(
    graph: Graph, paths: Paths, lanes: Lanes, flaps: Sequence[Flap], after: float, options: RouteOptions | None = None
) -> tuple[Paths, tuple[Detour, ...]]:
    """Rerouting around cables that go down: `after` seconds (convergence) later lanes on them take another shortest path,
    and their own again that long after the cable is back. Returns the paths with the detours appended, and the detours.

    Lane k must be on row k of `paths`. A lane without another path keeps its own. Raises EngineError as `route` does."""
    links, starts = [paths.links], [*paths.start.tolist()]
    down: set[int] = set()
    on_detour: set[int] = set()
    detours: list[Detour] = []
    back = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(graph.link_from, graph.link_to, strict=True))}
    owner = np.repeat(np.arange(len(lanes)), np.diff(paths.start))
    for flap in sorted(flaps, key=lambda f: f.time):
        cable = {flap.link, back.get((int(graph.link_to[flap.link]), int(graph.link_from[flap.link])), flap.link)}
        down = down - cable if flap.up else down | cable
        hit = set(owner[np.isin(paths.links, list(down))].tolist())
        when = flap.time + after
        detours.extend(Detour(when, lane, lane) for lane in sorted(on_detour - hit))
        on_detour &= hit
        if not hit:
            continue
        broken = _without_links(graph, down)
        for lane, way in _ways_around(broken, lanes, sorted(hit), options):
            links.append(way)
            starts.append(starts[-1] + len(way))
            detours.append(Detour(when, lane, len(starts) - 2))
            on_detour.add(lane)
    return Paths(np.array(starts, np.int64), np.concatenate(links).astype(np.int32)), tuple(detours)


def _ways_around(broken: Graph, lanes: Lanes, hit: Sequence[int], options: RouteOptions | None) -> Iterator[tuple[int, Int32s]]:
    """The lanes that have another way, with its links."""
    at = np.array(hit)
    try:
        found = route(broken, lanes.src[at], lanes.dst[at], at, options)
    except EngineError:
        if len(hit) > 1:  # some have none
            middle = len(hit) // 2
            yield from _ways_around(broken, lanes, hit[:middle], options)
            yield from _ways_around(broken, lanes, hit[middle:], options)
        return
    for number, lane in enumerate(hit):
        yield lane, found.links[found.start[number] : found.start[number + 1]]


def _without_links(graph: Graph, down: set[int]) -> Graph:
    up = graph.link_up.copy()
    up[list(down)] = 0
    return replace(graph, link_up=up)


def _columns(paths: Paths, lanes: Lanes, rows: npt.ArrayLike | None) -> dict[str, npt.NDArray[Any]]:
    path: Int32s = np.arange(len(lanes), dtype=np.int32) if rows is None else np.ascontiguousarray(rows, np.int32)
    out = {name: getattr(lanes, name) for name in lanes.__dataclass_fields__}
    return {**out, "path": path, "path_start": paths.start, "path_links": paths.links}


def _faults(faults: Faults | None) -> dict[str, Any]:
    given = faults or Faults()
    return {
        "flaps": [(float(f.time), int(f.link), bool(f.up)) for f in given.flaps],
        "detours": [(float(d.time), int(d.lane), int(d.path)) for d in given.detours],
        "loss": [] if given.loss is None else given.loss.tolist(),
        "bit_error": [] if given.bit_error is None else given.bit_error.tolist(),
    }


@dataclass(frozen=True)
class Parameter:
    """`unit`: "B/s", "s", "B", "0/1" (a switch) or "" (a plain number). Values lie in [least, most]."""

    name: str
    unit: str
    default: float
    least: float
    most: float
    meaning: str


@dataclass(frozen=True)
class Control:
    """An algorithm. `telemetry`: switches must report load and queue in every packet."""

    name: str
    meaning: str
    parameters: tuple[Parameter, ...]
    telemetry: bool


@functools.cache
def controls() -> dict[str, Control]:
    """Every algorithm by name, in the core's order."""
    return {
        name: Control(name, meaning, tuple(Parameter(*row) for row in rows), telemetry)
        for name, meaning, rows, telemetry in _core.congestion_controls()
    }
