"""From a block's units to the rows of its forward and backward pass."""

from __future__ import annotations

from windtunnel.workload.ops import Op
from windtunnel.workload.passes.recompute import parts_again, rows_again, until_last_saved
from windtunnel.workload.tape import Unit

Rows = list[list[Op]]
"""Rows grouped by unit: the end of a group waits for its asynchronous communication."""


def forward_rows(units: list[Unit]) -> Rows:
    """Rows of the forward pass, unit by unit."""
    return [u.forward for u in units if u.forward]


def backward_rows(
    units: list[Unit], recompute: str, modules: tuple[str, ...] = ("core_attn",), stops: bool = False
) -> Rows:  # fmt: skip
    """Rows of the backward pass under a recompute policy: recomputed rows first, then the units in reverse.

    Under selective recompute each of `modules` runs again just before the last unit that needs it. `stops`: what runs again ends
    with the last tensor that backward needs (`until_last_saved`).
    """
    if recompute == "none":
        return [u.backward for u in reversed(units) if u.backward]
    if recompute == "selective":
        rows: Rows = []
        core = [u for u in units if u.core and "core_attn" in modules]
        parts = parts_again(units, modules)
        for index, unit in reversed(list(enumerate(units))):
            for part in parts.get(index, ()):
                rows += rows_again(until_last_saved(part) if stops else part, recompute)
            if core and unit is core[-1]:
                rows += rows_again(core, recompute)
            if unit.backward:
                rows.append(unit.backward)
        return rows
    ahead = until_last_saved(units) if stops and recompute == "full" else units
    return rows_again(ahead, recompute) + [u.backward for u in reversed(units) if u.backward]
