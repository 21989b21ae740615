"""SimAI's ratio tables: the share of the bus bandwidth that a call of a size reaches on a number of nodes.

Columns are 1, 2, 4, ... 128 nodes and "Multi 16", as in aliyun/SimAI, astra-sim-alibabacloud/inputs/ratio; a blank counts as 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.base.files import lines_of

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
