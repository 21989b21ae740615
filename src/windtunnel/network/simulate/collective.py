"""One collective over the links of a cluster: closed form, fluid or packet by packet, with the same lanes. Lanes as variables of
the flow engine: pipelined lanes are one fluid with a demand on every link of its lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import CLOSED, FLOW, PACKET, check_fidelity
from windtunnel.engine import flow
from windtunnel.engine.flow import Demands, Variables
from windtunnel.engine.graph import Graph, Paths
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.loads import LinkLoads, Sent
from windtunnel.engine.packet import run_packets
from windtunnel.network.algorithm import ALGORITHMS, MESSAGES
from windtunnel.network.closed.collective import bus_factor, in_words_of, prepare
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group, flat_group
from windtunnel.network.lanes.build import CallLanes, lanes_of, lanes_of_sends
from windtunnel.network.lanes.send_files import Sends
from windtunnel.network.lanes.timing import slices_of, split
from windtunnel.network.nccl.settings import DEFAULT, Settings, as_set, parse_settings
from windtunnel.network.simulate.axis_calls import chain_seconds, find_most
from windtunnel.network.simulate.fabric_faults import check_faults, faults_of, packet_faults, timer_changes, without_faults
from windtunnel.network.simulate.packet_settings import small_buffers_named
from windtunnel.network.simulate.packets import packet_options, packet_size, settle_delays, sprays, timeouts_of
from windtunnel.network.simulate.paths import (
    PlacedRanks,
    contains_spine,
    lane_paths,
    latencies,
    narrow_lanes,
    nics_each,
    place_ranks,
    planes_apart,
    route_options,
)
from windtunnel.network.simulate.traffic import Traffic, traffic
from windtunnel.spec.machine import Cluster
from windtunnel.workload.ops import Comm


def fluid(lanes: Lanes, paths: Paths, extra: Floats, latency: float | None = None, in_turn: int = 1) -> tuple[Demands, Variables]:
    """One variable per group: a single lane moves its bytes along its path, lanes that advance together move one unit.

    `paths`: row k is the path of lane k; `extra` [K]: seconds in addition to the delays. `latency`: for a call whose
    groups do not wait for each other, the seconds that do not move bytes (launch, steps, fill); by default those of its delays.
    `in_turn`: its slices that follow each other.
    """
    count = len(lanes)
    groups = int(lanes.group.max()) + 1 if count else 0
    no_wait = np.diff(lanes.dep_start) == 0
    if groups == count and bool((lanes.group == np.arange(count)).all()):
        begin = lanes.begin + np.where(no_wait, lanes.delay, 0.0)
        return Demands.of_paths(paths), Variables(
            begin,
            lanes.bytes.astype(np.float64),
            bound=lanes.rate,
            latency=extra,
            delay=np.where(no_wait, 0.0, lanes.delay),
            dep_start=lanes.dep_start,
            deps=lanes.dep_lane,
        )
    waiting = np.repeat(np.arange(count), np.diff(lanes.dep_start))
    pairs = np.stack([lanes.group[waiting], lanes.group[lanes.dep_lane]], axis=1)
    inside = np.zeros(groups, dtype=bool)
    inside[pairs[pairs[:, 0] == pairs[:, 1], 0]] = True
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    dep_start = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=groups))]).astype(np.int64)
    seconds = find_most(lanes.bytes / lanes.rate, lanes.group, groups)
    # Slices of a group that waits within itself follow each other, each after its delay.
    steps = np.where(inside, find_most(slices_of(lanes).astype(np.float64), lanes.group, groups), 1.0)
    above = chain_seconds(lanes, extra, in_turn)
    delay, begin = find_most(lanes.delay, lanes.group, groups), np.full(groups, np.inf)
    np.minimum.at(begin, lanes.group, lanes.begin)
    if not len(pairs) and latency is not None:
        late = np.maximum(0.0, latency - begin) + above
        delay = np.zeros(groups)
    else:
        late = (steps - 1) * delay + above
        begin = begin + np.where(np.diff(dep_start) == 0, delay, 0.0)
    bound = np.divide(1.0, seconds, out=np.full(groups, np.inf), where=seconds > 0)
    return _demands(lanes, paths, groups), Variables(
        begin,
        np.ones(groups),
        bound=bound,
        latency=late,
        delay=delay,
        dep_start=dep_start,
        deps=pairs[:, 1].astype(np.int32),
    )


def at_once(lanes: Lanes, paths: Paths, share: Floats, extra: Floats, seconds: float) -> tuple[Demands, Variables]:
    """Approximates batches of sends by sends that all run at the same time, each at its share of the rate; exact for very many.

    `share` [K]: share of its rate that a lane gets; `seconds`: of the call without other traffic.
    """
    bound = lanes.rate * share
    late = max(0.0, seconds - float((lanes.begin + lanes.bytes / bound).max())) + extra
    return Demands.of_paths(paths), Variables(lanes.begin, lanes.bytes.astype(np.float64), bound=bound, latency=late)


def _demands(lanes: Lanes, paths: Paths, groups: int) -> Demands:
    """Rows of (links, bytes) by group."""
    hops = np.diff(paths.start)
    group = np.repeat(lanes.group.astype(np.int64), hops)
    nbytes = np.repeat(lanes.bytes.astype(np.float64), hops)
    width = int(paths.links.max(initial=0)) + 1
    key, at = np.unique(group * width + paths.links, return_inverse=True)
    demand: Floats = np.bincount(at, weights=nbytes, minlength=len(key)).astype(np.float64)
    start: Int64s = np.searchsorted(key // width, np.arange(groups + 1)).astype(np.int64)
    return Demands(start, (key % width).astype(np.int32), demand)


SPRAYED = 8
"""Paths per connection in the flow engine that approximate spraying over all of them."""
MOST_IN_BATCHES = 2**17
"""Limit of sends of an all-to-all up to which the flow engine runs NCCL's batches; above it all sends run at once."""


