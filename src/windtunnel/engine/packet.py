"""Python interface of the packet engine: lanes over links, packet by packet.

    result = run_packets(graph, route(graph, src, dst), plain_lanes(src, dst, bytes), PacketOptions(algorithm="dcqcn", ecn=(...,)))
    result.fct                      # seconds from a lane's begin until its sender has the last ACK
    result.stats["ecn_marks"]

Time is in integer picoseconds inside; results are bit-identical for any number of threads. docs/packet.md describes the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.errors import EngineError
from windtunnel.engine import _core
from windtunnel.engine.graph import Graph, Paths
from windtunnel.engine.lanes import Lanes
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


class Recovery(IntEnum):
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
    """ECN of ports near `rate` B/s, thresholds scaled with a port's rate; rate 0: any port, as they are. Bytes behind the packet as
    its service begins: no mark up to `kmin`, probability rising to `pmax` at `kmax`, 1 above."""

    rate: float
    kmin: float
    kmax: float
    pmax: float


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
    """SI units: s, B, B/s. Defaults are a lossless RoCE fabric without congestion control; docs/packet.md has the equations.

    `header` is added to each data packet's `mtu` on the wire; `control` is the size of ACK, CNP, pause and credit frames.
    `buffer` of a switch is shared by its ports; if they fill it in less than `buffer_time` seconds, the switch has as much as they
    fill in that time. `inner_buffer`: of other nodes that forward. `alpha`: dynamic threshold (per
    ingress with PAUSE, per egress with DROP); `xoff` > 0: fixed thresholds per ingress instead; `headroom` None: what cable and
    packets under way need; `credit` 0: twice a round trip on the cable. `algorithm` and `parameters`: see `engine.control`.
    `timeouts`: consecutive retransmission timeouts, the last repeats; after `retries` without progress the run fails.
    `skip`: steady states of collectives are fast-forwarded, on one thread. `sample` > 0: series of `sample_links` and
    `sample_lanes` at that interval.
    """

    mtu: int = 4096
    header: int = 0
    control: int = 64
    loss: Loss = Loss.PAUSE
    buffer: float = 32e6
    buffer_time: float = 0.0
    inner_buffer: float = 4e6
    alpha: float = 0.125
    reserve: float = 4096
    resume: float = 3000
    headroom: float | None = None
    xoff: float = 0.0
    xon: float = 0.0
    credit: float = 0.0
    ecn: Sequence[Marking] = ()
    algorithm: str = "none"
    parameters: Mapping[str, float] = field(default_factory=dict)
    recovery: Recovery = Recovery.GO_BACK_N
    ack_every: int = 1
    nack_interval: float = 500e-6
    reorder: int = 0
    timeouts: Sequence[float] = (4e-3, 4e-3, 16e-3, 67e-3)
    retries: int = 20
    spread: Spread = Spread.PATH
    flowlet_gap: float = 100e-6
    seed: int = 1
    threads: int = 1
    skip: bool = False
    sample: float = 0.0
    sample_links: Sequence[int] = ()
    sample_lanes: Sequence[int] = ()

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
    """`delivered`, `acked` [K]: time of arrival of the last byte, and of the last ACK at the sender (s, from the start of the run).
    `fct`: `acked` less the lane's begin. `stats`: counts, `events`, and `cpu_s` of the run. For each link [L]: bytes of data and of
    control frames, maximum of queued data bytes, seconds in which its sender was paused or without credit. `end`: the last event
    (s). With `skip`: the share of bytes and the seconds that were skipped, and the estimated error of `end` in seconds;
    counts and control frames are those simulated, `link_data` includes skipped bytes. `stopped`: by `progress`; times
    of lanes that had not ended are NaN."""

    delivered: Floats
    acked: Floats
    fct: Floats
    stats: dict[str, float]
    link_data: Int64s
    link_control: Int64s
    link_peak: Int64s
    link_paused: Floats
    end: float
    partitions: int
    stopped: bool
    skipped_share: float
    skipped_time: float
    skip_error: float
    series: PacketSeries


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
        raise EngineError(str(error)) from None
    names = ("queue", "sent", "pauses", "rate", "acknowledged", "cnps")
    series = PacketSeries(
        raw["sample_time"], tuple(chosen.sample_links), tuple(chosen.sample_lanes), *(raw[name] for name in names)
    )  # fmt: skip
    return PacketResult(
        delivered=raw["delivered"], acked=raw["acked"], fct=raw["acked"] - lanes.begin, stats=raw["stats"],
        link_data=raw["link_data"], link_control=raw["link_control"], link_peak=raw["link_peak"], link_paused=raw["link_paused"],
        end=raw["end"], partitions=raw["partitions"], stopped=raw["stopped"], skipped_share=raw["skipped_share"],
        skipped_time=raw["skipped_time"], skip_error=raw["skip_error"], series=series,
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
    it is met; other keys take the seconds they state. One thread. `report()` afterwards: stats and links as in PacketResult, and of
    each plan how often it was launched and the seconds it took (sum `total`, most `longest`). Raises EngineError.

    `skip`: patterns of transfers that have been simulated are not simulated again; starts that differ by this share of the shortest
    transfer of the pattern, or less, count as the same (0: to the picosecond; 0.01 is a good choice). `report()` then counts the
    whole step, with `replay`: what was skipped and an estimate of the error. Takes no faults. docs/packet.md says what it means.

    `progress` is called now and then with the share of the keys whose transfers are over (with `skip`: have begun)."""
    columns: dict[str, Any] = {
        "graph": graph.columns(), "lanes": _columns(paths, plans, rows), "plan_start": np.ascontiguousarray(plan_start, np.int64),
        "key": np.ascontiguousarray(key, np.int64), "key_plan": np.ascontiguousarray(key_plan, np.int32),
        "options": (options or PacketOptions()).columns(), "faults": _faults(faults), "progress": progress,
    }  # fmt: skip
    try:
        return _core.PacketNetwork(**columns) if skip is None else _core.ReplayNetwork(**columns, tolerance=float(skip))
    except (_core.CoreError, TypeError) as error:
        raise EngineError(str(error)) from None


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
        for lane in sorted(hit):
            try:
                way = route(broken, lanes.src[lane : lane + 1], lanes.dst[lane : lane + 1], np.array([lane]), options)
            except EngineError:
                continue
            links.append(way.links)
            starts.append(starts[-1] + len(way.links))
            detours.append(Detour(when, lane, len(starts) - 2))
            on_detour.add(lane)
    return Paths(np.array(starts, np.int64), np.concatenate(links).astype(np.int32)), tuple(detours)


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
