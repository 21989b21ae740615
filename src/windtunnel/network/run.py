"""One collective over the links of a cluster: closed form, fluid or packet by packet, always the same lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.base.errors import UnknownName
from windtunnel.engine import flow
from windtunnel.engine.graph import Floats, Graph, Ints, Paths
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.packet import run_packets
from windtunnel.network.algorithms import LOWERINGS
from windtunnel.network.collective import bus_factor, prepare
from windtunnel.network.connections import split
from windtunnel.network.fluid import at_once, fluid
from windtunnel.network.group import Group, flat_group
from windtunnel.network.links import Links, latencies, links_of, narrowed, nics_each, route_options, ways
from windtunnel.network.lowering import Lowered, lanes_of, lanes_of_sends
from windtunnel.network.packets import packet_options, packet_size, settled, sprays
from windtunnel.network.sends import Sends
from windtunnel.network.settings import DEFAULT, Settings, as_set, parse_settings
from windtunnel.spec.cluster import Cluster
from windtunnel.workload.ops import Comm

SPRAYED = 8
"""Ways of each connection that stand for all of them, in the flow engine."""
MOST_IN_BATCHES = 2**17
"""Sends of an all-to-all that the flow engine takes in NCCL's batches; more of them it takes all at once."""


@dataclass(frozen=True)
class Wired:
    """A call on links: its lanes, the way of each, `own` and `extra` seconds of those ways (links.latencies);
    lane k came from lane `old[k]` of the pattern, of which it may be one of several connections."""

    lowered: Lowered
    links: Links
    lanes: Lanes
    paths: Paths
    own: Floats
    extra: Floats
    old: Ints


@dataclass(frozen=True)
class Ran:
    """What a call took. `link_bytes` [L] of the graph (empty in closed form); `mtu` bytes of a packet, 0 without packets."""

    seconds: float
    lowered: Lowered
    graph: Graph
    link_bytes: Floats
    mtu: int
    stats: Mapping[str, float]