@dataclass(frozen=True)
class RoutedCall:
    """A call on links: its lanes, their paths, and `own` and `extra` seconds of those paths (`paths.latencies`);
    lane k is one connection of lane `old[k]` of the pattern."""

    lowered: CallLanes
    links: PlacedRanks
    lanes: Lanes
    paths: Paths
    own: Floats
    extra: Floats
    old: Int32s
    comm: Comm
    spine: bool
    """Whether the fitted hops contain the links between switches."""


@dataclass(frozen=True)
class CallResult:
    """Seconds and traffic of a call. `link_bytes` [L] of the graph (empty in closed form); `mtu`: bytes of a packet, 0 without
    packets."""

    seconds: float
    lowered: CallLanes
    graph: Graph
    link_bytes: Floats
    mtu: int
    stats: Mapping[str, float]
    routed: RoutedCall
    link_control: Floats | None = None
    """[L] bytes of ACKs and other control frames."""
    sent: Sent | None = None
    """Bytes by link and pair of ranks, if they were counted."""
    loads: LinkLoads | None = None
    """The links over time, if they were counted."""

    def traffic(self, network: str) -> Traffic | None:
        """What the links carried and for which ranks; None in closed form."""
        if not len(self.link_bytes):
            return None
        counts = ("pfc_pauses", "ecn_marks", "cnps", "drops", "skipped_share") if self.mtu else ()
        events = {name: float(self.stats[name]) for name in counts}
        moved = self.link_bytes if self.link_control is None else self.link_bytes + self.link_control
        pair, names = _pairs(self.routed)
        return traffic(
            self.graph, network, moved, self.seconds, events=events, names=names, loads=self.loads,
            sent=self.sent if self.sent is not None else lambda links: find_sent(self.routed.lanes, self.routed.paths, pair, links),
        )  # fmt: skip


def run_collective(
    cluster: Cluster,
    comm: Comm,
    size: float,
    group: Group,
    *,
    network: str = FLOW,
    algorithm: str | None = None,
    protocol: str | None = None,
    sends: Sends | None = None,
    settings: Settings = DEFAULT,
    seed: int = 1,
    dims: Sequence[int] = (),
    speeds: Sequence[float] = (),
    mtu: int | None = None,
    skip: bool = False,
    threads: int = 1,
    progress: Callable[[float], None] | None = None,
    loads: bool = False,
) -> CallResult:
    """Runs `comm` of `size` bytes over consecutive GPUs of `cluster`, shaped as `group`.

    `network`: a name of `FIDELITIES`. `algorithm` and `protocol` instead of NCCL's choice, or `sends` from a file. `seed` salts the
    hashes of routes. `mtu`: bytes of a packet (left out: `packet_size`). `loads`: count links over time. `skip`: packets'
    steady states are fast-forwarded, on one thread; `threads` of packets change no result. Raises as `lanes_of` and the engines do.
    """
    check_fidelity(network, "network")
    check_faults(cluster.fabric, network)
    machine = as_set(cluster, settings)
    routed = route_call(
        machine,
        comm,
        size,
        group,
        algorithm=algorithm,
        protocol=protocol,
        sends=sends,
        settings=settings,
        seed=seed,
        dims=dims,
        speeds=speeds,
        paths=paths_each(machine, comm, group, network),
    )
    return _RUN[network](routed, machine, RunOptions(settings, seed, mtu, skip, threads, progress, loads))


