"""From a block's units to the rows of its forward and backward pass."""

from __future__ import annotations

from windtunnel.workload.ops import Op
from windtunnel.workload.passes.recompute import parts_again, rows_again
from windtunnel.workload.tape import Unit

Rows = list[list[Op]]
"""Rows grouped by unit: the end of a group waits for its asynchronous communication."""


def forward_rows(units: list[Unit]) -> Rows:
    """Rows of the forward pass, unit by unit."""
    return [u.forward for u in units if u.forward]


def backward_rows(units: list[Unit], recompute: str, modules: tuple[str, ...] = ("core_attn",)) -> Rows:
    """Rows of the backward pass under a recompute policy: recomputed rows first, then the units in reverse.

    Under selective recompute each of `modules` runs again just before the last unit that needs it.
    """
    if recompute == "none":
        return [u.backward for u in reversed(units) if u.backward]
    if recompute == "selective":
        rows: Rows = []
        core = [u for u in units if u.core and "core_attn" in modules]
        parts = parts_again(units, modules)
        for index, unit in reversed(list(enumerate(units))):
            for part in parts.get(index, ()):
                rows += rows_again(part, recompute)
            if core and unit is core[-1]:
                rows += rows_again(core, recompute)
            if unit.backward:
                rows.append(unit.backward)
        return rows
    return rows_again(units, recompute) + [u.backward for u in reversed(units) if u.backward]
