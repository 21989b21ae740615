"""Faults of a cluster's fabric under a step or a collective: what each engine does with them, and what their timers cost.

A cable that goes down loses what is on it. A sender sends again when its timer runs out, so a flap costs the first timeout that
ends after the cable is back: 4.096 us x 2^NCCL_IB_TIMEOUT each time, or one after another of `cluster.node.nic.timeouts`. Where
another way leads around the cable, routing takes it after `cluster.fabric.convergence`; switches that choose packet by packet take
it at once.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from windtunnel.base.arrays import Bools, Int32s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import CLOSED, PACKET
from windtunnel.base.units import show_time
from windtunnel.engine import packet as engine
from windtunnel.engine.flow import Changes
from windtunnel.engine.graph import Graph, Paths
from windtunnel.engine.lanes import Lanes
from windtunnel.engine.routes import RouteOptions
from windtunnel.network.fabrics.faults import (
    CableFlap,
    Fault,
    LinkErrors,
    apply_faults,
    flap_events,
    links_of,
    parse_errors,
    parse_fault,
    parse_flap,
)
from windtunnel.spec.machine import Cluster, Fabric

FIELD = "cluster.fabric.faults"
_FORM = "PATTERN:down, slow=0.5, down=10us,up=2ms, loss=1e-5 or ber=1e-12; PATTERN is a node, A--B or A->B"


@dataclass(frozen=True)
class FabricFaults:
    """The faults that a cluster's fabric states. `timeouts` (s) follow each other, the last one repeats, `retries` of them."""

    stated: tuple[str, ...] = ()
    static: tuple[Fault, ...] = ()
    flaps: tuple[CableFlap, ...] = ()
    errors: tuple[LinkErrors, ...] = ()
    convergence: float = 1e-3
    timeouts: tuple[float, ...] = (4.096e-6 * 2.0**20,)
    retries: int = 7

    def __bool__(self) -> bool:
        return bool(self.stated)

    def break_links(self, graph: Graph) -> Graph:
        """The graph with the links that are slow or down all the time."""
        return apply_faults(graph, self.static, FIELD) if self.static else graph

    def outage(self, flap: CableFlap) -> float:
        """Seconds from the moment a cable goes down until what it lost is sent again. SpecError if the senders give up before."""
        waited = 0.0
        for number in range(self.retries):
            waited += self.timeouts[min(number, len(self.timeouts) - 1)]
            if flap.down + waited >= flap.up:
                return waited
        raise SpecError(
            FIELD,
            _pattern(flap),
            f"a cable that is back {show_time(waited)} after it went down, or one that others stand beside",
            f"Senders give up after {self.retries} timeouts: set NCCL_IB_TIMEOUT or NCCL_IB_RETRY_CNT.",
        )


def faults_of(cluster: Cluster, timeouts: tuple[float, ...], retries: int) -> FabricFaults:
    """The faults of the cluster's fabric; SpecError at `cluster.fabric.faults` for text that is none."""
    fabric = cluster.fabric
    parsed = [parse_any(text) for text in fabric.faults]
    return FabricFaults(
        fabric.faults,
        tuple(one for one in parsed if isinstance(one, Fault)),
        tuple(one for one in parsed if isinstance(one, CableFlap)),
        tuple(one for one in parsed if isinstance(one, LinkErrors)),
        fabric.convergence,
        timeouts,
        retries,
    )


def parse_any(text: str, option: str = FIELD) -> Fault | CableFlap | LinkErrors:
    """A fault in any of the forms of network/fabrics/faults.py; SpecError with the forms at `option` otherwise."""
    rest = text.rpartition(":")[2]
    keys = {part.partition("=")[0].strip() for part in rest.split(",")}
    timed = any(part.partition("=")[0].strip() == "down" and "=" in part for part in rest.split(","))
    if keys & {"loss", "ber"}:
        return parse_errors(text, option)
    if timed:
        return parse_flap(text, option)
    if "up" in keys or not keys & {"down", "slow"}:
        raise SpecError(option, text, _FORM)
    return parse_fault(text, option)


def check_faults(fabric: Fabric, network: str) -> None:
    """SpecError for faults that are none, or that the fidelity `network` cannot show."""
    for text in fabric.faults:
        fault = parse_any(text)
        if network == CLOSED:
            raise SpecError(FIELD, text, "no faults in closed form", "Write --network flow or --network packet.")
        if isinstance(fault, LinkErrors) and network != PACKET:
            raise SpecError(FIELD, text, "links that are down, slow or flap", "Only packets are lost: write --network packet.")


def without_faults(cluster: Cluster) -> Cluster:
    """The cluster with a whole fabric."""
    return cluster.model_copy(update={"fabric": cluster.fabric.model_copy(update={"faults": ()})})


def packet_faults(
    graph: Graph, paths: Paths, lanes: Lanes, faults: FabricFaults, routes: RouteOptions, sprays: bool
) -> tuple[Paths, engine.Faults | None]:
    """The paths with those around cables that go down appended, and the packet engine's faults. Lane k is on row k.

    Where switches choose packet by packet they avoid such a cable themselves. SpecError for a flap that no sender survives.
    """
    events = [engine.Flap(*event) for event in flap_events(graph, faults.flaps, FIELD)]
    loss, wrong = np.zeros(graph.links), np.zeros(graph.links)
    for one in faults.errors:
        hit = links_of(graph, one.fault, FIELD)
        loss[hit] = 1.0 - (1.0 - loss[hit]) * (1.0 - one.loss)
        wrong[hit] = 1.0 - (1.0 - wrong[hit]) * (1.0 - one.bit_error)
    if not events and not loss.any() and not wrong.any():
        return paths, None
    check_timers(graph, faults)
    detours: tuple[engine.Detour, ...] = ()
    if events and not sprays:
        paths, detours = engine.reroute(graph, paths, lanes, events, faults.convergence, routes)
    return paths, engine.Faults(events, detours, loss if loss.any() else None, wrong if wrong.any() else None)


