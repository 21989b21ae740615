"""SimAI's smaller files: AIOB's compute times, SimAI.conf, busbw.yaml, ratio tables, AICB's list of jobs, and its results.

SimAI's ratio tables: the share of the bus bandwidth that a call of a size reaches on a number of nodes.

Columns are 1, 2, 4, ... 128 nodes and "Multi 16", as in aliyun/SimAI, astra-sim-alibabacloud/inputs/ratio; a blank counts as 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import cells_of, lines_of
from windtunnel.formats.reading import Content, Reading

CONFIG_KEYS = ("ENABLE_QCN", "CC_MODE", "PACKET_PAYLOAD_SIZE", "KMAX_MAP", "SIMULATOR_STOP_TIME", "USE_DYNAMIC_PFC_THRESHOLD")
CONTROLS = {"1": "dcqcn", "3": "hpcc", "7": "timely", "8": "dctcp", "10": "hpcc-pint"}
RESULT = "File name"
TOTAL = "Total time"
_GROUPS = ("TP:", "DP:", "EP:", "PP:")
MOST_LINES = 10_000_000


def kind_of(lines: Sequence[str]) -> str | None:
    """`aiob`, `conf`, `busbw`, `ratio`, `jobs` or `result`; None for another file."""
    shown = [line.strip() for line in lines[:64] if line.strip()]
    if not shown:
        return None
    if shown[0].startswith("train_iter:") or (len(shown) > 1 and shown[0].endswith(":") and shown[1].startswith("time_gpu_")):
        return "aiob"
    if sum(line.split()[0] in CONFIG_KEYS for line in shown) >= 2:
        return "conf"
    if sum(group in shown for group in _GROUPS) >= 2:
        return "busbw"
    if shown[0].startswith("Size,") and "Node" in shown[0]:
        return "ratio"
    if shown[0].split("\t")[:3] == ["id", "Name", "Parameter_size"]:
        return "jobs"
    return "result" if shown[0].startswith(RESULT) and TOTAL in shown[0] or shown[0].startswith("layer_name,") else None


def read(path: Path, kind: str) -> Reading:
    """What the file says."""
    return _READERS[kind](path)


def _lines(path: Path, wanted: str) -> list[str]:
    out = []
    for line in lines_of(path, wanted):
        if line.strip():
            out.append(line)
        if len(out) > MOST_LINES:
            raise FileError(str(path), f"more than {MOST_LINES:,} lines", wanted)
    return out


def _aiob(path: Path) -> Reading:
    """us of each operator: most, least and mean. AICB takes the mean; `layer` lines between blocks are names."""
    times: dict[str, dict[str, float]] = {}
    iterations, lost, name = 0, 0, ""
    for line in _lines(path, "AIOB's compute times"):
        key, colon, value = line.strip().partition(":")
        number = _float(value)
        if key == "train_iter" and number is not None:
            iterations = int(number)
        elif colon and not value.strip() and not line[:1].isspace():
            name = key
            times[name] = {}
        elif key.startswith("time_gpu_") and number is not None and name:
            times[name][key.removeprefix("time_gpu_")] = number
        else:
            lost += 1
    facts = {
        "train_iter": iterations, "operators": list(times), "count": len(times),
        "avg_us": {name: row["avg"] for name, row in times.items() if "avg" in row},
        "avg_sum_us": sum(row.get("avg", 0.0) for row in times.values()),
    }  # fmt: skip
    broken = (f"{lost} lines are no times",) if lost else ()
    return Reading("AIOB compute times", Content.SETTINGS, times, facts, ("us of each operator",), broken=broken)


def _conf(path: Path) -> Reading:
    """Keys as they stand; maps `n rate value ...` by rate in bits/s."""
    values: dict[str, Any] = {}
    broken: list[str] = []
    for line in _lines(path, "SimAI.conf"):
        key, *words = line.split()
        if key.startswith("#"):
            continue
        if key.endswith("_MAP") and words:
            pairs = words[1:]
            table = {pairs[at]: _float(pairs[at + 1]) for at in range(0, len(pairs) - 1, 2)}
            if str(len(table)) != words[0]:
                broken.append(f"{key}: {len(table)} pairs where {words[0]} are announced")
            values[key] = table
        else:
            values[key] = " ".join(words)
    control = CONTROLS.get(str(values.get("CC_MODE", "")), "not known")
    facts = {"keys": len(values), "congestion_control": control, **values}
    built = (f"settings of SimAI's packet simulation; congestion control {control} (`replay --network packet`, `flows --cc`)",)
    return Reading("SimAI.conf", Content.SETTINGS, values, facts, built, broken=tuple(broken))


def _busbw(path: Path) -> Reading:
    """GB/s by group and call; null where the file has none."""
    rates: dict[str, dict[str, float | None]] = {}
    group = ""
    lost = 0
    for line in _lines(path, "busbw.yaml"):
        key, colon, value = line.strip().partition(":")
        if colon and not value.strip():
            group = key
            rates[group] = {}
        elif colon and group:
            number = _float(value)
            lost += number is None and value.strip() not in ("null", "~", "None")
            rates[group][key.rstrip(",")] = number
        elif line.strip() != "test":
            lost += 1
    facts = {"groups": list(rates), "busbw_GBps": rates}
    broken = (f"{lost} lines are no rates",) if lost else ()
    assumed = ("SimAI's open analytical mode does not read this file",)
    return Reading("SimAI busbw.yaml", Content.SETTINGS, rates, facts, ("bus bandwidth by group and call",), (), assumed, broken)


def _ratio(path: Path) -> Reading:

    table = read_table(path)
    facts = {"rows": len(table), "sizes": [int(row[0]) for row in table], "first": list(table[0][1:]), "last": list(table[-1][1:])}
    built = ("a table of `windtunnel simai --ratios FOLDER`; blanks are 1",)
    return Reading("SimAI ratio table", Content.SETTINGS, table, facts, built)


def _jobs(path: Path) -> Reading:
    """AICB's list of workloads, a job a row."""
    header, *lines = [cells_of(line, "\t") for line in _lines(path, "AICB's list of workloads")] or [[]]
    rows = [dict(zip(header, cells, strict=False)) for cells in lines]
    facts = {"rows": len(rows), "names": [row.get("Name") for row in rows], "columns": header}
    return Reading("AICB workload list", Content.SETTINGS, rows, facts, (f"{len(rows)} jobs with their degrees",))


