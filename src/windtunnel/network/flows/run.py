"""Plain flows over a fabric, by formula, fluid, or packet by packet: `run_flows(graph, flows, options) -> FlowsResult`.

Routes and sizes are the same at every fidelity; the times differ. A flow of zero bytes, or to its own endpoint, ends when it
starts.

Plain flows packet by packet: user settings, and the packet engine's options for them.

Flows over a fabric as JSON. A million flows are written without an object for each.

Queues and rates of a packet run over time, as CSV or JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import asdict, dataclass, replace
from windtunnel.base.errors import EngineError, SpecError, UnknownName
from windtunnel.base.fidelity import CLOSED, FLOW, PACKET, check_fidelity
from windtunnel.base.json_text import json_text
from windtunnel.engine import packet as engine
from windtunnel.engine.flow import Demands, Variables, closed_flows, latency
from windtunnel.engine.flow import run as run_fluid
from windtunnel.engine.graph import Graph, Paths
from windtunnel.engine.packet import PacketOptions, PacketResult, PacketSeries, plain_lanes
from windtunnel.engine.routes import NicChoice, Policy, RouteOptions, route
from windtunnel.network.congestion import Congestion
from windtunnel.network.fabrics.faults import flap_events
from windtunnel.network.flows.flow_list import Flows
from windtunnel.network.simulate.packet_settings import PacketSettings, small_buffers_named
from windtunnel.network.simulate.traffic import EDGES, Collisions, collisions, loads

ACK = 64.0
"""Bytes of an ACK on the wire, for completion times at the sender."""
Progress = Callable[[float], bool]
"""Called now and then with the finished share; returns whether to stop."""

ROUTINGS: dict[str, Policy | None] = {
    "ecmp": Policy.ECMP,
    "ecmp-polarized": Policy.ECMP_POLARIZED,
    "dimension-order": Policy.DIMENSION_ORDER,
    "first": Policy.FIRST,
    "spray": None,
    "spray-random": None,
    "flowlet": None,
    "adaptive": None,
}
"""Name -> how a flow's links are chosen; None: per packet, in the switches."""
NICS = {"nearest": NicChoice.NEAREST, "rail": NicChoice.RAIL, "pxn": NicChoice.PXN}
UNTIL = ("delivered", "acked")
STATS = ("data_packet_hops", "ack_packet_hops", "events", "drops", "pfc_pauses", "host_pauses", "ecn_marks")
"""Counters that every network reports; 0 if they do not apply."""


@dataclass(frozen=True)
class FlowOptions:
    """How flows are run. `mtu`: bytes of a full packet, which every switch stores before it sends it on.

    `until`: a flow is complete when its last byte has arrived (`delivered`), or when its sender has the last ACK (`acked`), as
    csg-htsim and ns-3 print it. `packet`: settings of the packet network.
    """

    network: str = CLOSED
    routing: str = "ecmp"
    nic: str = "nearest"
    seed: int = 1
    mtu: int = 4096
    until: str = "acked"
    packet: PacketSettings = PacketSettings()

    def route_options(self) -> RouteOptions:
        """UnknownName for a routing or NIC choice that does not exist."""
        if self.routing not in ROUTINGS:
            raise UnknownName("--routing", self.routing, list(ROUTINGS))
        if self.nic not in NICS:
            raise UnknownName("--nic", self.nic, list(NICS))
        if self.until not in UNTIL:
            raise UnknownName("--until", self.until, list(UNTIL))
        if not 64 <= self.mtu <= 65_536:
            raise SpecError("--mtu", self.mtu, "64 to 65536 bytes")
        return RouteOptions(ROUTINGS[self.routing] or Policy.ECMP, NICS[self.nic], self.seed)


@dataclass(frozen=True)
class NetworkAnswer:
    """The result of a network: `fct` [F] seconds (NaN: not finished), counters, bytes over each link [L], assumptions."""

    fct: Floats
    stats: dict[str, float]
    link_bytes: Floats
    assumed: dict[str, object]
    finished: bool = True
    series: PacketSeries | None = None


