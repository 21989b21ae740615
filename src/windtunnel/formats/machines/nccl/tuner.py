"""Tables of NCCL's example tuner: its configuration, and the measurements that its script chooses from.

A configuration row is `collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps,regBuff]`, -1 for
any. A measurement has a header with `collective`, `size_bytes`, `algorithm`, `protocol` and at least one of `cost_metric`,
`bandwidth_gbps` and `latency_us`. (NCCL, ext-tuner/example.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError
from windtunnel.base.files import cells_of
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines
from windtunnel.records.measured_calls import CallTable, MeasuredCall, MeasuredCalls

COLLECTIVES = {
    "allreduce": Comm.ALL_REDUCE,
    "allgather": Comm.ALL_GATHER,
    "reducescatter": Comm.REDUCE_SCATTER,
    "broadcast": Comm.BROADCAST,
    "reduce": Comm.REDUCE,
}
ALGORITHMS = frozenset({"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat", "default"})
PROTOCOLS = frozenset({"ll", "ll128", "simple", "default"})
_CONFIGURED = ("collective", "min_bytes", "max_bytes", "algorithm", "protocol", "channels", "nodes", "ranks", "pipeops", "regbuff")
_NAMES = {"collective_type": "collective", "nnodes": "nodes", "nranks": "ranks", "numpipeops": "pipeops"}
_METRICS = {"latency_us": min, "bandwidth_gbps": max, "cost_metric": min}
"""What a size's rows are compared by, the surest first, and whether the least or the greatest is best."""
_MOST = 10**6
_AGREE = 4.0
"""How far a row's bandwidth may lie from its bytes over its time (bus bandwidth of n ranks is below twice that)."""

_Row = dict[str, str]


def recognises(head: Head) -> bool:
    """A header of measurements, or rows of a configuration."""
    rows = [line.strip() for line in head.lines[:400] if line.strip()]
    plain = [row for row in rows if not row.startswith("#")]
    if not plain:
        return False
    return _is_measured(_header(plain[0])) or sum(_is_configured(_header(row)) for row in plain[:20]) >= min(2, len(plain))


def read(files: Sequence[Path], context: Context) -> Reading:
    """Measured calls where rows have times that agree with their rates; else the choices as settings. FileError without rows."""
    rows: list[_Row] = []
    broken: list[str] = []
    for path in files:
        rows.extend(_rows(path, context, broken))
    if not rows:
        raise FileError(str(files[0]), "no row with a collective, an algorithm and a protocol", "a table of NCCL's tuner")
    facts: dict[str, Any] = {
        "rows": len(rows),
        "collectives": dict(Counter(row["collective"] for row in rows)),
        "algorithms": dict(Counter(row["algorithm"] for row in rows)),
        "protocols": dict(Counter(row["protocol"] for row in rows)),
        "ranks": sorted({_whole_number(row.get("ranks")) for row in rows}),
    }
    if any("size_bytes" not in row for row in rows):
        built = (f"{len(rows)} rules of a tuner",)
        return Reading("nccl-tuner", Content.SETTINGS, rows, facts, built, (), (), tuple(broken))
    chosen, metric = _best_rows(rows)
    facts |= {"by": metric, "best": [_best(row) for row in chosen]}
    odd = sum(not _agrees(row) for row in rows)
    facts["contradictions"] = odd
    ignored = []
    if metric != "latency_us" or odd:
        why = f"{odd} rows have a bandwidth that their bytes over their time contradict" if odd else "the rows have no times"
        ignored.append(f"the times, for a fit: {why}")
        built = (f"the best of {len(rows)} choices for {len(chosen)} calls by {metric}",)
        return Reading("nccl-tuner", Content.SETTINGS, chosen, facts, built, tuple(ignored), (), tuple(broken))
    tables = _tables(chosen, str(files[0]))
    built = (f"{len(chosen)} measured calls, the fastest choice of each, of {len(rows)} rows",)
    assumed = ("a cluster that is tuned to the fastest row of each size",)
    return Reading("nccl-tuner", Content.COLLECTIVES, MeasuredCalls(tables), facts, built, (), assumed, tuple(broken))


