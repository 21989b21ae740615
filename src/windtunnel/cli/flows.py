"""`windtunnel flows`: completion times of plain flows."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import FIDELITIES
from windtunnel.base.units import parse_size, parse_time
from windtunnel.cli import INTERRUPTED
from windtunnel.cli.shared.common import show_spinner, writable, write
from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.cli.shared.progress import stoppable
from windtunnel.network.fabrics import apply_faults, parse_fabric, parse_fault, parse_flap
from windtunnel.network.flows.flow_list import load_flows
from windtunnel.network.flows.run import NICS, ROUTINGS, UNTIL, FlowOptions, run_flows
from windtunnel.network.simulate.packet_settings import RECOVERIES, PacketSettings

EXAMPLES = """\b
Examples:
  windtunnel flows --fabric fat_tree:k=8,link=400Gb/s --flows permutation:seed=1,bytes=10MiB --network packet
  windtunnel flows --fabric rail:servers=16 --flows flows.csv --network flow --json -
"""


@with_outputs
def command(  # long: one option a line
    fabric: Annotated[
        str,
        typer.Option("--fabric", "-f", metavar="FABRIC", help="Builder such as fat_tree:k=16,link=400Gb/s, name, or file."),
    ],
    flows: Annotated[
        str,
        typer.Option(
            "--flows",
            metavar="CSV|PATTERN",
            help="File with the columns src,dst,bytes,start_s, or permutation:..., incast:..., all_to_all:..., ring:...",
        ),
    ],
    network: Annotated[str, typer.Option("--network", help=", ".join(FIDELITIES))] = "closed",
    routing: Annotated[str, typer.Option("--routing", help=", ".join(ROUTINGS))] = "ecmp",
    nic: Annotated[str, typer.Option("--nic", help="NICs between servers, as NCCL picks them: " + ", ".join(NICS))] = "nearest",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of every hash and random draw.")] = 1,
    mtu: Annotated[str, typer.Option("--mtu", metavar="SIZE", help="Payload of a full packet.")] = "4096",
    until: Annotated[str, typer.Option("--until", help="When a flow is complete: " + ", ".join(UNTIL))] = "acked",
    cc: Annotated[str, typer.Option("--cc", metavar="NAME", help="packet: congestion control: dcqcn:rai=40Mb/s.")] = "dcqcn",
    pfc: Annotated[bool, typer.Option("--pfc/--no-pfc", help="packet: full switches send pauses (PFC), or drop packets.")] = True,
    credits: Annotated[bool, typer.Option("--credits", help="packet: InfiniBand's credits instead of PFC.")] = False,
    recovery: Annotated[str, typer.Option("--recovery", help="packet: " + ", ".join(RECOVERIES))] = "",
    buffer: Annotated[
        str, typer.Option("--buffer", metavar="SIZE", help="packet: buffer of a switch, shared by its ports.")
    ] = "32MB",
    xoff: Annotated[
        str | None,
        typer.Option("--xoff", metavar="SIZE", help="packet: queue length at which an ingress sends a pause; default: dynamic."),
    ] = None,
    xon: Annotated[
        str | None, typer.Option("--xon", metavar="SIZE", help="packet: with --xoff: queue length at which it resumes.")
    ] = None,
    header: Annotated[int, typer.Option("--header", help="packet: bytes on the wire besides the payload.")] = 0,
    ack_every: Annotated[int, typer.Option("--ack-every", help="packet: packets per ACK.")] = 1,
    threads: Annotated[int, typer.Option("--threads", help="packet: threads; the result is the same for any number.")] = 1,
    fault: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="PATTERN:EFFECT", help="spine3:down or leaf*--spine*:slow=0.5,share=1%; repeatable."),
    ] = None,
    flap: Annotated[
        list[str] | None,
        typer.Option("--flap", metavar="PATTERN:TIMES", help="packet: tor0--agg0.1:down=10us,up=2ms; repeatable."),
    ] = None,
    convergence: Annotated[
        str, typer.Option("--convergence", metavar="TIME", help="packet: time until routing avoids a failed link.")
    ] = "1ms",
    series: Annotated[
        str | None,
        typer.Option("--series", metavar="FILE", help="packet: queues, rates, pauses and CNPs over time, as .csv or .json."),
    ] = None,
    sample: Annotated[str, typer.Option("--sample", metavar="TIME", help="packet: time between two samples of --series.")] = "10us",
    watch: Annotated[
        int, typer.Option("--watch", help="packet: how many of the busiest links and first flows --series holds.")
    ] = 32,
    skip: Annotated[bool, typer.Option("--skip", hidden=True)] = False,
    *,
    outputs: Outputs,
) -> None:
    writable(("--series", series))
    _check(network, series, sample, skip)
    loss = "credits" if credits else "pfc" if pfc else "drop"
    flaps = tuple(parse_flap(text) for text in flap or ())
    after = time_of(convergence, "--convergence")
    fixed = (size_of(xoff, "--xoff"), size_of(xon or xoff, "--xon")) if xoff else None
    packet = PacketSettings(
        cc,
        loss,
        recovery,
        size_of(buffer, "--buffer"),
        header,
        ack_every,
        threads,
        flaps,
        after,
        fixed,
        time_of(sample, "--sample") if series else 0.0,
        watch,
    )
    options = FlowOptions(network, routing, nic, seed, size_of(mtu, "--mtu"), until, packet)
    options.route_options()
    packet.options(routing, options.mtu, seed)
    with show_spinner("building the fabric"):
        graph = apply_faults(parse_fabric(fabric), [parse_fault(text) for text in fault or ()])
        flow_list = load_flows(flows, graph.endpoints)
    with stoppable(f"{len(flow_list):,} flows") as progress:
        began = time.process_time()
        result = run_flows(graph, flow_list, options, progress)
        result.stats["cpu_s"] = time.process_time() - began
    if series is not None:
        from windtunnel.network.flows.series import series_text

        write(series_text(result, series), series, "--series")
    from windtunnel.network.flows.as_json import flows_json
    from windtunnel.network.flows.sheet import flows_sheet

    outputs.show(flows_sheet(result, fabric), flows_json(result, fabric) if outputs.json is not None else "")
    if not result.finished:
        raise typer.Exit(INTERRUPTED)


def _check(network: str, series: str | None, sample: str, skip: bool) -> None:
    """SpecError for options that do not apply to plain flows."""
    if skip:
        raise SpecError(
            "--skip",
            "flows",
            "no --skip",
            "Plain flows have no steps that repeat. It works in `windtunnel collective "
            "--network packet --skip` and `windtunnel predict --network packet --skip`.",
        )
    if series is not None and network != "packet":
        raise SpecError("--series", network, "--network packet", "Only packets have queues and rates over time.")
    if series is not None and not series.endswith((".csv", ".json")):
        raise SpecError("--series", series, "a file name that ends in .csv or .json")
    if series is not None and time_of(sample, "--sample") <= 0:
        raise SpecError("--sample", sample, "a time such as 10us")


def size_of(text: str, option: str) -> int:
    """Whole bytes from `4096` or `4KiB`; SpecError otherwise."""
    try:
        return int(parse_size(float(text) if text.replace(".", "", 1).isdigit() else text))
    except (ValueError, OverflowError):
        raise SpecError(option, text, "a size such as 4096 or 4KiB") from None


def time_of(text: str, option: str) -> float:
    """Seconds from `1ms`; SpecError otherwise."""
    try:
        return parse_time(text)
    except ValueError:
        raise SpecError(option, text, "a time such as 1ms") from None