def route_call(
    cluster: Cluster,
    comm: Comm,
    size: float,
    group: Group,
    *,
    algorithm: str | None = None,
    protocol: str | None = None,
    sends: Sends | None = None,
    settings: Settings = DEFAULT,
    seed: int = 1,
    dims: Sequence[int] = (),
    speeds: Sequence[float] = (),
    paths: int = 1,
) -> RoutedCall:
    """The call's lanes on the cluster's links; each connection between nodes uses `paths` hash values side by side."""
    links = place_ranks(cluster, group)
    if cluster.fabric.faults:
        links = replace(links, graph=faults_of(cluster, (), 0).break_links(links.graph))
    if sends is not None:
        lowered = lanes_of_sends(cluster, comm, size, sends, links.ranks, group, settings, links.switches)
    else:
        if algorithm is None and not len(links.switches):
            chosen = prepare(cluster, comm, group, settings).choose(size)[0]
            algorithm = ALGORITHMS.default if ALGORITHMS[chosen].adds_in_switches else None
        lowered = lanes_of(
            cluster,
            comm,
            size,
            links.ranks,
            group,
            algorithm=algorithm,
            protocol=protocol,
            settings=settings,
            switches=links.switches,
            dims=dims,
            speeds=speeds,
            leaves=links.leaves,
            rings=links.rings,
        )
    pattern = lowered.pattern
    between = lowered.call.node_of(pattern.src) != lowered.call.node_of(pattern.dst)
    # A message is striped over the NICs that its GPU drives, the ports of each, and the queue pairs of each port.
    nics, ports = (nics_each(links.graph, links.ranks), cluster.fabric.nic_ports) if between.any() else (1, 1)
    pairs = nics * ports * settings.qps * paths
    lanes, old, part = split(lowered.lanes, between, pairs)
    key = pattern.channel[old] * pairs + part
    routes = route_options(cluster, comm, settings, seed)
    paths_of_lanes = lane_paths(links, lanes, key, routes, part, nics, ports, planes_apart(cluster))
    spine = contains_spine(cluster, group)
    own, extra = latencies(links.graph, paths_of_lanes, spine)
    return RoutedCall(lowered, links, lanes, paths_of_lanes, own, extra, old, comm, spine)


def paths_each(cluster: Cluster, comm: Comm, group: Group, network: str) -> int:
    """Hash values per connection between nodes: the fabric's number. Fluid flows on a fabric that sprays packets use several, which
    approximates an even spread (except for an all-to-all of many ranks, which spreads over its peers)."""
    own = cluster.fabric.flows_per_connection
    several = network == FLOW and sprays(cluster) and group.span in ("pod", "core")
    if comm == Comm.ALL_TO_ALL and group.ranks > 128:
        return 1
    return max(own, SPRAYED) if several else own


@dataclass(frozen=True)
class RunOptions:
    """How an engine is run."""

    settings: Settings
    seed: int
    mtu: int | None
    skip: bool
    threads: int
    progress: Callable[[float], None] | None
    loads: bool = False


def _run_closed(routed: RoutedCall, cluster: Cluster, options: RunOptions) -> CallResult:
    return CallResult(routed.lowered.seconds, routed.lowered, routed.links.graph, np.zeros(0), 0, {}, routed)


