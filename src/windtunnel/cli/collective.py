"""`windtunnel collective`: the table of nccl-tests, predicted."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.cli.common import Json, Network, network_of, writable, write, write_json
from windtunnel.network import sweep
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Comm

OPS = {c.name.lower(): c for c in Comm if c is not Comm.NONE}
ALIASES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "all2all": "all_to_all",
}
SPLIT = frozenset({Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL, Comm.GATHER, Comm.SCATTER})
"""Calls whose `count` column nccl-tests gives per rank."""
MOST_SIZES = 1000
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMG]?)(?:(i?)B)?", re.IGNORECASE)


def command(
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
    network: Network = "closed",
    json: Json = None,
) -> None:
    network_of(network)
    writable(("--json", json))
    name = op.strip().lower().replace("-", "_")
    name = ALIASES.get(name, name)
    if name not in OPS:
        raise UnknownName("--op", op, list(OPS))
    machine = load_cluster(cluster)
    rows = sweep(machine, OPS[name], gpus, sizes_of(sizes))
    if json is not None:
        write_json({"cluster": machine.id, "op": name, "gpus": gpus, "network": network, "rows": rows}, json)
        if json == "-":
            return
    write(table(name, gpus, machine.id, rows), "-", "--bytes")


def sizes_of(text: str) -> list[float]:
    """Bytes from `8:8G`, `1M:64M:4` or `1M,3M`; SpecError with an example otherwise."""
    wanted = "MIN:MAX, MIN:MAX:FACTOR or a list with commas, such as 8:8G or 1M,16M"
    if ":" not in text:
        found = [_bytes(part, text, wanted) for part in text.split(",")]
        if len(found) > MOST_SIZES:
            raise SpecError("--bytes", text, f"at most {MOST_SIZES} sizes")
        return found
    low, high, *rest = text.split(":")
    if len(rest) > 1:
        raise SpecError("--bytes", text, wanted)
    try:
        factor = float(rest[0]) if rest else 2.0
    except ValueError:
        raise SpecError("--bytes", text, wanted) from None
    start, end = _bytes(low, text, wanted), _bytes(high, text, wanted)
    if not 1.0 < factor <= 1e12 or end < start:
        raise SpecError("--bytes", text, wanted, "MIN is at most MAX, FACTOR above 1.")
    made = [start]
    while (following := float(int(made[-1] * factor))) <= end:
        if following <= made[-1] or len(made) >= MOST_SIZES:
            raise SpecError("--bytes", text, f"at most {MOST_SIZES} sizes, each larger than the one before", "Raise FACTOR.")
        made.append(following)
    return made


def _bytes(part: str, text: str, wanted: str) -> float:
    match = _SIZE.fullmatch(part.strip())
    if match is None:
        raise SpecError("--bytes", text, wanted)
    number, prefix, binary = match.groups()
    power = " KMG".index(prefix.upper()) if prefix else 0
    decimal = binary == "" and part.strip()[-1:] in "bB"  # 8GB is decimal, 8G and 8GiB are binary
    size = float(int(float(number) * (1000 if decimal else 1024) ** power))
    if not 1.0 <= size <= 2.0**50:
        raise SpecError("--bytes", text, "sizes from 1 byte to 1 PiB")
    return size


def table(op: str, gpus: int, cluster: str, rows: list[dict[str, object]]) -> str:
    """Columns of nccl-tests (out of place), then what the library is taken to choose."""
    reduces = op in ("all_reduce", "reduce_scatter", "reduce")
    lines = [
        f"# {op} on {gpus} GPUs of {cluster}: predicted, not run",
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
            f"{row['channels']}"
        )
    mean = sum(float(str(r["busbw_GBs"])) for r in rows) / len(rows)
    return "\n".join([*lines, f"# Avg bus bandwidth    : {mean:g}"])


def _fit(value: object, width: int) -> str:
    number = float(str(value))
    digits = 2 if number < 1e3 else 1 if number < 1e4 else 0
    return f"{number:>{width}.{digits}f}"
