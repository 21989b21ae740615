"""Plain flows packet by packet: what a user may set, and what the packet engine is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.engine import packet as engine
from windtunnel.engine.graph import Floats, Graph, Paths
from windtunnel.engine.packet import Loss, Marking, PacketOptions, PacketResult, Recovery, Spread, plain_lanes
from windtunnel.engine.routes import RouteOptions
from windtunnel.network.collisions import loads
from windtunnel.network.congestion import Congestion, load_congestion
from windtunnel.network.fabrics.faults import Flap, flap_events
from windtunnel.network.flow_list import Flows

SPREADS = {"spray": Spread.ROUND, "spray-random": Spread.RANDOM, "adaptive": Spread.ADAPTIVE, "flowlet": Spread.FLOWLET}
"""Routing -> how each switch chooses for a packet; every other routing keeps a flow on its path."""
LOSSES = {"pfc": Loss.PAUSE, "drop": Loss.DROP, "credits": Loss.CREDITS}
RECOVERIES = {"go-back-n": Recovery.GO_BACK_N, "selective": Recovery.SELECTIVE}


@dataclass(frozen=True)
class PacketSettings:
    """`cc`: a congestion control as `load_congestion` takes it. `loss`: what a full buffer does (pfc, drop, credits).

    `recovery`: go-back-n or selective; empty: selective where packets of a flow take different ways, else go-back-n. `buffer`:
    bytes of a switch; `header`: bytes added to every packet's payload; `ack_every`: packets an ACK. Results are the same for any
    number of `threads`. `flaps`: cables that go down while traffic runs; `convergence` seconds later flows take other ways.
    `thresholds`: bytes of an ingress at which it pauses its sender and below which that goes on; None: dynamic. `sample` > 0:
    seconds between two samples of the `watched` links that have most to carry for their rate, and of as many flows, the first ones.
    """

    cc: str = "dcqcn"
    loss: str = "pfc"
    recovery: str = ""
    buffer: float = 32e6
    header: int = 0
    ack_every: int = 1
    threads: int = 1
    flaps: tuple[Flap, ...] = ()
    convergence: float = 1e-3
    thresholds: tuple[float, float] | None = None
    sample: float = 0.0
    watched: int = 32

    def options(self, routing: str, mtu: int, seed: int, path: str = "--cc") -> tuple[PacketOptions, Congestion]:
        """What the engine takes; UnknownName and SpecError for what is wrong, a congestion control's at `path`."""
        for option, value, known in (("loss", self.loss, LOSSES), ("--recovery", self.recovery or "selective", RECOVERIES)):
            if value not in known:
                raise UnknownName(option, value, list(known))
        for name, number, low, high in (("--threads", self.threads, 1, 1024), ("--ack-every", self.ack_every, 1, 1024),
                                        ("--buffer", self.buffer, 1e4, 1e12), ("--header", self.header, 0, 1024),
                                        ("--sample", self.sample or 1.0, 1e-9, 1e3),
                                        ("--watch", self.watched, 1, 4096)):  # fmt: skip
            if not low <= number <= high:
                raise SpecError(name, number, f"{low:g} to {high:g}")
        xoff, xon = self.thresholds or (0.0, 0.0)
        if self.thresholds and not 0 < xon <= xoff <= self.buffer:
            raise SpecError("--xon", xon, f"above 0 and at most --xoff ({xoff:g}), which is at most --buffer ({self.buffer:g})")
        control = load_congestion(self.cc, path=path)
        spread = SPREADS.get(routing, Spread.PATH)
        recovery = self.recovery or ("go-back-n" if spread == Spread.PATH else "selective")
        options = PacketOptions(
            mtu=mtu, header=self.header, loss=LOSSES[self.loss], buffer=self.buffer, recovery=RECOVERIES[recovery],
            ack_every=self.ack_every, xoff=xoff, xon=xon, spread=spread, seed=seed, threads=self.threads,
            algorithm=control.algorithm,
            parameters=control.parameters, ecn=[Marking(row.rate, row.kmin, row.kmax, row.pmax) for row in control.ecn],
        )  # fmt: skip
        return options, control


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
    """([F] seconds from each flow's start until its sender knows, or its last byte is there; NaN where the run was stopped before;
    the run)."""
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
    result = engine.run_packets(graph, paths, lanes, options, faults, progress=progress)
    return np.asarray((result.acked if acked else result.delivered) - flows.start), result


def described(graph: Graph, control: Congestion, options: PacketOptions) -> dict[str, object]:
    """What a packet run assumes, for the result: every constant of the congestion control, marking, buffers, recovery."""
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
