"""`windtunnel collective`: the table of nccl-tests, predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import FIDELITIES, check_fidelity
from windtunnel.cli import INTERRUPTED
from windtunnel.cli.collective_links import Largest, check_page_of, measured_lines, read_measured, write_page
from windtunnel.cli.shared.common import Fault, Json, PacketThreads, Sets, fault_sets, notes, writable, write, write_json
from windtunnel.cli.shared.pages import Html
from windtunnel.cli.shared.progress import stoppable
from windtunnel.jobs.machines import load_machine
from windtunnel.network.api import OPS, algorithm_of, op_of, sends_of, sweep
from windtunnel.network.lanes.algorithms import LOWERINGS
from windtunnel.network.sizes import sizes_of
from windtunnel.workload.ops import Comm

if TYPE_CHECKING:
    from windtunnel.network.lanes.send_files import Sends
    from windtunnel.spec.machine.cluster import Cluster

SPLIT = frozenset({Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL, Comm.GATHER, Comm.SCATTER})
"""Calls whose `count` column nccl-tests gives per rank."""


EXAMPLES = """\b
Examples:
  windtunnel collective --cluster h100-ib --gpus 64 --op all_reduce --bytes 1M:1G:4
  windtunnel collective -c h100-ib -n 64 -e NCCL_ALGO=Ring -b 256M --network packet
"""


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
            help=f"{', '.join(LOWERINGS)}, or sends in a .csv, .json, .toml or .xml (MSCCL).",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="NCCL variable, such as NCCL_ALGO=Ring; `help` lists them."),
    ] = None,
    dims: Annotated[
        str | None, typer.Option("--dims", help="Ranks of each dimension, innermost first: 8,16 (hierarchical).")
    ] = None,
    show: Annotated[bool, typer.Option("--show-transfers", help="List the transfers of the first size, step by step.")] = False,
    csv: Annotated[
        str | None, typer.Option("--csv", metavar="FILE|-", help="With --show-transfers: write them as --algorithm reads them.")
    ] = None,
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
    html: Html = None,
    json: Json = None,
) -> None:
    if env and "help" in env:
        from windtunnel.network.nccl.settings import KNOWN

        names = KNOWN | {"NCCL_TOPO_FILE": "XML of a node of this cluster: rates of its NICs and PCIe lanes"}
        write("\n".join(f"{name:<28} {does}" for name, does in names.items()), "-", "--env")
        return
    check_fidelity(network)
    writable(("--json", json), ("--csv", csv), ("--html", html))
    check_page_of(html, skip)
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
    if show or csv is not None:
        _show(
            machine,
            name,
            gpus,
            chosen_sizes[0],
            variables,
            csv,
            json,
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
            loads=network != "closed" and not skip and (html is not None or json is not None),
            algorithm=chosen,
            sends=sends,
            per_node=per_node,
            seed=seed,
            dims=shape,
        )
    finished = len(rows) == len(chosen_sizes)
    if json is not None:
        about = {"cluster": machine.id, "op": name, "gpus": gpus, "network": network, "finished": finished}
        write_json({**about, "rows": rows, **largest.table()}, json)
    if json != "-":
        write(
            "\n".join([table(name, gpus, machine.id, rows, network), *largest.lines(), *measured_lines(rows, beside)]),
            "-",
            "--bytes",
        )
    if html is not None:
        write_page(html, name, gpus, machine, network, rows, largest, beside, settings=variables, per_node=per_node)
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


def table(op: str, gpus: int, cluster: str, rows: list[dict[str, object]], network: str = "closed") -> str:
    """Columns of nccl-tests (out of place), then the predicted choice of the library."""
    reduces = op in ("all_reduce", "reduce_scatter", "reduce")
    lines = [
        f"# {op} on {gpus} GPUs of {cluster}: predicted, not run",
        *_about(rows, network),
        "#",
        f"# {'size':>12}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}  {'time':>9}  {'algbw':>7}  {'busbw':>7}  "
        f"{'#wrong':>6}  {'algorithm':<10} {'protocol':<8} channels",
        f"# {'(B)':>12}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}  {'(us)':>9}  {'(GB/s)':>7}  {'(GB/s)':>7}",
    ]
    for row in rows:
        size = float(str(row["size"]))
        count = int(size / 4 / (gpus if OPS[op] in SPLIT else 1))
        root = 0 if op in ("broadcast", "reduce", "gather", "scatter") else -1
        lines.append(
            f"{size:>14.0f}  {count:>12d}  {'float':>8}  {'sum' if reduces else 'none':>6}  {root:>6}  {_fit(row['time_us'], 9)}  "
            f"{_fit(row['algbw_GBs'], 7)}  {_fit(row['busbw_GBs'], 7)}  {'N/A':>6}  "
            f"{row['algorithm']!s:<10} {row['protocol']!s:<8} "
            f"{row['channels']}" + _fault_cost(row)
        )
    mean = sum(float(str(r["busbw_GBs"])) for r in rows) / max(1, len(rows))
    return "\n".join([*lines, f"# Avg bus bandwidth    : {mean:g}"])


def _fault_cost(row: dict[str, object]) -> str:
    """What faults of the fabric cost a call."""
    if "whole_us" not in row:
        return ""
    whole = float(str(row["whole_us"]))
    return f"  # without faults {whole:.2f} us, they cost {float(str(row['time_us'])) - whole:.2f} us"


def _about(rows: list[dict[str, object]], network: str) -> list[str]:
    """A comment line about the engine's run."""
    if network == "closed":
        return []
    lanes = max((int(str(row["lanes"])) for row in rows), default=0)
    packets = sorted({int(str(row["mtu"])) for row in rows if "mtu" in row})
    words = f"# {network} engine, at most {lanes} lanes"
    if not packets:
        return [words]
    parts = [f"{words}, packets of {' or '.join(map(str, packets))} B (longer ones for long messages)"]
    # `host_pauses` stays in the data: a GPU or host that holds its own data back until its NIC is free sends no pause frame.
    events = {"pfc_pauses": "PFC pauses by switch ports", "ecn_marks": "ECN marks", "cnps": "CNPs", "drops": "drops"}
    counts = {words: sum(int(str(row[name])) for row in rows) for name, words in events.items()}
    if any(counts.values()):
        parts.append("# " + ", ".join(f"{number:,} {words}" for words, number in counts.items()))
    skipped = max(float(str(row["skipped_share"])) for row in rows)
    if skipped:
        error = max(float(str(row["skip_error_us"])) / float(str(row["time_us"])) for row in rows)
        parts.append(f"# steady states skipped: up to {skipped:.1%} of the bytes; estimated error of the time {error:.2%}")
    return parts


def _fit(value: object, width: int) -> str:
    number = float(str(value))
    digits = 2 if number < 1e3 else 1 if number < 1e4 else 0
    return f"{number:>{width}.{digits}f}"