@dataclass(frozen=True)
class FlowsResult:
    """`fct` [F]: seconds from a flow's start to its end; NaN if the run was stopped before.

    `collisions` is None if each packet chooses its links. `series`: values over time, from the packet network if requested; its
    lanes are numbers of flows.
    """

    graph: Graph
    flows: Flows
    options: FlowOptions
    fct: Floats
    stats: dict[str, float]
    link_bytes: Floats
    collisions: Collisions | None
    assumed: dict[str, object]
    finished: bool
    series: PacketSeries | None = None

    def summary(self) -> dict[str, float | None]:
        """min, p50, mean, p99 and max of the completion times, in seconds; None if no flow ended."""
        ended = self.fct[~np.isnan(self.fct)]
        if not len(ended):
            return dict.fromkeys(("min", "p50", "mean", "p99", "max"))
        p50, p99 = np.percentile(ended, [50, 99])
        values = (ended.min(), p50, ended.mean(), p99, ended.max())
        return {name: float(value) for name, value in zip(("min", "p50", "mean", "p99", "max"), values, strict=True)}

    def makespan(self) -> float:
        """Seconds from the first start to the last end; 0 if no flow ended."""
        ends = (self.flows.start + self.fct)[~np.isnan(self.fct)]
        return float(ends.max() - self.flows.start.min()) if len(ends) else 0.0

    def hot_links(self, most: int = 20) -> list[dict[str, object]]:
        """The busiest links: bytes, and the share of the run for which they were busy at full rate."""
        g, span = self.graph, self.makespan()
        busy = self.link_bytes / g.link_rate
        top = np.lexsort((np.arange(g.links), -busy))[:most]
        return [
            {
                "from": g.name(int(g.link_from[link])), "to": g.name(int(g.link_to[link])), "bytes": float(self.link_bytes[link]),
                "rate_Bps": float(g.link_rate[link]), "utilisation": float(busy[link] / span) if span > 0 else 0.0,
            }
            for link in top.tolist()
            if self.link_bytes[link] > 0
        ]  # fmt: skip


def run_flows(graph: Graph, flows: Flows, options: FlowOptions | None = None, progress: Progress | None = None) -> FlowsResult:
    """Completion times of the flows. Raises UnknownName and SpecError for options, and if no path connects two endpoints."""
    chosen = options or FlowOptions()
    check_fidelity(chosen.network)
    routes = chosen.route_options()
    if ROUTINGS[chosen.routing] is None and chosen.network != PACKET:
        raise SpecError(
            "--routing", chosen.routing, ", ".join(name for name, policy in ROUTINGS.items() if policy is not None),
            f"The {chosen.network} network gives each flow one way; the packet network chooses for each packet.",
        )  # fmt: skip
    sends = (flows.bytes > 0) & (graph.endpoint[flows.src] != graph.endpoint[flows.dst])
    some = Flows(flows.src[sends], flows.dst[sends], flows.bytes[sends], flows.start[sends], flows.source)
    if not sends.any():
        nothing = dict.fromkeys(STATS, 0.0)
        return FlowsResult(graph, flows, chosen, np.zeros(len(flows)), nothing, np.zeros(graph.links), None, {}, True)
    paths = _paths(graph, some, routes)
    answer = _RUN[chosen.network](graph, some, paths, chosen, progress or (lambda share: False))
    fct = np.zeros(len(flows))
    fct[sends] = answer.fct
    met = None
    if ROUTINGS[chosen.routing] is not None:
        met = collisions(graph, paths, some.src, some.dst, some.bytes, routes)
    stats = {**dict.fromkeys(STATS, 0), **answer.stats}
    series = answer.series
    if series is not None:
        series = replace(series, lanes=tuple(np.nonzero(sends)[0][list(series.lanes)].tolist()))
    return FlowsResult(graph, flows, chosen, fct, stats, answer.link_bytes, met, answer.assumed, answer.finished, series)


def _paths(graph: Graph, flows: Flows, routes: RouteOptions) -> Paths:
    """Paths of the flows; SpecError with the names of the two nodes if no path connects them."""
    try:
        return route(graph, flows.src, flows.dst, options=routes)
    except EngineError as error:
        cut = re.match(r"no way from endpoint (\d+) .* to endpoint (\d+) ", str(error))
        if cut is None:
            raise
        ends = [f"{h} ({graph.name(int(graph.endpoint[int(h)]))})" for h in cut.groups()]
        hint = "The fabric is partitioned: links are missing or down. Where no switch joins two rails, write --nic pxn."
        flow = f"a flow from {ends[0]} to {ends[1]}"
        raise SpecError(flows.source, flow, "endpoints that links which are up connect", hint) from None


def _after(graph: Graph, flows: Flows, paths: Paths, options: FlowOptions) -> Floats:
    """[F] seconds from the end of the fluid to completion: propagation, the last packet in each switch, the ACK's way back."""
    there, back = latency(graph, paths, flows.bytes.astype(np.float64), float(options.mtu), ACK)
    return there + back if options.until == "acked" else there


def _run_closed(graph: Graph, flows: Flows, paths: Paths, options: FlowOptions, progress: Progress) -> NetworkAnswer:
    fct = closed_flows(graph, paths, flows.bytes, flows.start) + _after(graph, flows, paths, options)
    assumed: dict[str, object] = {
        "sharing": "equal among the flows on each link, one link at a time",
        "packets": f"store and forward of {options.mtu} B; no headers, no queues, no congestion control",
    }
    return NetworkAnswer(fct, {}, loads(graph, paths, flows.bytes), assumed)


