"""A block over many numbers of tokens at once.

Its rows are lines in that number: products have it as a side, kernels move bytes for each of it. So blocks of a few numbers of
tokens say those of all. Where rows are no lines, or their numbers are not exact in binary, each block is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Bools, Floats, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.serving.graph import ExpertsCall, ServedBlock
from windtunnel.workload.identity import MODULE_LABELS
from windtunnel.workload.ops import COLUMNS, Axis, Kind, Op, OpTable

PROBES = (1, 2, 13, 97, 1009)
"""Numbers of tokens, and the largest one, whose blocks have to lie on lines: a bend between any two of them would show."""

FINE, WIDE = 64.0, 2.0**53
"""Numbers that are multiples of 1 / FINE below WIDE / FINE add and multiply without rounding."""

GROWN = ("batch", "m", "n", "k", "extra", "flops", "bytes", "launches")
"""Columns that may grow with the number of tokens; all others stay as they are."""


@dataclass(frozen=True)
class BlockTable:
    """Rows of blocks, one block after the other. `of`: [rows] the block of each; `forms`: number formats of products; `experts`:
    [blocks] fused experts."""

    ops: OpTable
    forms: list[str]
    of: Int64s
    experts: list[tuple[ExpertsCall, ...]]

    def __len__(self) -> int:
        return len(self.experts)

    @classmethod
    def join(cls, blocks: Sequence[ServedBlock]) -> BlockTable:
        """The table of these blocks."""
        rows = [row for block in blocks for row in block.rows]
        of = np.repeat(np.arange(len(blocks)), [len(block.rows) for block in blocks])
        return cls(OpTable.of(rows), [form for block in blocks for form in block.forms], of, [block.experts for block in blocks])

    def shared_part(self) -> BlockTable:
        """What all DP-attention ranks compute together: the experts of a layer, and the calls that bring tokens there and back."""
        kept: Bools = (self.ops.kind == Kind.COMM) & (self.ops.axis == Axis.EP)
        places = np.nonzero(kept)[0].tolist()
        names, modules = (tuple(labels[place] for place in places) for labels in (self.ops.names, self.ops.modules))
        columns: dict[str, Any] = {name: getattr(self.ops, name)[kept] for name in COLUMNS}
        return BlockTable(OpTable(names, modules, **columns), [self.forms[place] for place in places], self.of[kept], self.experts)


def blocks_over(
    build: Callable[[int], ServedBlock], sizes: Sequence[int], experts: Callable[[int], tuple[ExpertsCall, ...]] | None = None
) -> BlockTable:
    """The blocks that `build` makes of each number of tokens of `sizes`; `experts`: their fused experts, which are no lines."""
    probes = sorted({*PROBES, max(sizes)})
    built = [build(size) for size in probes]
    calls = experts or (lambda size: ())
    rows = (
        _lines(probes, built, sizes)
        if all(block.experts == calls(size) for block, size in zip(built, probes, strict=True))
        else None
    )
    if rows is None:
        return BlockTable.join([build(size) for size in sizes])
    count = len(built[0].rows)
    of = np.repeat(np.arange(len(sizes)), count)
    return BlockTable(rows, list(built[0].forms) * len(sizes), of, [calls(size) for size in sizes])


def _lines(probes: Sequence[int], built: Sequence[ServedBlock], sizes: Sequence[int]) -> OpTable | None:
    """The rows of blocks over `sizes`, if those of `probes` lie on lines."""
    first, last = built[0], built[-1]
    if any(block.forms != first.forms or _fixed_columns(block) != _fixed_columns(first) for block in built):
        return None
    if not first.rows:
        return OpTable.of([])
    grown = np.array([[[getattr(row, name) for row in block.rows] for name in GROWN] for block in built], np.float64)
    slope = (grown[-1] - grown[0]) / (probes[-1] - probes[0])
    begin = grown[0] - slope * probes[0]
    exact = [_is_exact(numbers) for numbers in (slope, begin, grown)]
    if not all(exact) or any((begin + slope * size != numbers).any() for size, numbers in zip(probes, grown, strict=True)):
        return None
    numbers: Floats = begin[:, None, :] + slope[:, None, :] * np.array(sizes, np.float64)[:, None]  # [columns, sizes, rows]
    columns: dict[str, Any] = {name: np.tile([getattr(row, name) for row in last.rows], len(sizes)) for name in COLUMNS}
    columns |= {name: numbers[place].reshape(-1) for place, name in enumerate(GROWN)}
    names = tuple(row.name for row in last.rows) * len(sizes)
    modules = tuple(row.label or MODULE_LABELS[row.module] for row in last.rows) * len(sizes)
    return OpTable(names, modules, **{name: columns[name].astype(kind) for name, kind in COLUMNS.items()})


def _fixed_columns(block: ServedBlock) -> list[tuple[Any, ...]]:
    """The rows of a block without what may grow."""
    return [tuple(value for name, value in zip(Op._fields, row, strict=True) if name not in GROWN) for row in block.rows]


def _is_exact(numbers: Floats) -> bool:
    """Whether sums and products of these numbers and of small whole ones have no rounding."""
    whole = numbers * FINE
    return bool((np.abs(whole) < WIDE).all() and (whole == np.round(whole)).all())
