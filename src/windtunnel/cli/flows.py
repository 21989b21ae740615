"""`windtunnel flows`: completion times of plain flows."""

from __future__ import annotations

import time

import typer

from windtunnel.base.errors import SpecError
from windtunnel.cli import INTERRUPTED
from windtunnel.cli.shared.amounts import duration
from windtunnel.cli.shared.common import show_spinner, stoppable, write
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.network.flows.options import FlowsCommandOptions


def command(asked: FlowsCommandOptions, outputs: Outputs) -> None:
    from windtunnel.network.fabrics import apply_faults, parse_fabric, parse_fault, parse_flap
    from windtunnel.network.flows.flow_list import load_flows
    from windtunnel.network.flows.run import FlowOptions, run_flows
    from windtunnel.network.simulate.packet_settings import PacketSettings

    _check(asked)
    packet = PacketSettings(
        asked.cc,
        "credits" if asked.credits else "pfc" if asked.pfc else "drop",
        asked.recovery,
        asked.buffer,
        asked.header,
        asked.ack_every,
        asked.threads,
        tuple(parse_flap(text) for text in asked.flap),
        asked.convergence,
        (asked.xoff, asked.xoff if asked.xon is None else asked.xon) if asked.xoff is not None else None,
        duration(asked.sample, "--sample") if asked.series else 0.0,
        asked.watch,
    )
    options = FlowOptions(asked.network, asked.routing, asked.nic, asked.seed, asked.mtu, asked.until, packet)
    options.route_options()
    packet.options(asked.routing, options.mtu, asked.seed)
    with show_spinner("building the fabric"):
        graph = apply_faults(parse_fabric(asked.fabric), [parse_fault(text) for text in asked.faults])
        flow_list = load_flows(asked.flows, graph.endpoints)
    with stoppable(f"{len(flow_list):,} flows") as progress:
        began = time.process_time()
        result = run_flows(graph, flow_list, options, progress)
        result.stats["cpu_s"] = time.process_time() - began
    if asked.series is not None:
        from windtunnel.network.flows.run import series_text

        write(series_text(result, asked.series), asked.series, "--series")
    from windtunnel.network.flows.run import flows_json
    from windtunnel.network.flows.sheet import flows_sheet

    outputs.show(flows_sheet(result, asked.fabric), flows_json(result, asked.fabric) if outputs.json is not None else "")
    if not result.finished:
        raise typer.Exit(INTERRUPTED)


def _check(asked: FlowsCommandOptions) -> None:
    """SpecError for options that do not apply to plain flows."""
    series = asked.series
    if asked.skip:
        raise SpecError(
            "--skip",
            "flows",
            "no --skip",
            "Plain flows have no steps that repeat. It works in `windtunnel collective "
            "--network packet --skip` and `windtunnel predict --network packet --skip`.",
        )
    if series is not None and asked.network != "packet":
        raise SpecError("--series", asked.network, "--network packet", "Only packets have queues and rates over time.")
    if series is not None and not series.endswith((".csv", ".json")):
        raise SpecError("--series", series, "a file name that ends in .csv or .json")
    if series is not None and duration(asked.sample, "--sample") <= 0:
        raise SpecError("--sample", asked.sample, "a time such as 10us")