def check_timers(graph: Graph, faults: FabricFaults) -> None:
    """SpecError for a flap of a cable with no other beside it that lasts longer than the senders' timers."""
    for flap in faults.flaps:
        if count_beside(graph, _cables(graph, flap)) == 1:
            faults.outage(flap)


@dataclass(frozen=True)
class Stall:
    """What is on a flap's links [L] when it goes down, or is launched until `ready`, waits for its timers until `resumed`."""

    links: Bools
    down: float
    ready: float
    resumed: float


def stalls_of(graph: Graph, faults: FabricFaults, sprays: bool) -> list[Stall]:
    """Stalls of the flaps, by `ready`; none where switches choose packet by packet around a cable. SpecError for a flap that no
    sender survives."""
    stalls = []
    for flap in faults.flaps:
        cables = _cables(graph, flap)
        several = count_beside(graph, cables)
        if sprays and several > 1:
            continue
        ready = flap.up if several == 1 else min(flap.up, flap.down + faults.convergence)
        links = np.zeros(graph.links, np.bool_)
        links[cables] = links[cables + 1] = True
        stalls.append(Stall(links, flap.down, ready, flap.down + faults.outage(replace(flap, up=ready))))
    return sorted(stalls, key=lambda stall: stall.ready)


def capacity_changes(graph: Graph, faults: FabricFaults, sprays: bool) -> Changes:
    """Rates of links over time that the flow engine gives the faults' cables.

    Alone of its kind, a cable has nothing until it is back. With others beside it, it has nothing until routing avoids it, and then
    what the flows on it get of the others: (n - 1) / n of its rate, until it is back.
    """
    rows: list[tuple[float, int, float]] = []
    for flap in faults.flaps:
        cables = _cables(graph, flap)
        several = count_beside(graph, cables)
        left = (several - 1) / several
        if several == 1:
            stages = [(flap.down, 0.0), (flap.up, 1.0)]
        elif sprays:
            stages = [(flap.down, left), (flap.up, 1.0)]
        elif flap.up <= flap.down + faults.convergence:
            stages = [(flap.down, 0.0), (flap.up, 1.0)]
        else:
            stages = [(flap.down, 0.0), (flap.down + faults.convergence, left), (flap.up + faults.convergence, 1.0)]
        for link in cables.tolist():
            for cable in (link, link + 1):
                rows += [(at, cable, share * float(graph.link_rate[cable])) for at, share in stages if np.isfinite(at)]
    return changes_of(rows)


def timer_changes(graph: Graph, faults: FabricFaults, sprays: bool) -> Changes:
    """The same for one call, all of which waits for what is on the cable: it is closed until timers have run out."""
    changes = capacity_changes(graph, faults, sprays)
    rows = list(zip(changes.time.tolist(), changes.link.tolist(), changes.capacity.tolist(), strict=True))
    for stall in stalls_of(graph, faults, sprays):
        rows = [
            (max(at, stall.resumed) if rate > 0.0 and stall.links[link] and at >= stall.down else at, link, rate)
            for at, link, rate in rows
        ]
    return changes_of(rows)


def changes_of(rows: Iterable[tuple[float, int, float]]) -> Changes:
    """(seconds, link, B/s) as the flow engine takes them."""
    ordered = sorted(rows, key=lambda row: (row[0], row[1]))
    times, links, rates = zip(*ordered, strict=True) if ordered else ((), (), ())
    return Changes(np.array(times, np.float64), np.array(links, np.int32), np.array(rates, np.float64))


def count_beside(graph: Graph, cables: Int32s) -> int:
    """Cables of which each of these is one: those of the lower switch to switches of the same tier; 1 for one that has no other.

    `cables`: even numbers of links. The least over all of them, less those that are down with it, but for one.
    """
    tiers = _tiers(graph)
    least = np.iinfo(np.int64).max
    up = graph.link_up != 0
    for cable in cables.tolist():
        a, b = int(graph.link_from[cable]), int(graph.link_to[cable])
        if tiers[a] < 1 or tiers[b] < 1:
            return 1
        low, high = (a, b) if tiers[a] <= tiers[b] else (b, a)
        same = (graph.link_from == low) & (tiers[graph.link_to] == tiers[high]) & up
        also = int(np.isin(np.flatnonzero(same) // 2 * 2, cables).sum())
        least = min(least, max(1, int(same.sum()) - also + 1))
    return int(least)


def _cables(graph: Graph, flap: CableFlap) -> Int32s:
    return np.unique(np.flatnonzero(links_of(graph, flap.fault, FIELD)) // 2 * 2).astype(np.int32)


def _tiers(graph: Graph) -> Int32s:
    """[nodes] links from the nearest server; 0 inside servers."""
    tier: Int32s = np.where(graph.node_site >= 0, 0, -1).astype(np.int32)
    level = 0
    while True:
        reached = np.zeros(graph.nodes, np.bool_)
        reached[graph.link_to[tier[graph.link_from] == level]] = True
        fresh = reached & (tier < 0)
        if not fresh.any():
            return tier
        level += 1
        tier[fresh] = level


def _pattern(flap: CableFlap) -> str:
    fault = flap.fault
    cable = f"{fault.a}{'--' if fault.both else '->'}{fault.b}" if fault.b else fault.a
    back = f",up={flap.up:g}s" if np.isfinite(flap.up) else ""
    return f"{cable}:down={flap.down:g}s{back}"