class _Stop(Exception):
    """Ends a run from within its progress."""


def _fluid(graph: Graph, flows: Flows, paths: Paths, options: FlowOptions, progress: Progress) -> NetworkAnswer:
    def report_progress(share: float) -> None:
        if progress(share):
            raise _Stop

    assumed: dict[str, object] = {
        "sharing": "max-min fair, at once",
        "packets": f"store and forward of {options.mtu} B; no headers, no queues, no congestion control",
    }
    variables = Variables(begin=flows.start, size=flows.bytes.astype(np.float64))
    try:
        run = run_fluid(graph.link_rate, Demands.of_paths(paths), variables, progress=report_progress)
    except _Stop:
        return NetworkAnswer(np.full(len(flows), np.nan), {}, np.zeros(graph.links), assumed, finished=False)
    stats = {name: run.stats[name] for name in ("events", "solves", "incremental", "full")}
    return NetworkAnswer(run.delivered - flows.start + _after(graph, flows, paths, options), stats, run.use.bytes, assumed)


def _packet(graph: Graph, flows: Flows, paths: Paths, options: FlowOptions, progress: Progress) -> NetworkAnswer:
    settings, control = options.packet.options(options.routing, options.mtu, options.seed)
    routes, acked = options.route_options(), options.until == "acked"
    fct, run = packet_flows(graph, flows, paths, options.packet, settings, routes, acked, progress)
    stats = {**run.stats, "partitions": run.partitions}
    moved = (run.link_data + run.link_control).astype(np.float64)
    series = run.series if options.packet.sample > 0 else None
    return NetworkAnswer(fct, stats, moved, describe_run(graph, control, settings), not run.stopped, series)


Network = Callable[[Graph, Flows, Paths, FlowOptions, Progress], NetworkAnswer]
_RUN: dict[str, Network] = {CLOSED: _run_closed, FLOW: _fluid, PACKET: _packet}


def slowest_flow(result: FlowsResult, most: int = 100_000) -> tuple[int, tuple[int, ...]] | None:
    """The flow that took longest, and the numbers of its links in order: none where packets choose them, or where more than `most`
    flows were routed. None if no flow ended."""
    took = np.where(np.isnan(result.fct), -1.0, result.fct)
    if not len(took) or took.max() <= 0.0:
        return None
    number, options = int(np.argmax(took)), result.options
    if ROUTINGS[options.routing] is None or len(took) > most:
        return number, ()
    flows = result.flows
    sends = (flows.bytes > 0) & (result.graph.endpoint[flows.src] != result.graph.endpoint[flows.dst])
    some = Flows(flows.src[sends], flows.dst[sends], flows.bytes[sends], flows.start[sends], flows.source)
    paths, at = _paths(result.graph, some, options.route_options()), int(np.count_nonzero(sends[:number]))
    return number, tuple(paths.links[paths.start[at] : paths.start[at + 1]].tolist())


def packet_flows(
    graph: Graph,
    flows: Flows,
    paths: Paths,
    settings: PacketSettings,
    options: PacketOptions,
    routes: RouteOptions,
    acked: bool,
    progress: Callable[[float], bool],
) -> tuple[Floats, PacketResult]:
    """([F] seconds from each flow's start until its sender has the last ACK, or its last byte has arrived; NaN if the run was
    stopped before; the run)."""
    lanes = plain_lanes(flows.src, flows.dst, flows.bytes, flows.start)
    faults = None
    if settings.flaps:
        events = [engine.Flap(*event) for event in flap_events(graph, settings.flaps)]
        paths, detours = engine.reroute(graph, paths, lanes, events, settings.convergence, routes)
        faults = engine.Faults(flaps=events, detours=detours)
    if settings.sample > 0:
        busy = loads(graph, paths, flows.bytes) / graph.link_rate
        busiest = np.lexsort((np.arange(graph.links), -busy))[: settings.watched]
        options = replace(
            options,
            sample=settings.sample,
            sample_links=np.sort(busiest[busy[busiest] > 0]).tolist(),
            sample_lanes=range(min(len(flows), settings.watched)),
        )
    with small_buffers_named(graph, "--buffer"):
        result = engine.run_packets(graph, paths, lanes, options, faults, progress=progress)
    return np.asarray((result.acked if acked else result.delivered) - flows.start), result


