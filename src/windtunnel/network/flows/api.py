"""The public function `windtunnel.flows`."""

from __future__ import annotations

from windtunnel.base.options import asks
from windtunnel.network.fabrics import apply_faults, parse_fabric, parse_fault
from windtunnel.network.flows.flow_list import load_flows
from windtunnel.network.flows.options import FlowsOptions
from windtunnel.network.flows.run import FlowOptions, FlowsResult, run_flows
from windtunnel.network.simulate.packet_settings import PacketSettings


@asks(FlowsOptions)
def flows(asked: FlowsOptions) -> FlowsResult:
    """Plain flows over a fabric; both as `windtunnel flows` takes them: `fat_tree:k=8,link=400Gb/s`, `permutation:bytes=10MiB`.

    `mtu`: bytes of a full packet; `until`: a flow is complete when its last byte is "delivered" or "acked".

    The result has `fct` (seconds until each sender has its last ACK), `summary()`, `stats`, `hot_links()` and `collisions`. Raises
    SpecError, UnknownName and FileError.
    """
    graph = apply_faults(parse_fabric(asked.fabric), [parse_fault(text) for text in asked.faults])
    packet = asked.packet or PacketSettings(cc=asked.cc, threads=asked.threads)
    options = FlowOptions(asked.network, asked.routing, asked.nic, asked.seed, asked.mtu, asked.until, packet)
    return run_flows(graph, load_flows(asked.flows, graph.endpoints), options, asked.progress)
