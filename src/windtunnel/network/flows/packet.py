"""Plain flows packet by packet: user settings, and the packet engine's options for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.engine import packet as engine
from windtunnel.engine.graph import Graph, Paths
from windtunnel.engine.packet import PacketOptions, PacketResult, plain_lanes
from windtunnel.engine.routes import RouteOptions
from windtunnel.network.congestion import Congestion
from windtunnel.network.fabrics.faults import flap_events
from windtunnel.network.flows.flow_list import Flows
from windtunnel.network.simulate.collisions import loads
from windtunnel.network.simulate.packet_settings import PacketSettings
from windtunnel.network.simulate.small_buffers import small_buffers_named


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