def run_collective(
    cluster: Cluster,
    comm: Comm,
    size: float,
    group: Group,
    *,
    network: str = "flow",
    algorithm: str | None = None,
    protocol: str | None = None,
    sends: Sends | None = None,
    settings: Settings = DEFAULT,
    seed: int = 1,
    dims: Sequence[int] = (),
    speeds: Sequence[float] = (),
    mtu: int | None = None,
    skip: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Ran:
    """Runs `comm` of `size` bytes over consecutive GPUs of `cluster`, shaped as `group`.

    `network`: a name of `NETWORKS`. `algorithm` and `protocol` instead of NCCL's choice, or `sends` from a file. `seed` salts the
    hashes of routes. `mtu`: bytes of a packet (left out: `packet_size`). `skip`: packets' steady states
    are fast-forwarded. Raises as `lanes_of` and the engines do.
    """
    if network not in NETWORKS:
        raise UnknownName("network", network, list(NETWORKS))
    machine = as_set(cluster, settings)
    wired = wire(
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
    return NETWORKS[network](wired, machine, How(settings, seed, mtu, skip, progress))


def wire(
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
) -> Wired:
    """The call's lanes on the cluster's links; each connection between nodes uses `paths` hash values side by side."""
    links = links_of(cluster, group)
    if sends is not None:
        lowered = lanes_of_sends(cluster, comm, size, sends, links.ranks, group, settings, links.switches)
    else:
        if algorithm is None and not len(links.switches):
            chosen = prepare(cluster, comm, group, settings).choose(size)[0]
            algorithm = "ring" if chosen.startswith(("nvls", "collnet")) else None
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
    # A message is striped over the NICs that its GPU drives, and over the queue pairs of each.
    nics = nics_each(links.graph, links.ranks) if between.any() else 1
    pairs = nics * settings.qps * paths
    lanes, old, part = split(lowered.lanes, between, pairs)
    key = pattern.channel[old] * pairs + part
    taken = ways(links, lanes, key, route_options(cluster, comm, settings, seed), part % nics if nics > 1 else None)
    own, extra = latencies(links.graph, taken)
    return Wired(lowered, links, lanes, taken, own, extra, old)


def paths_each(cluster: Cluster, comm: Comm, group: Group, network: str) -> int:
    """Hash values that a connection between nodes uses: the fabric's own; for fluids on a fabric that sprays packets, several,
    which comes near an even spread (not for an all-to-all of many ranks, whose peers spread by themselves)."""
    own = cluster.fabric.flows_per_connection
    several = network == "flow" and sprays(cluster) and group.span in ("pod", "core")
    if comm == Comm.ALL_TO_ALL and group.ranks > 128:
        return 1
    return max(own, SPRAYED) if several else own


@dataclass(frozen=True)
class How:
    """How an engine is run."""

    settings: Settings
    seed: int
    mtu: int | None
    skip: bool
    progress: Callable[[float], None] | None


def _closed(wired: Wired, cluster: Cluster, how: How) -> Ran:
    return Ran(wired.lowered.seconds, wired.lowered, wired.links.graph, np.zeros(0), 0, {})


def _flow(wired: Wired, cluster: Cluster, how: How) -> Ran:
    lanes, pattern = wired.lanes, wired.lowered.pattern
    if wired.lowered.algorithm == "p2p" and len(lanes) > MOST_IN_BATCHES:
        share = (pattern.bytes / pattern.pace)[wired.old]
        demands, variables = at_once(lanes, wired.paths, share, wired.extra, wired.lowered.seconds)
    else:
        narrow = narrowed(wired.links.graph, wired.paths, lanes)
        slower = float((lanes.bytes / narrow.rate).max() - (lanes.bytes / lanes.rate).max())
        known = min(slower, float((lanes.delay - narrow.delay).max()))
        demands, variables = fluid(narrow, wired.paths, wired.extra, wired.lowered.latency - known)
    found = flow.run(wired.links.graph.link_rate * wired.links.graph.link_up, demands, variables, progress=how.progress)
    return Ran(found.last, wired.lowered, wired.links.graph, found.use.bytes, 0, found.stats)


def _packet(wired: Wired, cluster: Cluster, how: How) -> Ran:
    graph, mtu = wired.links.graph, how.mtu or packet_size(float(wired.lanes.bytes.sum()))
    options = replace(packet_options(cluster, mtu, how.settings, how.seed), skip=how.skip)
    lanes = settled(graph, wired.paths, wired.lanes, mtu)
    found = run_packets(graph, wired.paths, lanes, options, progress=how.progress)
    stats = {**found.stats, "skipped_share": found.skipped_share, "skip_error_s": found.skip_error}
    return Ran(float(found.delivered.max()), wired.lowered, graph, found.link_data.astype(np.float64), mtu, stats)


NETWORKS: dict[str, Callable[[Wired, Cluster, How], Ran]] = {
    "closed": _closed,
    "flow": _flow,
    "packet": _packet,
}
"""The fidelities."""


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
    progress: Callable[[float], bool] | None = None,
) -> list[dict[str, object]]:
    """The rows of `sweep`, run over links: also `lanes` and, of packets, `mtu` and `packet_hops`.

    `progress` is told the share of the work that is done; if it answers True the rows so far are all.
    """
    shape, options = flat_group(cluster, gpus, per_node), parse_settings(settings)
    ready = prepare(as_set(cluster, options), comm, shape, options)
    rows: list[dict[str, object]] = []
    wanted = list(sizes)

    def told(share: float) -> None:
        if progress is not None and progress((len(rows) + share) / len(wanted)):
            raise _Stopped

    for size in wanted:
        try:
            ran = run_collective(
                cluster,
                comm,
                size,
                shape,
                network=network,
                algorithm=algorithm,
                protocol=protocol,
                sends=sends,
                settings=options,
                seed=seed,
                dims=dims,
                mtu=mtu,
                skip=skip,
                progress=told,
            )
        except _Stopped:
            break
        busy = ran.seconds if ran.seconds > 0 else float("inf")
        rows.append(
            {
                "size": size,
                "time_us": ran.seconds * 1e6,
                "algbw_GBs": size / busy * 1e-9,
                "busbw_GBs": size * bus_factor(comm, gpus) / busy * 1e-9,
                "algorithm": ran.lowered.algorithm,
                "protocol": ran.lowered.protocol,
                "channels": int(ran.lowered.pattern.channel.max()) + 1,
                "provenance": ready.provenance,
                "relative_error": ready.relative_error,
                "lanes": len(ran.lowered.lanes),
            }
            | (_of_packets(ran) if ran.mtu else {})
        )
        if progress is not None and progress(len(rows) / len(wanted)):
            break
    return rows


def _of_packets(ran: Ran) -> dict[str, object]:
    counts = {name: int(ran.stats[name]) for name in ("pfc_pauses", "ecn_marks", "cnps", "drops")}
    skipped = {"skipped_share": ran.stats["skipped_share"], "skip_error_us": 1e6 * ran.stats["skip_error_s"]}
    return {"mtu": ran.mtu, "packet_hops": int(ran.stats["data_packet_hops"]), **counts, **skipped}


__all__ = ["LOWERINGS", "NETWORKS", "Ran", "Wired", "engine_sweep", "run_collective", "wire"]
