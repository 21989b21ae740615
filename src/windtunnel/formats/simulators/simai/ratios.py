"""SimAI's ratio tables: the share of the bus bandwidth that a call of a size reaches on a number of nodes.

Values: aliyun/SimAI, astra-sim-alibabacloud/inputs/ratio/{nic,nvlink,ata}_ratio.csv (Apache-2.0), commit cef83f9d. Columns there
are 1, 2, 4, ... 128 nodes and "Multi 16"; a blank counts as 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.base.text_files import lines_of

NODES = (1, 2, 4, 8, 16, 32, 64, 128)
MULTI = 9
"""What stands for the column "Multi 16", whatever the nodes are."""
_OTHER = NODES.index(16)
_SIZES = tuple(2**power for power in range(24, 35))
_M = (0.86, 0.92, 0.94, 0.94, 0.94, 0.95, 0.96, 0.96, 0.96, 0.96, 0.96)

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


def _table(*columns: Sequence[float]) -> Table:
    wide = [list(column) for column in columns]
    return tuple((float(size), *(column[at] if at < len(column) else 1.0 for column in wide)) for at, size in enumerate(_SIZES))


DEFAULT = Ratios(
    _table(
        (0.45, 0.55, 0.65, 0.69, 0.73, 0.76, 0.77, 0.78, 0.79, 0.8, 0.81),
        (0.32, 0.47, 0.5, 0.67, 0.85, 0.89, 0.92, 0.94, 0.95, 0.95, 0.96),
        (0.24, 0.38, 0.53, 0.67, 0.77, 0.85, 0.93, 0.94, 0.95, 0.96, 0.96),
        (0.13, 0.24, 0.39, 0.54, 0.69, 0.78, 0.9, 0.94, 0.95, 0.96, 0.96),
        (0.05, 0.11, 0.21, 0.38, 0.57, 0.73, 0.76, 0.92, 0.95, 0.96, 0.96),
        (0.044, 0.052, 0.106, 0.205, 0.387, 0.562, 0.74, 0.758, 0.923, 0.953, 0.957),
        (0.021, 0.042, 0.051, 0.107, 0.209, 0.384, 0.563, 0.745, 0.755, 0.914, 0.958),
        (0.0087, 0.021225, 0.04405, 0.0533, 0.1027, 0.1902, 0.314575, 0.553525, 0.740175, 0.7648, 0.919175),
        _M,
    ),
    _table(
        (0.45, 0.55, 0.65, 0.69, 0.73, 0.76, 0.77, 0.78, 0.79, 0.8, 0.81),
        (0.55, 0.68, 0.74, 0.8, 0.84, 0.86, 0.87, 0.87, 0.88, 0.88, 0.88),
        (0.34, 0.6, 0.71, 0.74, 0.79, 0.86, 0.87, 0.87, 0.88, 0.88, 0.88),
        (0.16, 0.34, 0.62, 0.7, 0.78, 0.82, 0.86, 0.87, 0.88, 0.88, 0.88),
        (0.08, 0.16, 0.33, 0.65, 0.72, 0.75, 0.83, 0.86, 0.87, 0.88, 0.88),
        (),
        (),
        (),
        _M,
    ),
    _table(
        (0.44, 0.51, 0.6, 0.65, 0.7, 0.71, 0.74, 0.76, 0.77, 0.78, 0.78),
        (0.52, 0.63, 0.72, 0.76, 0.79, 0.8, 0.81, 0.81, 0.8, 0.8, 0.8),
        (0.67, 0.68, 0.83, 0.9, 0.92, 0.94, 0.94, 0.95, 0.95, 0.95, 0.95),
        (0.64, 0.67, 0.82, 0.85, 0.87, 0.89, 0.92, 0.93, 0.94, 0.94, 0.94),
        (0.62, 0.66, 0.66, 0.72, 0.75, 0.81, 0.85, 0.88, 0.89, 0.9, 0.9),
        (),
        (),
        (),
        _M,
    ),
)  # fmt: skip
"""The shipped tables; columns 1, 2, 4, ... 128 nodes, then "Multi 16"; () stands for ones."""