def _result(path: Path) -> Reading:
    """An EndToEnd.csv of the analytical mode or of ns-3: one step of Total time. Cells that are no times are counted."""
    rows = [row for line in _lines(path, "an EndToEnd.csv of SimAI") if (row := cells_of(line))]
    summary: dict[str, str] = {}
    if rows and rows[0][0].strip() == RESULT and len(rows) > 1:
        summary = {key.strip(): value.strip() for key, value in zip(rows[0], rows[1], strict=False)}
        rows = rows[2:]
    layers = [row for row in rows if row[0].strip() not in ("layer_name", "SUM", "total exposed comm")]
    cells = Counter(_odd(cell) for row in layers for cell in row)
    # ns-3 writes its totals into a last row too
    last = next((row for row in rows if row[0].strip() == "total exposed comm" and len(row) > 5), None)
    total = _float(summary.get(TOTAL, "")) if summary else _float(last[5]) if last else None
    if total is None:
        raise SpecError(f"{path}: {TOTAL}", summary.get(TOTAL, "no such cell"), "us")
    facts: dict[str, Any] = {
        "summary": summary, "layer_rows": len(layers), "nan_cells": cells["nan"], "inf_cells": cells["inf"],
        "wrapped_cells": cells["wrapped"], "total_us": total,
    }  # fmt: skip
    stated: dict[str, str | int | float] = {key: value for key, value in summary.items()}
    from windtunnel.records.run import Run, Steps  # numpy

    run = Run(Steps.of([-1], [0], seconds=[total * 1e-6]), (), stated, str(path))
    ignored = ("times of single lines",)
    assumed = ("the step is one that SimAI predicted, not one that was measured",)
    return Reading("SimAI EndToEnd", Content.RUN, run, facts, (f"a step of {total:,.0f} us",), ignored, assumed)


def _odd(cell: str) -> str:
    text = cell.strip().lower()
    if text in ("-nan", "nan", "nan or inf"):
        return "nan"
    if text in ("inf", "-inf"):
        return "inf"
    number = _float(text)
    return "wrapped" if number is not None and number >= 2**62 / 1000 else ""


def _float(text: str) -> float | None:
    try:
        value = float(text.split("(")[0])
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None


_READERS: Mapping[str, Callable[[Path], Reading]] = {
    "aiob": _aiob, "conf": _conf, "busbw": _busbw, "ratio": _ratio, "jobs": _jobs, "result": _result,
}  # fmt: skip


NODES = (1, 2, 4, 8, 16, 32, 64, 128)
MULTI = 9
"""What stands for the column "Multi 16", whatever the nodes are."""
_OTHER = NODES.index(16)

Table = tuple[tuple[float, ...], ...]
"""Rows: bytes, then the ratio of each column."""


@dataclass(frozen=True)
class Ratios:
    """The three tables."""

    nic: Table
    nvlink: Table
    alltoall: Table


def ratio(table: Table, size: int, nodes: int) -> float:
    """The table's value at a size, between its rows in a straight line, over that of its last row. SpecError beyond the last row,
    where SimAI ends with an exception."""
    column = 1 + (len(NODES) if nodes == MULTI else NODES.index(nodes) if nodes in NODES else _OTHER)
    most = table[-1][column]
    if size < table[0][0]:
        return table[0][column] / most
    for low, high in zip(table[:-1], table[1:], strict=True):
        if low[0] <= size <= high[0]:
            return (low[column] + (high[column] - low[column]) * (size - low[0]) / (high[0] - low[0])) / most
    raise SpecError("bytes of a call", size, f"at most {int(table[-1][0])}, the last size of SimAI's ratio tables")


def read_table(path: Path) -> Table:
    """A ratio CSV. SpecError for rows that are none."""
    rows: list[tuple[float, ...]] = []
    for number, line in enumerate(lines_of(path, "a ratio table of SimAI")):
        if number == 0 or not line.strip():
            continue
        cells = [cell.strip() or "1" for cell in line.split(",")]
        try:
            row = tuple(float(cell) for cell in cells[: 2 + len(NODES)])
        except ValueError:
            raise SpecError(f"{path}, line {number + 1}", line[:60], "numbers between commas") from None
        if len(row) < 2 + len(NODES) or any(not 0 < one < 1e18 for one in row) or (rows and row[0] <= rows[-1][0]):
            raise SpecError(
                f"{path}, line {number + 1}", line[:60], f"a size above the one before, and {1 + len(NODES)} ratios above 0"
            )
        rows.append(row)
    if len(rows) < 2:
        raise SpecError(str(path), f"{len(rows)} rows", "two rows or more")
    return tuple(rows)


def read_ratios(folder: Path) -> Ratios:
    """The tables of a folder, by SimAI's names."""
    return Ratios(*(read_table(folder / f"{name}_ratio.csv") for name in ("nic", "nvlink", "ata")))