def _flow(routed: RoutedCall, cluster: Cluster, options: RunOptions) -> CallResult:
    lanes, pattern, graph = routed.lanes, routed.lowered.pattern, routed.links.graph
    faults = faults_of(cluster, timeouts_of(cluster, options.settings), options.settings.ib_retries)
    begun = replace(faults, flaps=tuple(f for f in faults.flaps if f.up > float(lanes.begin.min())))
    changes = timer_changes(graph, begun, sprays(cluster))
    if routed.lowered.algorithm == MESSAGES and len(lanes) > MOST_IN_BATCHES:
        share = (pattern.bytes / pattern.pace)[routed.old]
        demands, variables = at_once(lanes, routed.paths, share, routed.extra, routed.lowered.seconds)
    else:
        # Lanes that have more fill than the closed form have rates that make up for it: the fluid needs neither.
        alone, moved = routed.lowered.lanes, routed.lowered.seconds - routed.lowered.latency
        hurried = float((alone.bytes / alone.rate).max()) / moved if moved > 0.0 else 1.0
        lanes = replace(lanes, rate=lanes.rate * min(1.0, hurried))
        narrow = narrow_lanes(routed.links.graph, routed.paths, lanes)
        slower = float((lanes.bytes / narrow.rate).max() - (lanes.bytes / lanes.rate).max())
        in_delays = min(slower, float((lanes.delay - narrow.delay).max()))
        demands, variables = fluid(
            narrow, routed.paths, routed.extra, routed.lowered.latency - in_delays, pattern.local_steps + pattern.net_steps
        )
    run = flow.run(graph.link_rate * graph.link_up, demands, variables, changes, progress=options.progress, loads=options.loads)
    return CallResult(run.last, routed.lowered, graph, run.use.bytes, 0, run.stats, routed, loads=run.use.loads)


def _packet(routed: RoutedCall, cluster: Cluster, options: RunOptions) -> CallResult:
    graph, mtu = routed.links.graph, options.mtu or packet_size(float(routed.lanes.bytes.sum()))
    packets = replace(packet_options(cluster, mtu, options.settings, options.seed), skip=options.skip, threads=options.threads,
                      loads=options.loads, tags=_pairs(routed)[0].tolist() if options.loads else ())  # fmt: skip
    lanes = settle_delays(graph, routed.paths, routed.lanes, mtu, routed.spine)
    stated = faults_of(cluster, timeouts_of(cluster, options.settings), options.settings.ib_retries)
    routes = route_options(cluster, routed.comm, options.settings, options.seed)
    paths, faults = packet_faults(graph, routed.paths, lanes, stated, routes, sprays(cluster))
    with small_buffers_named(graph, "cluster.fabric.buffer"):
        run = run_packets(graph, paths, lanes, packets, faults, progress=options.progress)
    stats = {**run.stats, "skipped_share": run.skipped_share, "skip_error_s": run.skip_error}
    data, control = run.link_data.astype(np.float64), run.link_control.astype(np.float64)
    return CallResult(
        float(run.delivered.max()), routed.lowered, graph, data, mtu, stats, routed, control, run.sent, run.loads
    )  # fmt: skip


def _pairs(routed: RoutedCall) -> tuple[Int32s, tuple[str, ...]]:
    return name_pairs(routed.lanes, routed.links.ranks, routed.links.graph.endpoints)


def name_pairs(lanes: Lanes, ranks: Int32s, endpoints: int) -> tuple[Int32s, tuple[str, ...]]:
    """For each lane the number of its pair of ranks, and the names of these; `ranks`: the endpoint of each."""
    rank = np.full(endpoints, -1, np.int64)
    rank[ranks] = np.arange(len(ranks))
    src, dst = rank[lanes.src], rank[lanes.dst]
    pairs, number = np.unique(np.stack([src, dst]), axis=1, return_inverse=True)
    named = [tuple("switch" if end < 0 else f"rank {end}" for end in pair) for pair in pairs.T.tolist()]
    return number.reshape(-1).astype(np.int32), tuple(" → ".join(pair) for pair in named)