def _rows(path: Path, context: Context, broken: list[str]) -> Iterator[_Row]:
    """Rows by column name, in lower case; a file is of one of both kinds."""
    names: Sequence[str] = ()
    bad = taken = 0
    for text in LogLines(path, context.progress, broken):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        cells = _header(text)
        if not names:
            if _is_measured(cells):
                names = cells
                continue
            names = _CONFIGURED
        if cells[0] in ("collective", "collective_type"):
            continue
        row = dict(zip(names, cells, strict=False))
        if taken >= _MOST or not _is_row(row):
            bad += 1
            continue
        taken += 1
        yield row
    if bad:
        broken.append(f"{path}: {bad} rows that are no choice of an algorithm, or beyond the first {_MOST}")


def _is_row(row: Mapping[str, str]) -> bool:
    sizes = [row.get(key) for key in ("size_bytes", "min_bytes") if key in row]
    known = row.get("collective") in COLLECTIVES and row.get("algorithm") in ALGORITHMS and row.get("protocol") in PROTOCOLS
    return known and bool(sizes) and _whole_number(sizes[0]) >= 0


def _header(line: str) -> list[str]:
    """The cells of a line in lower case, with one name for each column."""
    lower = [cell.strip().lower() for cell in cells_of(line)]
    return [_NAMES.get(cell, cell) for cell in lower] or [""]


def _is_measured(names: Sequence[str]) -> bool:
    return {"collective", "size_bytes", "algorithm", "protocol"} <= set(names) and any(name in names for name in _METRICS)


def _is_configured(cells: Sequence[str]) -> bool:
    return 8 <= len(cells) <= len(_CONFIGURED) and _is_row(dict(zip(_CONFIGURED, cells, strict=False)))


def _best_rows(rows: Sequence[_Row]) -> tuple[list[_Row], str]:
    """The best row of each call (collective, bytes, nodes, ranks), and the column that says so."""
    metric = next((name for name in _METRICS if any(_value(row, name) > 0 for row in rows)), "cost_metric")
    calls: dict[tuple[str, int, int, int], list[_Row]] = {}
    for row in rows:
        if _value(row, metric) > 0:
            key = (
                row["collective"],
                _whole_number(row["size_bytes"]),
                _whole_number(row.get("nodes")),
                _whole_number(row.get("ranks")),
            )
            calls.setdefault(key, []).append(row)
    return [_METRICS[metric](same, key=lambda row: _value(row, metric)) for same in calls.values()], metric


def _best(row: _Row) -> dict[str, Any]:
    return {
        "collective": row["collective"],
        "bytes": _whole_number(row["size_bytes"]),
        "nodes": _whole_number(row.get("nodes")),
        "ranks": _whole_number(row.get("ranks")),
        "algorithm": row["algorithm"],
        "protocol": row["protocol"],
        "channels": _whole_number(row.get("channels")),
    }


def _agrees(row: _Row) -> bool:
    """Whether a row's bandwidth (GB/s) and time fit its bytes; true where it has not both."""
    rate, seconds = _value(row, "bandwidth_gbps") * 1e9, _value(row, "latency_us") * 1e-6
    if rate <= 0 or seconds <= 0:
        return True
    return 1 / _AGREE <= rate * seconds / max(1, _whole_number(row["size_bytes"])) <= _AGREE


def _tables(rows: Sequence[_Row], source: str) -> tuple[CallTable, ...]:
    calls: dict[tuple[str, int, int], list[MeasuredCall]] = {}
    for row in rows:
        key = row["collective"], max(0, _whole_number(row.get("ranks"))), max(0, _whole_number(row.get("nodes")))
        calls.setdefault(key, []).append(MeasuredCall(float(_whole_number(row["size_bytes"])), _value(row, "latency_us") * 1e-6))
    return tuple(
        CallTable(COLLECTIVES[name], ranks, nodes, tuple(own), "nccl", "", False, source)
        for (name, ranks, nodes), own in calls.items()
    )


def _value(row: Mapping[str, str], name: str) -> float:
    """A number above 0, or 0 where the cell holds none."""
    try:
        value = float(row.get(name) or 0)
    except ValueError:
        return 0.0
    return value if 0 < value < 1e15 else 0.0


def _whole_number(cell: str | None) -> int:
    """A whole number; -1 for any, and where the cell holds none."""
    text = (cell or "").strip()
    return int(text) if text.isdecimal() and len(text) < 16 else -1
