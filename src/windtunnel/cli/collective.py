"""`windtunnel collective`: the table of nccl-tests, predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import FIDELITIES, check_fidelity
from windtunnel.cli import INTERRUPTED
from windtunnel.cli.collective_links import Largest, read_measured
from windtunnel.cli.shared.common import Fault, PacketThreads, Sets, fault_sets, notes, write, write_json
from windtunnel.cli.shared.outputs import Outputs, with_outputs
from windtunnel.cli.shared.progress import stoppable
from windtunnel.jobs.machines import load_machine
from windtunnel.network.algorithm import ALGORITHMS
from windtunnel.network.api import OPS, algorithm_of, op_of, sends_of, sweep, sweep_algorithms
from windtunnel.network.sizes import sizes_of

if TYPE_CHECKING:
    from windtunnel.network.lanes.send_files import Sends
    from windtunnel.spec.machine.cluster import Cluster

EXAMPLES = """\b
Examples:
  windtunnel collective --cluster h100-ib --gpus 64 --op all_reduce --bytes 1M:1G:4
  windtunnel collective -c h100-ib -n 64 -e NCCL_ALGO=Ring -b 256M --network packet
"""


@with_outputs
def command(  # long: one option a line
    cluster: Annotated[str, typer.Option("--cluster", "-c", metavar="CLUSTER", help="Catalogue name or file.")],
    op: Annotated[str, typer.Option("--op", help=", ".join(OPS))] = "all_reduce",
    gpus: Annotated[int, typer.Option("--gpus", "-n", min=2, help="Ranks of the call.")] = 8,
    sizes: Annotated[
        str,
        typer.Option(
            "--bytes",
            "-b",
            metavar="MIN:MAX[:FACTOR]",
            help="Sizes as nccl-tests takes them (K, M, G are binary), or a list with commas.",
        ),
    ] = "8:8G",
    network: Annotated[str, typer.Option("--network", help="Fidelity: " + ", ".join(FIDELITIES) + ".")] = "closed",
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm",
            "-a",
            metavar="NAME|FILE",
            help=f"{', '.join(ALGORITHMS)}, or sends in a .csv, .json, .toml or .xml (MSCCL).",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="NCCL variable, such as NCCL_ALGO=Ring; `help` lists them."),
    ] = None,
    dims: Annotated[
        str | None, typer.Option("--dims", help="Ranks of each dimension, innermost first: 8,16 (hierarchical).")
    ] = None,
    show: Annotated[
        bool,
        typer.Option(
            "--show-transfers",
            help="List the transfers of the first size, step by step; --csv writes them as --algorithm reads them.",
        ),
    ] = False,
    per_node: Annotated[int | None, typer.Option("--per-node", min=1, help="Ranks in each node; default: as many as fit.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the hashes that choose paths.")] = 1,
    fault: Fault = None,
    sets: Sets = None,
    skip: Annotated[bool, typer.Option("--skip", help="packet: fast-forward steady states, and say what was skipped.")] = False,
    threads: PacketThreads = 1,
    mtu: Annotated[
        int | None, typer.Option("--mtu", min=256, max=65535, help="Bytes of a packet; default: depends on the size.")
    ] = None,
    measured: Annotated[
        list[str] | None,
        typer.Option("--measured", metavar="FILE", help="A log of nccl-tests of this call, to stand beside it; repeatable."),
    ] = None,
    *,
    outputs: Outputs,
) -> None:
    if env and "help" in env:
        from windtunnel.network.nccl.settings import KNOWN

        names = KNOWN | {"NCCL_TOPO_FILE": "XML of a node of this cluster: rates of its NICs and PCIe lanes"}
        write("\n".join(f"{name:<28} {does}" for name, does in names.items()), "-", "--env")
        return
    check_fidelity(network)
    if skip and outputs.wants_detail:
        path = outputs.html if outputs.html is not None else outputs.sheet
        raise SpecError("--html", str(path), "no --skip", "What is skipped has no place in the load over time.")
    name = op_of(op, "--op")
    beside = read_measured(measured, name, gpus)
    machine = load_machine(cluster, [*(sets or ()), *fault_sets(fault, "fabric.faults")])
    chosen_sizes, variables = sizes_of(sizes), variables_of(env or ())
    if (topology := variables.pop("NCCL_TOPO_FILE", None)) is not None:
        from windtunnel.jobs.nccl_topology import with_topology

        machine = with_topology(machine, str(topology), "--env.NCCL_TOPO_FILE")
    if per_node is not None and per_node > machine.node.domain:
        raise SpecError("--per-node", per_node, f"at most {machine.node.domain}, as many GPUs as a node of {machine.id} joins")
    sends = None if algorithm is None else sends_of(algorithm)
    chosen = algorithm_of(algorithm) if sends is None else None
    if sends is not None and sends.size is None and len(chosen_sizes) > 1:
        raise SpecError("--bytes", sizes, "one size", "The file does not say what size it is for, so it does not scale.")
    shape = dims_of(dims)
    if show:
        _show(
            machine,
            name,
            gpus,
            chosen_sizes[0],
            variables,
            outputs.csv,
            outputs.json,
            algorithm=chosen,
            sends=sends,
            per_node=per_node,
            seed=seed,
            dims=shape,
        )
        return
    largest = Largest()
    with stoppable(f"{len(chosen_sizes)} sizes") as progress:
        rows = sweep(
            machine,
            name,
            gpus,
            chosen_sizes,
            network=network,
            settings=variables,
            mtu=mtu,
            skip=skip,
            threads=threads,
            progress=progress,
            watch=largest,
            loads=network != "closed" and not skip and (outputs.wants_detail or outputs.json is not None),
            algorithm=chosen,
            sends=sends,
            per_node=per_node,
            seed=seed,
            dims=shape,
        )
    finished = len(rows) == len(chosen_sizes)
    from windtunnel.network.collective_sheet import CollectiveAnswer, collective_sheet

    alone = {}
    if outputs.wants_detail or outputs.csv is not None:
        alone = sweep_algorithms(machine, name, gpus, chosen_sizes[: len(rows)], settings=variables, per_node=per_node)
    about = {"cluster": machine.id, "op": name, "gpus": gpus, "network": network, "finished": finished}
    answer = CollectiveAnswer(rows, name, gpus, machine, network, alone, beside, largest.seen)
    outputs.show(collective_sheet(answer), {**about, "rows": rows, **largest.table()})
    if not finished:
        notes().print(f"{len(rows)} of {len(chosen_sizes)} sizes are done.")
        raise typer.Exit(INTERRUPTED)


def variables_of(pairs: Sequence[str]) -> dict[str, str | int]:
    """NCCL variables from NAME=VALUE; SpecError on anything else."""
    variables: dict[str, str | int] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SpecError("--env", pair, "NAME=VALUE, such as NCCL_ALGO=Ring")
        variables[name.strip()] = value.strip()
    return variables


def dims_of(text: str | None) -> tuple[int, ...]:
    """Ranks of each dimension from `8,16`."""
    words = [word.strip() for word in text.split(",")] if text else []
    if (
        not all(word.isascii() and word.isdecimal() and 0 < int(word) < 10**6 for word in words if len(word) < 8)
        or max(map(len, words), default=0) > 7
    ):
        raise SpecError("--dims", text, "ranks of each dimension, innermost first, such as 8,16")
    return tuple(int(word) for word in words)


def _show(
    machine: Cluster,
    op: str,
    gpus: int,
    size: float,
    variables: dict[str, str | int],
    csv: str | None,
    json: str | None,
    *,
    algorithm: str | None,
    sends: Sends | None,
    per_node: int | None,
    seed: int,
    dims: tuple[int, ...],
) -> None:
    """Lists the transfers of one call."""
    from windtunnel.cli.collective_listing import as_csv, as_json, listing
    from windtunnel.network import flat_group
    from windtunnel.network.lanes.listing import transfers
    from windtunnel.network.nccl.settings import as_set, parse_settings
    from windtunnel.network.simulate.collective import route_call

    if machine.fabric.is_grid:
        option = "--show-transfers" if csv is None else "--csv"
        raise SpecError(option, op, "a cluster with switches: transfers along dimensions are not listed")
    settings = parse_settings(variables, "--env")
    routed = route_call(
        as_set(machine, settings),
        OPS[op],
        size,
        flat_group(machine, gpus, per_node),
        algorithm=algorithm,
        sends=sends,
        settings=settings,
        seed=seed,
        dims=dims,
    )
    lowered = routed.lowered
    sent = transfers(lowered.lanes, lowered.pattern.channel, lowered.ends)
    if csv is not None:
        write(as_csv(lowered, sent), csv, "--csv")
    if json is not None:
        write_json(as_json(lowered, sent, op), json)
    if "-" not in (csv, json):
        write(listing(lowered, sent, op), "-", "--show-transfers")