def find_sent(lanes: Lanes, paths: Paths, pair: Int32s, links: Int64s) -> Sent:
    """Bytes of each pair of ranks on these of the links of its lanes' paths."""
    lane = np.repeat(np.arange(len(lanes)), np.diff(paths.start))
    at = np.isin(paths.links, links)
    lane, link, width = lane[at], paths.links[at].astype(np.int64), int(pair.max(initial=0)) + 1
    key, number = np.unique(link * width + pair[lane], return_inverse=True)
    moved = np.bincount(number, lanes.bytes[lane].astype(np.float64), len(key)).astype(np.float64)
    return Sent(key // width, key % width, moved)


_RUN: dict[str, Callable[[RoutedCall, Cluster, RunOptions], CallResult]] = {CLOSED: _run_closed, FLOW: _flow, PACKET: _packet}


Watch = Callable[[dict[str, object], Traffic], object]
"""Is given a row of a sweep and what its run did to the links."""


class _Stopped(Exception):
    """Ends a run from within its progress."""


def engine_sweep(
    cluster: Cluster,
    comm: Comm,
    gpus: int,
    sizes: Iterable[float],
    *,
    network: str,
    algorithm: str | None = None,
    protocol: str | None = None,
    sends: Sends | None = None,
    settings: Mapping[str, str | int] | None = None,
    per_node: int | None = None,
    seed: int = 1,
    dims: Sequence[int] = (),
    mtu: int | None = None,
    skip: bool = False,
    threads: int = 1,
    progress: Callable[[float], bool] | None = None,
    watch: Watch | None = None,
    loads: bool = False,
) -> list[dict[str, object]]:  # long: one argument a line
    """The rows of `sweep`, run over links, with `lanes` and, for packets, `mtu` and `packet_hops`; where the fabric states faults,
    `whole_us` is the time without them.

    `watch` is given each row and the traffic of its run, with `loads` over time too. Raises SpecError for `loads` with `skip`.

    `progress` is called with the finished share; if it returns True, the sweep stops and returns the rows so far.
    """
    if loads and skip:
        raise SpecError("--skip", True, "no --skip", "What is skipped has no place in the load over time.")
    shape, options = flat_group(cluster, gpus, per_node), parse_settings(settings)
    ready = prepare(as_set(cluster, options), comm, shape, options)
    rows: list[dict[str, object]] = []
    all_sizes = list(sizes)

    def report_progress(share: float) -> None:
        if progress is not None and progress((len(rows) + share) / len(all_sizes)):
            raise _Stopped

    def run(on: Cluster, size: float, loads: bool) -> CallResult:
        return run_collective(
            on, comm, size, shape, network=network, algorithm=algorithm, protocol=protocol, sends=sends, settings=options,
            seed=seed, dims=dims, mtu=mtu, skip=skip, threads=threads, progress=report_progress, loads=loads,
        )  # fmt: skip

    whole = without_faults(cluster) if cluster.fabric.faults else None
    for size in all_sizes:
        try:
            ran = run(cluster, size, loads)
            whole_us = None if whole is None else run(whole, size, loads=False).seconds * 1e6
        except _Stopped:
            break
        basis = {"provenance": ready.provenance, "relative_error": ready.relative_error}
        cost = {} if whole_us is None else {"whole_us": whole_us}
        rows.append(_row(ran, comm, size, gpus, ready.links) | basis | cost)
        if watch is not None and (seen := ran.traffic(network)) is not None:
            watch(rows[-1], seen)
        if progress is not None and progress(len(rows) / len(all_sizes)):
            break
    return rows


def _row(ran: CallResult, comm: Comm, size: float, gpus: int, links: GroupLinks) -> dict[str, object]:
    """One line of nccl-tests' table, with the engine's counters."""
    seconds = ran.seconds if ran.seconds > 0 else float("inf")
    protocol, channels = in_words_of(links, ran.lowered.protocol, int(ran.lowered.pattern.channel.max()) + 1)
    return {
        "size": size,
        "time_us": ran.seconds * 1e6,
        "algbw_GBs": size / seconds * 1e-9,
        "busbw_GBs": size * bus_factor(comm, gpus) / seconds * 1e-9,
        "algorithm": ran.lowered.algorithm,
        "protocol": protocol,
        "channels": channels,
        "lanes": len(ran.lowered.lanes),
    } | (count_packets(ran.stats, ran.mtu) if ran.mtu else {})


def count_packets(stats: Mapping[str, float], mtu: int) -> dict[str, object]:
    """What a row says of packets of `mtu` bytes, from an engine's counters."""
    names = ("pfc_pauses", "host_pauses", "ecn_marks", "cnps", "drops", "losses", "timeouts", "retransmits")
    counts = {name: int(stats[name]) for name in names}
    skipped = {"skipped_share": stats["skipped_share"], "skip_error_us": 1e6 * stats["skip_error_s"]}
    return {"mtu": mtu, "packet_hops": int(stats["data_packet_hops"]), **counts, **skipped}