def describe_run(graph: Graph, control: Congestion, options: PacketOptions) -> dict[str, object]:
    """Assumptions of a packet run, for the result: constants of the congestion control, marking, buffers, recovery."""
    outside = (graph.node_site[graph.link_from] < 0) | (graph.node_site[graph.link_to] < 0)
    fastest = float(graph.link_rate[outside].max(initial=0.0))
    marking = control.marking(fastest) if fastest else None
    pauses = {"xoff_B": options.xoff, "xon_B": options.xon} if options.xoff else {"alpha": options.alpha}
    units = {"kmin_B": marking.kmin, "kmax_B": marking.kmax, "pmax": marking.pmax} if marking else None
    return {
        "congestion_control": {"preset": control.id, "algorithm": control.algorithm, **control.parameters},
        "ecn": None if units is None else {**units, "at_Bps": fastest},
        "loss": options.loss.name.lower(), "recovery": options.recovery.name.lower(), "routing": options.spread.name.lower(),
        "buffer_B": options.buffer, **pauses, "mtu_B": options.mtu, "header_B": options.header,
        "ack_every": options.ack_every,
    }  # fmt: skip


SCHEMA = "windtunnel.flows/1"
"""Version; increases when a key changes its meaning or is removed."""
_ROW = '{"src": %d, "dst": %d, "bytes": %d, "start_s": %s, "fct_s": %s}'


def link_name(result: FlowsResult, link: int) -> str:
    """`leaf0->spine3`."""
    graph = result.graph
    return f"{graph.name(int(graph.link_from[link]))}->{graph.name(int(graph.link_to[link]))}"


def flows_json(result: FlowsResult, fabric: str) -> str:
    """JSON text: `flows` (src, dst, bytes, start_s, fct_s; null where the run was stopped first), `fct_s`, `stats`, `links`, ...

    `links` are the busiest, by share of the run for which they were busy. Floats in their shortest exact form.
    """
    head: dict[str, Any] = {
        "schema": SCHEMA, "fabric": fabric, "network": result.options.network, "routing": result.options.routing,
        "nic": result.options.nic, "seed": result.options.seed, "finished": result.finished, "fct_s": result.summary(),
        "makespan_s": result.makespan(), "stats": result.stats, "links": result.hot_links(), "assumed": result.assumed,
        "collisions": None if result.collisions is None else collisions_json(result, result.collisions),
    }  # fmt: skip
    text = json_text(head).rstrip()
    return "".join([text[:-2], ',\n  "flows": [\n    ', ",\n    ".join(_rows(result)), "\n  ]\n}\n"])


def collisions_json(result: FlowsResult, met: Collisions) -> dict[str, Any]:
    """Fields of `met`, with the worst link as node names and the histogram with its bin edges."""
    plain: dict[str, Any] = asdict(met)
    plain["histogram_edges"] = list(EDGES)
    plain["worst_link"] = link_name(result, met.worst_link) if met.worst_link >= 0 else None
    return plain


def _rows(result: FlowsResult) -> Iterator[str]:
    flows = result.flows
    fct = map(repr, result.fct.tolist())
    times = fct if not np.isnan(result.fct).any() else (value if value != "nan" else "null" for value in fct)
    columns = (flows.src.tolist(), flows.dst.tolist(), flows.bytes.tolist(), map(repr, flows.start.tolist()), times)
    return (_ROW % row for row in zip(*columns, strict=True))


SERIES_SCHEMA = "windtunnel.series/1"
"""Version; increases when a key changes its meaning or is removed."""
Column = tuple[str, str, list[float]]


def series_text(result: FlowsResult, name: str) -> str:
    """Text for a file `name`: JSON for .json, else CSV `time_s,of,quantity,value`, a row per time, link or flow, and quantity.

    Of links `queue_B` (waiting), `sent_B` and `pfc_pauses` (so far); of flows `rate_Bps` (that congestion control permits),
    `acked_B` and `cnps` (so far). `of` is `leaf0->spine3`, or `flow 7`, the number of its row. Nothing where no flow needed a link.
    """
    series = result.series
    columns = [] if series is None else list(_columns(result, series))
    times = [] if series is None else [round(time, 12) for time in series.time.tolist()]
    if name.endswith(".json"):
        by_time: dict[str, dict[str, list[float]]] = {}
        for of, quantity, values in columns:
            by_time.setdefault(of, {})[quantity] = values
        return json.dumps(
            {"schema": SERIES_SCHEMA, "time_s": times, "series": [{"of": of, **values} for of, values in by_time.items()]}
        )
    rows = (
        f"{time!r},{of},{quantity},{value!r}"
        for of, quantity, values in columns for time, value in zip(times, values, strict=True)
    )  # fmt: skip
    return "\n".join(["time_s,of,quantity,value", *rows])


def _columns(result: FlowsResult, series: PacketSeries) -> Iterator[Column]:
    for at, link in enumerate(series.links):
        for quantity, table in (("queue_B", series.queue), ("sent_B", series.sent), ("pfc_pauses", series.pauses)):
            yield link_name(result, link), quantity, table[at].tolist()
    for at, flow in enumerate(series.lanes):
        for quantity, values in (("rate_Bps", series.rate), ("acked_B", series.acknowledged), ("cnps", series.cnps)):
            yield f"flow {flow}", quantity, values[at].tolist()
