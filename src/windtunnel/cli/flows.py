"""`windtunnel flows`: plain flows in, completion times out."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.base.units import parse_size
from windtunnel.cli.common import Json, Quiet, busy, writable, write
from windtunnel.cli.progress import stoppable
from windtunnel.network.fabrics import apply_faults, parse_fabric, parse_fault
from windtunnel.network.flow_list import load_flows
from windtunnel.network.flows import NETWORKS, NICS, ROUTINGS, UNTIL, FlowOptions, run_flows


def command(
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
    network: Annotated[str, typer.Option("--network", help=", ".join(NETWORKS))] = "closed",
    routing: Annotated[str, typer.Option("--routing", help=", ".join(ROUTINGS))] = "ecmp",
    nic: Annotated[str, typer.Option("--nic", help="NICs between servers, as NCCL picks them: " + ", ".join(NICS))] = "nearest",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of every hash and draw.")] = 1,
    mtu: Annotated[str, typer.Option("--mtu", metavar="SIZE", help="Payload of a full packet.")] = "4096",
    until: Annotated[str, typer.Option("--until", help="When a flow is complete: " + ", ".join(UNTIL))] = "delivered",
    fault: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="PATTERN:EFFECT", help="spine3:down or leaf*--spine*:slow=0.5,share=1%; repeatable."),
    ] = None,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    writable(("--json", json))
    options = FlowOptions(network, routing, nic, seed, size_of(mtu, "--mtu"), until)
    options.route_options()
    with busy("building the fabric"):
        graph = apply_faults(parse_fabric(fabric), [parse_fault(text) for text in fault or ()])
        wanted = load_flows(flows, graph.endpoints)
    with stoppable(f"{len(wanted):,} flows") as progress:
        began = time.process_time()
        result = run_flows(graph, wanted, options, progress)
        result.stats["cpu_s"] = time.process_time() - began
    from windtunnel.report.flows import flows_json, flows_report

    if json is not None:
        write(flows_json(result, fabric), json, "--json")
    if not quiet and json != "-":
        flows_report(result, fabric)


def size_of(text: str, option: str) -> int:
    """Whole bytes from `4096` or `4KiB`; SpecError otherwise."""
    try:
        return int(parse_size(float(text) if text.replace(".", "", 1).isdigit() else text))
    except (ValueError, OverflowError):
        raise SpecError(option, text, "a size such as 4096 or 4KiB") from None
